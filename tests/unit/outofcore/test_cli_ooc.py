"""`simwarp ooc`: plans and timelines of out-of-core convolutions, and the paper's figures on a P100."""

import itertools
import json
from xml.etree import ElementTree

import pytest

import simwarp
from gpu import outofcore
from gpu.outofcore import calibration
from simwarp.cli import main
from simwarp.cli.ooc import _bytes
from simwarp.lab.machines import host
from simwarp.lab.outofcore import managed, paper, report
from simwarp.machine import H100, P100
from support.fake_gpus import gpus

__all__ = ["gpus"]

pytest.importorskip("typer", reason="the command line needs simwarp[cli]")

SVG = "{http://www.w3.org/2000/svg}"
SMALL = ("conv2d", "8,16,28,28", "--filters", "32,3,3", "--budget", "600kB")


def ooc(*arguments):
    return main(["ooc", *arguments])


def expected(**call):
    return outofcore.explain(
        "conv2d", (8, 16, 28, 28), (32, 16, 3, 3), device=simwarp.Machine(), memory_budget=600_000, **call
    )


# ---------------------------------------------------------------------------------------------- explain


def test_explain_prints_the_plan(capsys):
    assert ooc("explain", *SMALL) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{expected()}\n")
    assert "TFLOP/s on H200; by the formula" in shown


def test_the_json_of_explain_has_the_plan(capsys):
    assert ooc("explain", *SMALL, "--planner", "steepest", "--depth", "2", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    plan = expected(options=outofcore.Options(planner="steepest", depth=2))
    assert found["pieces"] == vars(plan.pieces)
    assert found["bytes"] == {"in": plan.bytes_in, "out": plan.bytes_out}
    assert (found["formula_seconds"], found["predicted"]["seconds"]) == (plan.seconds, plan.timeline.seconds)
    assert found["budget"] == 600_000


def test_explain_takes_geometry_layout_and_pieces(capsys):
    geometry = ("--stride", "2,1", "--padding", "1,0,2,2", "--dilation", "1,2", "--groups", "4")
    fused = ("--layout", "NHWC", "--bias", "--activation", "relu", "--pieces", "4,7,16,8")
    assert ooc("explain", *SMALL[:-2], *geometry, *fused, "--topology", "p100", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    plan = outofcore.explain(
        "conv2d",
        (8, 28, 28, 16),
        (32, 3, 3, 4),
        device=simwarp.Machine(P100),
        bias=True,
        activation="relu",
        stride=(2, 1),
        padding=((1, 0), (2, 2)),
        dilation=(1, 2),
        groups=4,
        layout="NHWC",
        pieces=outofcore.Pieces(4, 7, 16, 8),
    )
    assert found["y"] == [*plan.problem.shape("y")]
    assert found["predicted"]["seconds"] == plan.timeline.seconds
    assert (found["pieces"], found["machine"]) == (vars(plan.pieces), "P100")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("conv3d", *SMALL[1:]), "there is no ROUTINE conv3d"),
        (("conv2d", "8,16,28", *SMALL[2:]), "N,C,H,W 8,16,28\n4 integers between commas"),
        ((*SMALL[:3], "32,3"), "--filters 32,3\n3 integers"),
        ((*SMALL, "--stride", "1,2,3"), "--stride 1,2,3\n1 or 2 integers"),
        ((*SMALL, "--stride", "0"), "--stride 0\nan integer from 1 on"),
        ((*SMALL, "--padding", "1,2"), "--padding 1,2\n4 integers"),
        ((*SMALL, "--layout", "CHWN"), "there is no --layout CHWN"),
        ((*SMALL, "--groups", "5"), "the images have 16 channels, the 32 filters have 3, --groups 5"),
        ((*SMALL, "--groups", "0"), "the images have 16 channels, the 32 filters have 16, --groups 0"),
        ((*SMALL, "--planner", "best"), "there is no --planner best"),
        ((*SMALL, "--depth", "0"), "depth is 0"),
        ((*SMALL, "--pieces", "1,2"), "--pieces 1,2\n4 integers"),
        ((*SMALL, "--pieces", "0,1,1,1"), "pieces of 0 images"),
        ((*SMALL[:4], "--budget", "much"), "--budget much\na number of bytes"),
        ((*SMALL[:4], "--budget", "1kB"), "conv2d with a budget of 1000 bytes"),
        ((*SMALL, "--topology", "PLUTO"), "the topology 'PLUTO' is unknown"),
    ],
)
@pytest.mark.parametrize("command", ["explain", "trace"])
def test_wrong_requests_are_named(capsys, command, arguments, message):
    assert ooc(command, *arguments) == 2
    found = capsys.readouterr()
    assert found.err.startswith(message)
    assert len(found.err.splitlines()) == 3
    assert found.out == ""


def test_a_budget_that_is_too_small_names_the_option(capsys):
    call = ("explain", "conv2d", "2,3,6,6", "--filters", "4,3,3", "--budget")
    assert ooc(*call, "64") == 2
    least = int(capsys.readouterr().err.split("pass --budget ")[1].split()[0])
    assert ooc(*call, str(least)) == 0


@pytest.mark.parametrize(
    ("text", "nbytes"), [("4096", 4096), ("1.5GB", 1_500_000_000), ("2 KiB", 2048), ("3TB", 3 * 10**12)]
)
def test_bytes_have_units(text, nbytes):
    assert _bytes(text) == nbytes


# ---------------------------------------------------------------------------------------------- trace


def test_trace_shows_the_model_beside_the_machine(capsys, tmp_path):
    picture, data = tmp_path / "t.svg", tmp_path / "t.json"
    assert ooc("trace", *SMALL, "--topology", "H100", "--out", str(picture), "--json", str(data)) == 0
    shown = capsys.readouterr()
    assert [line.split()[0] for line in shown.out.splitlines()[2:]] == ["predicted", "measured", "model"]
    assert "model error 0.00%" in shown.out
    assert shown.err.splitlines() == [f"wrote {data}", f"wrote {picture}"]
    found = json.loads(data.read_text())
    machine = simwarp.Machine(H100, values=False)
    report.ran(
        report.Request("conv2d", (8, 16, 28, 28), (32, 16, 3, 3), {}, {"memory_budget": 600_000}).plan(
            machine
        ),
        machine,
    )
    assert found["measured"]["timeline"] == json.loads(machine.timeline.to_json())
    svg = ElementTree.fromstring(picture.read_text())
    titles = [text.text for text in svg.iter(f"{SVG}text") if text.get("class") == "title"]
    assert [title.split(": ")[0] for title in titles] == [
        "conv2d, x 8 × 16 × 28 × 28, w 32 × 16 × 3 × 3, the model of H100",
        "conv2d, x 8 × 16 × 28 × 28, w 32 × 16 × 3 × 3, simulated H100",
    ]
    kinds = {path.get("class") for path in svg.iter(f"{SVG}path")}
    assert {"in", "out", "routine"} <= kinds


def test_trace_runs_on_a_gpu(capsys, gpus, monkeypatch, tmp_path):
    monkeypatch.setenv("SIMWARP_CACHE", str(tmp_path))
    monkeypatch.setattr(calibration, "COPY_BYTES", 1 << 14)
    found = gpus()
    call = ("conv2d", "4,3,8,8", "--filters", "4,3,3", "--pieces", "1,8,3,4", "--device", "cuda")
    assert ooc("trace", *call, "--transforms", "--json", "-") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["device"] == "cuda"
    kinds = [record["kind"] for record in facts["measured"]["timeline"]]
    assert (kinds.count("in"), kinds.count("routine"), kinds.count("out")) == (5, 4, 4)
    assert {engine for engine, _ in found.cudnn.executed} == {6, 8}
    assert found.is_clean()
    assert ooc("trace", *call) == 0
    assert "A device that is not there: " in capsys.readouterr().out


def test_the_json_of_trace_is_printed_alone(capsys):
    assert ooc("trace", *SMALL, "--json", "-") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model_error"] == pytest.approx(0, abs=1e-9)
    assert len(found["predicted"]["timeline"]) == len(found["measured"]["timeline"]) > 10


def test_more_bytes_than_addresses_are_refused(capsys):
    sizes = ("100000000,64,1024,1024", "--filters", "64,3,3")
    assert ooc("trace", "conv2d", *sizes, "--pieces", "100,1024,64,64") == 2
    assert "there is no memory for them" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------- filters


@pytest.mark.parametrize(("topology", "step"), [("P100", 32), ("H200", 64), ("H100", 1)])
def test_filters_are_computed_in_the_steps_of_the_machine(capsys, topology, step):
    assert ooc("filters", "2,16,28,28", "--topology", topology, "--json", "-") == 0
    found = json.loads(capsys.readouterr().out)
    times = {row["filters"]: row["seconds"] for row in found["rows"]}
    assert (found["step"], found["images"], len(times)) == (step, [2, 16, 28, 28], 39)
    assert times[96] > times[64]
    assert times[72] == pytest.approx(times[96 if step == 32 else 128]) or step == 1


def test_filters_are_printed(capsys, tmp_path):
    data = tmp_path / "filters.json"
    assert ooc("filters", "1,8,8,8", "--counts", "32,33,64", "--json", str(data)) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("1 × 8 × 8 × 8 on P100, filters of 3 × 3\n")
    assert "computed in steps of 32 filters" in shown
    assert [row["filters"] for row in json.loads(data.read_text())["rows"]] == [32, 33, 64]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("1,2,3",), "N,C,H,W 1,2,3"), (("--counts", "8,x"), "--counts 8,x"), (("--counts", "0"), "--counts 0")],
)
def test_wrong_numbers_of_filters_are_named(capsys, arguments, message):
    assert ooc("filters", *arguments) == 2
    found = capsys.readouterr().err
    assert found.startswith(message)
    assert len(found.splitlines()) == 3


# ------------------------------------------------------------------------------------ the paper's figures


def test_the_layers_of_vgg16_have_their_sizes():
    assert [layer.name for layer in paper.VGG16] == [
        *("conv1_1", "conv1_2", "conv2_1", "conv2_2", "conv3_1", "conv3_2", "conv3_3"),
        *("conv4_1", "conv4_2", "conv4_3", "conv5_1", "conv5_2", "conv5_3"),
    ]
    operations = sum(layer.request(1).plan(simwarp.Machine()).problem.operations for layer in paper.VGG16)
    assert operations == pytest.approx(30.7e9, rel=0.01)
    assert paper.VGG16[7] == paper.Layer("conv4_1", 256, 512, 28)


def test_maps_need_more_than_sixty_gigabytes_and_fit_below_a_batch_of_256():
    assert paper.map_bytes(1024) > 60e9
    room = P100.gpus[0].memory_bytes - paper.RESERVED
    assert paper.map_bytes(192) < room < paper.map_bytes(256)


def test_copies_in_core_take_no_time():
    plan = report.Request("conv2d", (1, 64, 32, 32), (40, 64, 3, 3)).plan(host(P100).machine)
    assert paper.in_core(plan) == pytest.approx(8e-6 + 2 * 64 * 64 * 9 * 1024 / 7.629e12)


def check_table_4(rows):
    for case in {row["case"] for row in rows}:
        rates = {row["planner"]: row["rate"] for row in rows if row["case"] == case}
        assert rates["steepest"] <= rates["greedy"] <= rates["exhaustive"]
        printed = {row["planner"]: row["printed"] for row in rows if row["case"] == case}
        assert rates["exhaustive"] == pytest.approx(printed["exhaustive"], rel=0.08)
    assert all(abs(row["model_error"]) < 1e-9 for row in rows)


@pytest.mark.slow
def test_the_second_problem_of_table_4_is_near_the_printed_one():
    check_table_4([run() for run in paper.FIGURES["table4"][3:6]])


@pytest.mark.gate
def test_more_channels_hide_the_copies_and_exceed_the_memory():
    few, many = (paper.FIGURES["figure9"][index]() for index in (0, 4))
    assert few["out_of_core"] < 0.4 * few["in_core"]
    assert (many["channels"], many["in_core"]) == (512, pytest.approx(7.629e12, rel=1e-3))
    assert many["out_of_core"] > 0.97 * many["in_core"]
    assert [paper.CHANNELS[index] for index in (-2, -1)] == [2048, 2560]


def test_bias_and_activation_take_more_than_half_of_three_calls():
    row = paper.FIGURES["figure10"][0]()
    times = row["busy"]
    three = times["convolution"] + times["add bias"] + times["activation"]
    assert row["share"]["fused"] == pytest.approx(times["fused"] / three)
    assert row["share"]["layers"] + row["share"]["fused"] == pytest.approx(1, abs=0.001)
    assert 0.3 < row["share"]["fused"] < 0.42
    copies = 2 * 4 * 64 * 1024**2 / 19e9
    assert copies < times["activation"] < 1.1 * copies


def check_figure_12(rows, batches):
    beyond = [row for row in rows if row["rate"] == paper.VGG_RATE and row["in_core"] is None]
    assert [row["batch"] for row in beyond] == batches
    assert all(0.09 < row["overhead"] < 0.13 for row in beyond)


@pytest.mark.gate
def test_a_network_beyond_the_memory_costs_a_tenth_more():
    check_figure_12([paper.FIGURES["figure12"][index]() for index in (0, 4)], [256])


def check_figure_13(rows):
    busy = {row["layer"]: row["busy"] for row in rows}
    assert busy["conv1_2 (64 × 64)"]["in"] > 2 * busy["conv1_2 (64 × 64)"]["routine"]
    assert busy["conv5_3 (512 × 512)"]["routine"] > 2 * busy["conv5_3 (512 × 512)"]["in"]


def test_copies_bound_the_first_layers_and_sums_the_last():
    check_figure_13([paper.FIGURES["figure13"][index]() for index in (1, -1)])


def test_one_layer_of_vgg16_exceeds_the_memory():
    """Figure 2: conv1_2 needs more than 24 GB of 1,024 images, and the P100 has 16."""
    rows = {row["layer"]: row for row in (run() for run in paper.FIGURES["table2"])}
    assert list(rows) == [layer.name for layer in paper.VGG16]
    assert 24 << 30 < rows["conv1_2"]["bytes"] < 25 << 30
    assert [name for name, row in rows.items() if row["exceeds"]] == ["conv1_2"]
    sums = sum(row["sizes"]["y"] for row in rows.values())
    pooled = sum(
        rows[name]["sizes"]["y"] // 4 for name in ("conv1_2", "conv2_2", "conv3_3", "conv4_3", "conv5_3")
    )
    assert rows["conv1_1"]["sizes"]["x"] + sums + pooled == paper.map_bytes(1024)


def rival(size, budget=None, channels=64):
    machine = host(P100).machine
    plan = report.Request("conv2d", (1, channels, *size), (channels, channels, 3, 3)).plan(machine)
    return managed.Rival(plan, budget or machine.budget(0))


def test_the_time_of_figure_6_rises_at_each_32_filters():
    rows = {row["filters"]: row["seconds"] for row in (run() for run in paper.FIGURES["figure6"])}
    counts = sorted(rows)
    assert (counts[0], counts[-1]) == (8, 1024)
    for before, after in itertools.pairwise(counts):
        assert (rows[after] > rows[before]) == (after > -(-before // 32) * 32), after
    assert 0.055 < rows[1024] < 0.065


def test_managed_memory_takes_the_times_of_its_migrations():
    """By hand: of 512 × 512, each map is 32 blocks of 2 MiB; a block comes by 6 faults of 45 µs."""
    nbytes, routine = 32 * 2**21, 8e-6 + 2 * 64 * 64 * 9 * 512**2 / 7.629e12
    faults, prefetch = rival((512, 512)), rival((512, 512))
    assert faults.faults() == pytest.approx(3 * (32 * 6 * 45e-6 + nbytes / 12e9) + routine)
    assert prefetch.prefetches() == pytest.approx(3 * (45e-6 + nbytes / 12e9) + routine)
    for one in (faults, prefetch):
        assert (one.machine.timeline.nbytes("in"), one.machine.timeline.nbytes("out")) == (2 * nbytes, nbytes)


def test_pieces_of_managed_memory_move_each_page_once_and_take_more_calls():
    one = rival((512, 512))
    seconds, records = one.prefetches_pieces(), [*one.machine.timeline]
    assert one.machine.timeline.nbytes("in") == 2 * 32 * 2**21
    assert one.machine.timeline.nbytes("out") >= 32 * 2**21
    assert sum(record.kind == "in" for record in records) > 64 * 2
    assert seconds > rival((512, 512)).prefetches()
    operations = sum(record.operations for record in records)
    assert operations == 2 * 64 * 64 * 9 * 512**2


def test_maps_beyond_the_device_leave_it_again():
    nbytes = 8 * 2**21
    full = rival((256, 256), budget=12 * 2**21 + 4 * 8 * 8 * 64 * 9)
    full.prefetches()
    moved = full.machine.timeline
    assert moved.nbytes("in") > 2 * nbytes
    assert moved.nbytes("out") > nbytes


def check_figure_14(rows):
    for row in rows:
        rates, printed = row["rates"], row["printed_least_and_most"]
        low, high = printed["managed"]
        assert low < rates["managed"] < high
        assert max(rate for name, rate in rates.items() if "managed" in name) < rates["ours"]
        assert rates["managed, prefetch, pieces"] < rates["managed, prefetch"]


def test_managed_memory_is_slower_than_pieces_that_overlap():
    check_figure_14([paper.FIGURES["figure14"][index]() for index in (0, 2)])
    assert paper.SIZES_14[:3] == ((512, 512), (1024, 512), (1024, 1024))
    assert paper.SIZES_14[-1] == (8192, 4096)


@pytest.mark.gate
def test_all_figures_are_remade(capsys):
    assert ooc("bench", "--json", "-") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["machine"], len(found["rows"])) == ("P100", sum(map(len, paper.FIGURES.values())))
    rows = {
        figure: [row for row in found["rows"] if row["figure"] == figure]
        for figure in ("table 4", "figure 9", "figure 10", "figure 12", "figure 13", "figure 14")
    }
    check_table_4(rows["table 4"])
    assert [row["channels"] for row in rows["figure 9"] if row["in_core"] is None] == [2048, 2560]
    check_figure_12(rows["figure 12"], [256, 512, 1024])
    check_figure_13(rows["figure 13"])
    check_figure_14(rows["figure 14"][:-1])
    assert "in core" not in rows["figure 14"][-1]["rates"]


def test_unknown_figures_are_refused_before_any_run(capsys):
    assert ooc("bench", "--figures", "table4,figure99") == 2
    assert capsys.readouterr().err.startswith("the figure 'figure99' is unknown\n")


@pytest.mark.slow
def test_bench_prints_a_line_for_each_row(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(paper.FIGURES, "table4", paper.FIGURES["table4"][3:4])
    monkeypatch.setitem(paper.FIGURES, "figure13", paper.FIGURES["figure13"][-1:])
    data = tmp_path / "p100.json"
    assert ooc("bench", "--figures", "table4,figure13", "--json", str(data)) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("table 4, n=1, c=256, 1024×1024, greedy, rate 7.5")
    assert first.endswith("printed 6.79 TFLOP/s")
    assert last.startswith("figure 13, conv5_3 (512 × 512), in ")
    assert [row["figure"] for row in json.loads(data.read_text())["rows"]] == ["table 4", "figure 13"]
