"""`simwarp blas`: plans, traces and policies of level-3 BLAS on simulated machines, and their pictures."""

import json
import signal
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

import gpu
import simwarp
from gpu import blas3
from gpu.blas3.table import ROWS
from reference.devices.timeline import Record, Timeline
from reference.errors import InputFileError, LaunchError, NoGpuError, SchemeError, ShapeError
from simwarp.cli import main
from simwarp.draw import blas as draw_blas
from simwarp.draw import curves
from simwarp.draw.machine import Mark, nice_step, to_svg
from simwarp.lab.blas import report, table
from simwarp.lab.blas.life import marks_of
from simwarp.lab.blas.request import Request
from simwarp.lab.blas.variants import VARIANTS, variant
from simwarp.lab.machines import first, host, topology_of
from simwarp.machine import Route
from simwarp.machine.topology import TOPOLOGIES
from support.fake_gpus import gpus

__all__ = ["gpus"]

pytest.importorskip("typer", reason="the command line needs simwarp[cli]")

SVG = "{http://www.w3.org/2000/svg}"
SMALL = ("trace", "dgemm", "256", "--topology", "H200x2", "--tile", "64")


def blas(*arguments):
    return main(["blas", *arguments])


def shapes(svg, kind):
    """The operations of a kind in a picture: each begins with an M."""
    found = ElementTree.fromstring(svg).iter(f"{SVG}path")
    return sum(path.get("d").count("M") for path in found if path.get("class") == kind)


def direct(size, tile, **options):
    """A call of the library without the command, on two H200s: its machine and its counts."""
    machine, counts = simwarp.Machine(TOPOLOGIES["H200x2"], values=False), blas3.Statistics()
    a, b, c = (np.empty((size, size), order="F") for _ in range(3))
    keywords = {"device": machine, "tile": tile, "statistics": counts, "overwrite_c": 1, **options}
    blas3.dgemm(1.0, a, b, 1.0, c, **keywords)
    return machine, counts


# --------------------------------------------------------------------------------------------------
# explain
# --------------------------------------------------------------------------------------------------


def test_explain_prints_the_plan_and_a_prediction(capsys):
    assert blas("explain", "dgemm", "256", "--topology", "H200x2", "--tile", "64") == 0
    shown = capsys.readouterr().out
    plan = blas3.explain("dgemm", 256, beta=1.0, tile=64, devices=2)
    assert shown.startswith(str(plan))
    assert "2 × H200, simulated: " in shown
    assert "from peers" in shown


def test_the_json_of_explain_has_the_plan_and_the_prediction(capsys):
    assert blas("explain", "dgemm", "256", "--topology", "H200x2", "--tile", "64", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    plan = blas3.explain("dgemm", 256, beta=1.0, tile=64, devices=2)
    assert (found["tasks"], found["tile"], found["needed"]) == (16, 64, plan.needed)
    assert (found["bytes_least"], found["bytes_without_reuse"]) == (
        plan.bytes_least,
        plan.bytes_without_reuse,
    )
    machine, counts = direct(256, 64)
    assert found["predicted"]["seconds"] == counts.seconds == machine.seconds()
    assert found["predicted"]["rate"] == pytest.approx(2 * 256**3 / counts.seconds)


def test_explain_takes_flags_and_sizes(capsys):
    arguments = ("--side", "R", "--uplo", "L", "--trans-a", "T", "--diag", "U", "--tile", "32", "--json")
    assert blas("explain", "strsm", "96", "64", *arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["m"], found["n"], found["k"], found["beta"]) == (96, 64, 64, 0.0)
    assert found["flags"] == {"side": "R", "uplo": "L", "trans_a": "T", "diag": "U"}
    assert blas("explain", "dgemm", "96", "64", "32", "--beta", "0", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["m"], found["n"], found["k"]) == (96, 64, 32)
    assert found["bytes_least"] == 8 * (96 * 32 + 32 * 64 + 96 * 64)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dfoo", "64"), "there is no ROUTINE dfoo"),
        (("dherk", "64"), "there is no ROUTINE dherk"),
        (("dgemm", "64", "--side", "L"), "dgemm has no flag --side L"),
        (("dtrsm", "64", "--side", "X"), "there is no --side X"),
        (("zherk", "64", "--trans-a", "T"), "zherk has no --trans-a T"),
        (("dtrsm", "64", "32", "16"), "dtrsm has no K=16"),
        (("dsyrk", "64", "32"), "dsyrk of 64 x 32"),
        (("dgemm", "64", "--topology", "PLUTO"), "the topology 'PLUTO' is unknown"),
        (("dgemm", "64", "--variant", "best"), "the variant 'best' is unknown"),
        (("dgemm", "400000", "--tile", "200000", "--topology", "H200"), "device 0 has a budget of"),
    ],
)
@pytest.mark.parametrize("command", ["explain", "trace"])
def test_wrong_requests_are_named(capsys, command, arguments, message):
    assert blas(command, *arguments) == 2
    found = capsys.readouterr()
    assert found.err.startswith(message)
    assert len(found.err.splitlines()) == 3
    assert found.out == ""


# --------------------------------------------------------------------------------------------------
# trace
# --------------------------------------------------------------------------------------------------


def test_a_trace_reports_what_the_machine_did(tmp_path, capsys):
    assert blas(*SMALL, "--json", str(tmp_path / "run.json")) == 0
    found = json.loads((tmp_path / "run.json").read_text())
    machine, counts = direct(256, 64)
    assert Timeline.from_json(json.dumps(found["timeline"]))[:] == machine.timeline[:]
    assert found["bytes"] == {way: counts.total(f"bytes_{way}") for way in ("in", "out", "peer")}
    for part, device in zip(found["devices"], counts.devices, strict=True):
        number = part["device"]
        assert (part["tasks"], part["stolen"], part["hits"]) == (device.tasks, device.stolen, device.hits)
        assert (part["compute"], part["communication"], part["other"]) == machine.timeline.profile(number)
        assert part["end"] == max(one.end for one in machine.timeline if one.device == number)
    ends = [part["end"] for part in found["devices"]]
    assert found["imbalance"] == max(ends) - min(ends) > 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == "dgemm 256 × 256 × 256, 16 tasks of tiles of 64 on 2 × H200, default"
    for title in ("COMPT", "COMM", "OTHER", "hits L1", "hits L2", "misses", "stolen", "imbalance"):
        assert title in shown


def test_a_dash_prints_the_report_and_nothing_else(capsys):
    assert blas(*SMALL, "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["tasks"] == 16


def test_a_trace_draws_every_operation(tmp_path):
    assert (
        blas(
            "trace",
            "dgemm",
            "96",
            "--tile",
            "64",
            "--out",
            str(tmp_path / "run.svg"),
            "--json",
            str(tmp_path / "run.json"),
        )
        == 0
    )
    svg, records = (
        (tmp_path / "run.svg").read_text(),
        json.loads((tmp_path / "run.json").read_text())["timeline"],
    )
    assert {one["kind"] for one in records} == {"in", "out", "routine"}
    assert shapes(svg, "peer") == 0
    for kind in ("in", "out", "routine"):
        assert 1 <= shapes(svg, kind) <= sum(1 for one in records if one["kind"] == kind)
    lanes = [one for one in ElementTree.fromstring(svg).iter(f"{SVG}rect") if one.get("class") == "lane"]
    assert len(lanes) == len({one["stream"] for one in records})


def test_values_are_computed_and_checked(capsys, monkeypatch):
    arguments = ("trace", "ztrmm", "40", "24", "--tile", "16", "--values", "--json", "-")
    assert blas(*arguments) == 0
    assert json.loads(capsys.readouterr().out)["values"] is True
    execute = report.execute

    def wrong(call, *others):
        execute(call, *others)
        call.matrices["b"][3, 4] += 1

    monkeypatch.setattr(report, "execute", wrong)
    assert blas(*arguments) == 2
    found = capsys.readouterr()
    assert found.err.startswith("ztrmm of 40 x 24 is wrong")
    assert found.out == ""


@pytest.mark.parametrize("kind", ROWS)
def test_every_routine_is_traced_with_values(kind):
    on = host(TOPOLOGIES["H200x2"], values=True)
    request = Request.of("c" + kind, 40, uplo="L" if "uplo" in ROWS[kind].positions else None)
    assert report.run(request, 16, on, variant("paper"), values=True)["seconds"] > 0


def test_another_run_is_drawn_above_on_the_same_axis(tmp_path):
    before, both = str(tmp_path / "before.json"), str(tmp_path / "both.svg")
    assert blas(*SMALL, "--json", before) == 0
    assert blas("trace", "dgemm", "128", "--tile", "64", "--with", before, "--out", both) == 0
    texts = ["".join(one.itertext()) for one in ElementTree.parse(both).iter(f"{SVG}text")]
    titles = [text for text in texts if text.startswith("dgemm ")]
    assert [title.split(",")[0] for title in titles] == ["dgemm 256 × 256 × 256", "dgemm 128 × 128 × 128"]
    ticks = [text for text in texts if text.endswith("µs")]
    assert ticks[: len(ticks) // 2] == ticks[len(ticks) // 2 :]


RECORD = {"device": 0, "peer": -1, "stream": 0, "kind": "in", "name": "", "nbytes": 1}
RECORD |= {"start": 0.0, "end": 1.0, "operations": 0.0}


def reported(record=RECORD, **changes):
    """The file of a report of one record."""
    words = {"routine": "dgemm", "machine": "x", "device": "sim", "gpus": ["x"], "timeline": [record]}
    numbers = dict.fromkeys(("m", "n", "k", "tile"), 1) | dict.fromkeys(("seconds", "rate"), 1.0)
    return json.dumps(words | numbers | changes).encode()


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"\xff\xfe",
        b"{",
        b"[]",
        b"[" * 100_000,
        b"{}",
        reported(RECORD | {"kind": "up"}),
        reported(RECORD | {"start": "now"}),
        reported(RECORD | {"end": -1.0}),
        reported(RECORD | {"end": float("nan")}),
        reported(RECORD | {"stream": "first"}),
        reported(RECORD | {"unknown": 2}),
        reported(RECORD | {"device": 1}),
        reported(seconds=None),
        reported(machine=7),
        reported(timeline=None),
    ],
)
def test_an_unreadable_report_is_named_and_nothing_is_written(tmp_path, capsys, content):
    given, out = tmp_path / "other.json", tmp_path / "out.svg"
    if content is not None:
        given.write_bytes(content)
    names = {path.name for path in tmp_path.iterdir()}
    assert blas(*SMALL, "--with", str(given), "--out", str(out), "--json", str(tmp_path / "x.json")) == 2
    found = capsys.readouterr()
    assert str(given) in found.err
    assert found.err.endswith("give a file that simwarp blas trace --json wrote\n")
    assert found.out == ""
    assert {path.name for path in tmp_path.iterdir()} == names


def test_a_good_report_is_read(tmp_path):
    (tmp_path / "good.json").write_bytes(reported())
    assert report.read(tmp_path / "good.json")["gpus"] == ["x"]
    with pytest.raises(InputFileError):
        report.read(tmp_path)


def test_an_output_that_cannot_be_written_is_named(tmp_path, capsys):
    assert blas(*SMALL, "--out", str(tmp_path / "none" / "x.svg")) == 2
    assert capsys.readouterr().err.endswith("choose another file with --out\n")


# --------------------------------------------------------------------------------------------------
# bench
# --------------------------------------------------------------------------------------------------

ABLATIONS = ("bench", "--sizes", "128", "--tiles", "32")


def test_a_bench_has_a_row_for_every_policy(tmp_path, capsys):
    result, plot = tmp_path / "rows.json", tmp_path / "rows.svg"
    assert blas(*ABLATIONS, "--json", str(result), "--plot", str(plot)) == 0
    found = json.loads(result.read_text())
    rows = {row["variant"]: row for row in found["rows"]}
    assert list(rows) == list(VARIANTS)
    assert rows["no-peer"]["bytes"]["peer"] == rows["no-cache"]["bytes"]["peer"] == 0
    assert rows["no-cache"]["bytes"]["in"] > rows["paper"]["bytes"]["in"]
    assert rows["no-cache"]["hits"] == rows["no-steal"]["stolen"] == 0
    plan = blas3.explain("dgemm", 128, beta=1.0, tile=32, devices=3)
    assert sum(rows["no-cache"]["bytes"].values()) == plan.bytes_without_reuse
    assert all(row["rate"] == pytest.approx(2 * 128**3 / row["seconds"]) for row in rows.values())
    assert (found["machine"], found["device"]) == ("Everest", "sim")
    assert capsys.readouterr().out.startswith("simulated Everest\n")
    assert len([*ElementTree.parse(plot).iter(f"{SVG}polyline")]) == len(VARIANTS)


def test_each_variant_changes_one_part_of_the_paper_policy():
    paper = replace(blas3.Options.paper(), cpu=False)
    assert VARIANTS["default"] == blas3.Options()
    assert VARIANTS["default-cpu"] == blas3.Options(cpu=True)
    changes = {
        name: {part for part in vars(paper) if getattr(options, part) != getattr(paper, part)}
        for name, options in VARIANTS.items()
    }
    del changes["default"], changes["default-cpu"]
    assert changes.pop("paper") == set()
    assert changes.pop("no-cache") == {"cache", "peer"}
    assert all(len(parts) == 1 for parts in changes.values())


def test_efficiency_is_the_rate_over_that_of_as_many_single_devices(capsys):
    arguments = ("--devices", "1,3", "--variants", "paper", "--json", "-")
    assert blas(*ABLATIONS, *arguments) == 0
    one, three = json.loads(capsys.readouterr().out)["rows"]
    assert one["efficiency"] == 1
    assert three["efficiency"] == pytest.approx(three["rate"] / (3 * one["rate"]))
    assert blas(*ABLATIONS, *arguments, "--topology", "makalu") == 0
    assert [row["efficiency"] for row in json.loads(capsys.readouterr().out)["rows"]] == [None, None]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sizes", "many"), "--sizes many"),
        (("--tiles", "64,"), "--tiles 64,"),
        (("--tiles", "64,0"), "a size or a tile is 0"),
        (("--devices", "1,4"), "4 devices of Everest"),
        (("--devices", "0"), "0 devices of Everest"),
        (("--routines", "dgemm,dfoo"), "there is no routine='dfoo'"),
        (("--variants", "paper,slow"), "the variant 'slow' is unknown"),
        (("--topology", "x"), "the topology 'x' is unknown"),
    ],
)
def test_what_no_bench_can_run_is_refused_before_the_first_run(capsys, monkeypatch, arguments, message):
    monkeypatch.setattr(table, "run", lambda *_, **__: pytest.fail("it ran"))
    assert blas("bench", "--sizes", "64", *arguments) == 2
    assert capsys.readouterr().err.startswith(message)


def test_an_interrupt_ends_a_bench_and_writes_nothing(tmp_path, capsys, monkeypatch):
    run, begun = table.run, []

    def interrupted(*arguments):
        if begun:
            signal.raise_signal(signal.SIGINT)
        begun.append(arguments)
        return run(*arguments)

    monkeypatch.setattr(table, "run", interrupted)
    assert blas(*ABLATIONS, "--json", str(tmp_path / "x.json"), "--plot", str(tmp_path / "x.svg")) == 130
    assert capsys.readouterr().err.endswith("stopped\n")
    assert [*tmp_path.iterdir()] == []


# --------------------------------------------------------------------------------------------------
# Machines and requests
# --------------------------------------------------------------------------------------------------


def test_the_first_devices_keep_their_links():
    two = topology_of("h200X4", 2)
    assert len(two.gpus) == len(two.inward) == len(two.outward) == 2
    assert set(two.peers) == {(0, 1), (1, 0)}
    routes = [route for one in two.shared for route in one.routes]
    assert routes
    assert all(max(route.device, route.peer) < 2 for route in routes)
    assert (Route("in", 0), Route("in", 1)) in [one.routes for one in two.shared]
    assert topology_of("everest", 2).peers == {}
    assert first(TOPOLOGIES["EVEREST"], 3) is TOPOLOGIES["EVEREST"]
    with pytest.raises(LaunchError, match="4 devices of Everest"):
        first(TOPOLOGIES["EVEREST"], 4)


def test_a_request_checks_its_flags_and_sizes():
    assert Request.of("dsymm", 8, 4, side="R").problem.k == 4
    assert Request.of("dsyrk", 8, None, 4, trans_a="C").problem.k == 4
    with pytest.raises(SchemeError, match="dsyrk has no flag diag=U"):
        Request.of("dsyrk", 8, diag="U")
    with pytest.raises(SchemeError, match="csyrk has no trans_a=C"):
        Request.of("csyrk", 8, trans_a="C")
    with pytest.raises(ShapeError):
        Request.of("dsyrk", 8, 4)


# --------------------------------------------------------------------------------------------------
# Pictures
# --------------------------------------------------------------------------------------------------


def record(kind, start, end, stream=0, device=0):
    peer = 1 - device if kind == "peer" else -1
    return Record(device, peer, stream, kind, kind, 8, start, end, 1.0)


def run_of(*records, gpus=("one", "two")):
    words = {"routine": "dgemm", "machine": "<pair>", "device": "sim", "gpus": list(gpus), "rate": 1e12}
    sizes = {"m": 2, "n": 2, "k": 2, "tile": 1, "seconds": 4.0}
    return {**words, **sizes, "timeline": json.loads(Timeline(records).to_json())}


TIMES = (
    record("in", 10.0, 11.0),
    record("routine", 11.0, 13.0),
    record("out", 13.0, 14.0, 7),
    record("peer", 10.0, 12.0, 3, 1),
)


def test_rows_are_streams_and_times_are_from_the_first_start():
    svg = to_svg([run_of(*TIMES)])
    paths = {one.get("class"): one.get("d") for one in ElementTree.fromstring(svg).iter(f"{SVG}path")}
    left = {kind: float(path[1:].split()[0]) for kind, path in paths.items()}
    assert left["in"] == left["peer"] < left["routine"] < left["out"]
    assert left["routine"] - left["in"] == pytest.approx((left["out"] - left["in"]) / 3, abs=0.1)
    tops = [path.split("h")[0].split()[1] for path in paths.values()]
    assert paths["in"].split("h")[0].split()[1] == paths["routine"].split("h")[0].split()[1]
    assert len(set(tops)) == 3
    texts = ["".join(one.itertext()) for one in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert [text for text in texts if text.startswith("stream")] == ["stream 0", "stream 1", "stream 0"]
    assert "GPU 0, one: COMPT 50.0%, COMM 50.0%, OTHER 0.0%" in texts
    assert "GPU 1, two: COMPT 0.0%, COMM 50.0%, OTHER 50.0%" in texts


def test_operations_that_touch_are_one_shape_and_others_are_not():
    touching = [record("in", float(i), i + 1.0) for i in range(50)]
    assert shapes(to_svg([run_of(*touching)]), "in") == 1
    apart = [record("in", float(i), i + 0.5) for i in range(50)]
    assert shapes(to_svg([run_of(*apart)]), "in") == 50


def test_an_empty_timeline_and_strange_names_are_drawn():
    svg = to_svg([run_of()])
    assert "simulated &lt;pair&gt;" in svg
    ElementTree.fromstring(svg)
    ElementTree.fromstring(to_svg([]))


def test_a_trace_of_gpus_checks_the_result(gpus, capsys):
    found = gpus(2)
    arguments = ("trace", "dgemm", "96", "--tile", "24", "--device", "cuda", "--values", "--json", "-")
    assert blas(*arguments) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["device"], len(facts["gpus"]), facts["values"]) == ("cuda", 2, True)
    kinds = {one["kind"] for one in facts["timeline"]}
    assert kinds == {"in", "out", "peer", "routine"}
    products = [one for one in facts["timeline"] if one["name"] == "dgemm"]
    assert sum(one["operations"] for one in products) == 2 * 96**3  # of the second call alone
    assert found.is_clean()


@pytest.mark.parametrize("command", [("trace", "dgemm", "96"), ("bench", "--sizes", "96")])
def test_gpus_that_are_not_there_are_an_error(monkeypatch, capsys, command):
    def none(*_, **__):
        raise NoGpuError("CUDA cannot start\ncheck nvidia-smi")

    monkeypatch.setattr(gpu, "CudaMachine", none)
    assert blas(*command, "--device", "cuda", "--json", "-") == 2
    assert "give --device sim" in capsys.readouterr().err


def test_marks_are_numbered_and_noted():
    svg = to_svg([run_of(*TIMES)], [Mark(12.0, 0, 0, "here"), Mark(14.0, 0, 7, "there")])
    root = ElementTree.fromstring(svg)
    across = [float(one.get("cx")) for one in root.iter(f"{SVG}circle")]
    assert across[1] - across[0] == pytest.approx(800 / 2, abs=0.1)
    assert root.find(f"{SVG}desc").text == "1: here 2: there"


def test_the_steps_of_a_call_are_found():
    records = [
        record("in", 0, 1),
        record("routine", 1, 3),
        record("out", 3, 4),
        record("in", 0, 2, 5, 1),
        record("routine", 4, 5, 5, 1),
        record("out", 5, 6, 5, 1),
        record("peer", 6, 7, 5, 1),
        record("routine", 7, 8, 5, 1),
        record("out", 8, 9, 5, 1),
    ]
    assert [(mark.seconds, mark.device, mark.stream) for mark in marks_of(records)] == [
        (1, 0, 0),
        (1, 0, 0),
        (4, 0, 0),
        (7, 1, 5),
        (9, 1, 5),
    ]
    assert marks_of([]) == []


def test_a_plot_has_a_panel_for_each_routine_and_names_what_differs():
    rows = [
        {"routine": routine, "variant": "paper", "devices": devices, "tile": 256, "n": n, "rate": n * 1e9}
        for routine in ("dgemm", "dsyrk")
        for devices in (1, 2)
        for n in (512, 1024)
    ]
    plot = draw_blas.plot_of({"machine": "Everest", "device": "sim", "rows": rows})
    assert {name: list(lines) for name, lines in plot.panels.items()} == {
        "dgemm": ["1 GPUs", "2 GPUs"],
        "dsyrk": ["1 GPUs", "2 GPUs"],
    }
    assert plot.across == "N"
    tiles = [row | {"tile": row["n"], "n": 4096} for row in rows]
    plot = draw_blas.plot_of({"machine": "Everest", "device": "sim", "rows": tiles})
    assert (plot.across, plot.panels["dgemm"]["1 GPUs"]) == ("tile", [(512, 512e9), (1024, 1024e9)])


def test_a_curve_rises_with_its_values():
    plot = curves.Plot("rates", {"x": {"a": [(2, 4.0), (1, 1.0)], "b": [(2, 2.0)]}}, "N", "FLOP/s")
    root = ElementTree.fromstring(curves.to_svg(plot))
    lines = [
        [*map(float, point.split(","))]
        for one in root.iter(f"{SVG}polyline")
        for point in one.get("points").split()
    ]
    (x1, y1), (x2, y2), (x3, y3) = lines
    assert x1 < x2 == x3
    assert y2 < y3 < y1
    assert len([*root.iter(f"{SVG}circle")]) == 1
    ElementTree.fromstring(curves.to_svg(plot._replace(panels={})))


@pytest.mark.parametrize(("least", "step"), [(1.0, 1.0), (1.01, 2.0), (4e-6, 5e-6), (0.6, 1.0)])
def test_steps_of_an_axis_are_round(least, step):
    assert nice_step(least) == pytest.approx(step)


def test_allocations_cost_what_is_said(capsys):
    call = ("bench", "--sizes", "2048", "--tiles", "512", "--variants", "paper,native", "--json", "-")
    found = {}
    for allocation in ("0", "0.002"):
        assert main(["blas", *call, "--allocation", allocation]) == 0
        data = json.loads(capsys.readouterr().out)
        assert data.get("allocation", 0) == float(allocation)
        found[allocation] = {row["variant"]: row["seconds"] for row in data["rows"]}
    assert found["0"]["native"] == pytest.approx(found["0"]["paper"])
    assert found["0.002"]["paper"] == pytest.approx(found["0"]["paper"] + 0.002)
    assert found["0.002"]["native"] > 1.2 * found["0.002"]["paper"]


def test_costs_of_allocations_are_of_simulated_machines(capsys):
    assert main(["blas", "bench", "--device", "cuda", "--allocation", "0.001"]) == 2
    assert "--allocation on GPUs" in capsys.readouterr().err
    assert main(["blas", "bench", "--allocation", "-1"]) == 2
    assert "allocate_seconds is -1" in capsys.readouterr().err


def test_a_trace_and_a_bench_show_the_cpu(capsys, tmp_path):
    out = tmp_path / "life.svg"
    arguments = ("dgemm", "4096", "--topology", "EVEREST", "--tile", "1024", "--variant", "cpu")
    assert blas("trace", *arguments, "--out", str(out)) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("CPU: ")]
    assert line.startswith("CPU: 3 tasks (3 stolen), 18.8% of the operations, ")
    assert "CPU: COMPT " in out.read_text()
    assert blas("bench", "--sizes", "4096", "--variants", "paper,cpu") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-1].split()[:4] == ["dgemm", "paper", "4096", "3"]
    assert shown[-1].split()[-2:] == ["3", "18.8%"]
