"""`simwarp net study`: what is measured, on fakes of known times and the simulator, and its picture."""

import json
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

import gpu.bnn
import gpu.bnn.network
import simwarp
from gpu.bnn.residuals import is_sum
from reference import FormatError, NoGpuError, ShapeError, pack
from reference.bnn import Dense, Network, Pixels, Threshold, mlp, resnet14, save
from simwarp.cli import main
from simwarp.draw.study import to_svg
from simwarp.lab import network_studies as studies
from support.bnn_networks import SMALL, network

pytest.importorskip("typer", reason="the command line needs simwarp[cli]")
pytest.importorskip("cuda.bindings", reason="compiling needs simwarp[compile]")

RNG = np.random.default_rng(3)


def small(name="small"):
    """Integers into bits, and bits into two sums."""
    weights = (pack(RNG.standard_normal(shape), layout="row") for shape in ((6, 40), (40, 2)))
    first, last = map(Dense, weights)
    rule = Threshold(np.zeros(40, np.int32), np.zeros(40, np.bool_))
    pixels = Pixels((6,), np.ones(6, np.int32), np.full(6, -128, np.int32))
    logits = np.ones(2, np.float32), np.zeros(2, np.float32)
    return Network(name, pixels, (first, rule, last), *logits)


def silent(done, total):
    assert 0 <= done < total


class Stopwatch(studies.Timer):
    """Gives times in turn, and runs nothing."""

    def __init__(self, device, *seconds):
        super().__init__(device)
        self.seconds, self.together = iter(seconds), []

    def cost(self, work, together=1):
        self.together.append(together)
        return {"seconds": next(self.seconds)}

    def times(self, work):
        seconds = next(self.seconds)
        return seconds, 2 * seconds


# --------------------------------------------------------------------------------------------------
# The clock
# --------------------------------------------------------------------------------------------------


class Clocked:
    """A device whose launches take 3 µs, in a burst's first two runs 50 µs; a graph takes 1 µs more."""

    def __init__(self):
        self.now, self.run, self.graph = 0.0, 0, None

    def work(self):
        if self.graph is None:
            self.now += 1.0
        else:
            self.graph.count += 1

    @contextmanager
    def capture(self):
        self.graph = graph = SimpleNamespace(count=0, launch=lambda: self._launch(graph))
        yield graph
        self.graph = None

    def _launch(self, graph):
        self.now += 1e-6 + graph.count * (50e-6 if self.run < 2 else 3e-6)
        self.run += 1

    def event(self):
        event = SimpleNamespace(at=None, synchronize=lambda: None)
        event.record = lambda: setattr(event, "at", self.now)
        event.seconds_since = lambda earlier: event.at - earlier.at
        return event


def test_a_burst_idles_and_leaves_out_its_first_runs(monkeypatch):
    device, idle = Clocked(), []

    def sleep(seconds):
        idle.append(seconds)
        device.run = 0

    monkeypatch.setattr(studies.time, "sleep", sleep)
    timer = studies.Timer(device)
    assert timer.cost(device.work, together=10)["seconds"] == pytest.approx(3.1e-6)
    about = timer.about()
    assert idle == [about["idle_seconds"]] * about["bursts"]
    assert device.run == about["runs_not_counted"] + about["runs_timed"] == 7


def test_a_caller_waits_longer_than_the_device_works(monkeypatch):
    device, now = Clocked(), iter(range(100))
    monkeypatch.setattr(studies.time, "sleep", lambda _: setattr(device, "run", 0))
    monkeypatch.setattr(studies.time, "perf_counter", lambda: float(next(now)))
    with device.capture() as graph:
        device.work()
    on_device, waited = studies.Timer(device).times(graph.launch)
    assert on_device == pytest.approx(4e-6)
    assert 1 <= waited <= 3  # a tick before, and one behind the synchronisation


# --------------------------------------------------------------------------------------------------
# The studies
# --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_breakdown_has_a_row_for_each_launch_and_their_shares():
    meter = Stopwatch(simwarp.Device((7, 5)), 3e-6, 4e-6, 1e-6, 6e-6)
    found = studies.breakdown(small(), meter, 2, silent)
    assert [(row["path"], row["layers"], row["share"]) for row in found["rows"]] == [
        ("1", ["Pixels", "Dense", "Threshold"], pytest.approx(0.375)),
        ("2", ["Dense"], pytest.approx(0.5)),
        ("answer", [], pytest.approx(0.125)),
    ]
    assert (found["sum"], found["together"]) == (pytest.approx(8e-6), 6e-6)
    assert meter.together == [studies.TOGETHER] * 3 + [1]
    assert found["measured"]["bursts"] == studies.BURSTS
    json.dumps(found)


@pytest.mark.slow
def test_on_the_simulator_launches_add_up_to_the_network():
    device = simwarp.Device()
    found = studies.breakdown(small(), studies.Counter(device), 1, silent)
    assert found["unit"] == "instructions"
    assert found["sum"] == found["together"] > 1000
    assert all(row["launches"] >= 1 for row in found["rows"])


def test_steps_without_a_launch_have_no_row():
    device = simwarp.Device()
    prepared = gpu.bnn.prepare(mlp(width=64), device=device)
    found = prepared.launches(device.upload(np.zeros((1, 28, 28, 1), np.uint8)))
    for step, launch, given in found:
        before = device.launches
        launch(*given)
        assert device.launches > before, step.paths


def test_a_whole_network_is_one_launch():
    device = simwarp.Device()
    prepared = gpu.bnn.prepare(small(), way="whole", device=device)
    images = device.upload(np.zeros((1, 6), np.uint8))
    ((step, launch, given),) = prepared.launches(images)
    assert (step.paths, launch, given) == (("whole",), prepared.whole.run, (images,))


def test_sync_takes_the_cost_of_a_barrier_from_runs_without():
    network = small()
    meter = Stopwatch(simwarp.Device(), *(9e-6, 8e-6, 2e-6), *(9e-6, 9e-6, 6e-6))
    found = studies.sync(network, meter, 2, silent)
    assert (found["steps"], found["barriers"]) == (2, 3)
    assert [row["images"] for row in found["rows"]] == [1, 2]
    assert found["rows"][0]["barrier"] == pytest.approx(2e-6)
    assert found["rows"][1]["barrier"] == pytest.approx(1e-6)
    assert (found["rows"][0]["layers"], found["rows"][0]["whole"]) == (9e-6, 8e-6)


def test_without_waiting_no_step_waits():
    whole = gpu.bnn.prepare(small(), way="whole", device=simwarp.Device()).whole
    tables = [whole._table(1, "uint8", keep=False, waits=waits) for waits in (True, False)]
    assert [table.steps.download()[:, 1].sum() for table in tables] == [whole.barriers, 0]
    assert whole.barriers > 0


@pytest.mark.gate
def test_sync_on_the_simulator_counts_both_ways_and_races_nowhere():
    found = studies.sync(small(), studies.Counter(simwarp.Device()), 1, silent)
    (row,) = found["rows"]
    assert set(row) == {"images", "layers", "whole"}
    assert min(row.values()) >= 1


def test_residuals_carry_integers_without_them_there_are_none():
    kinds = {kind: studies.residual_bytes(resnet14(size=8, width=16, shortcut=kind)) for kind in ("A", None)}
    assert kinds[None] == 0
    assert kinds["A"] > 8 * 8 * 8 * 2


def test_shortcut_has_a_row_for_each():
    networks = {name: small() for name in ("A", "None")}
    meter = Stopwatch(simwarp.Device(), *(2e-6, 1e-6), *(9e-6, 8e-6, 7e-6, 5e-6))
    found = studies.shortcut(networks, meter, 4, silent)
    assert [(row["shortcut"], row["seconds"]) for row in found["rows"]] == [
        ("A", 2e-6),
        ("None", 1e-6),
        ("A, one launch", 9e-6),
        ("A, save only", 8e-6),
        ("A, fetch only", 7e-6),
        ("None, one launch", 5e-6),
    ]


def test_residuals_are_only_saved_or_only_fetched():
    """The rows of the kernel's table: what is left out has no place; bytes are those of what is left."""
    device = simwarp.Device(multiprocessors=1)
    schemes = studies.KERNELS["FSB"]
    whole = gpu.bnn.prepare(resnet14(size=8, width=16), way="whole", schemes=schemes, device=device).whole
    tables = {kind: whole._table(1, "uint8", False, True, kind) for kind in ("both", "save", "fetch")}
    rows = {kind: table.steps.download().view(whole.form.step)[:, 0] for kind, table in tables.items()}
    moved = {
        kind: [int((each[field] != 2**32 - 1).sum()) for field in ("numbers", "addend")]
        for kind, each in rows.items()
    }
    (saved, fetched), alone = moved["both"], moved["fetch"][0]
    assert (moved["save"], moved["fetch"]) == ([saved, 0], [alone, fetched])
    assert fetched == 6  # two blocks of each size
    assert saved - alone == 6  # the sums of the first layer and of all blocks but the last, which has no bits
    both, save, fetch = (whole.residual_bytes(kind) for kind in ("both", "save", "fetch"))
    assert both == save + fetch
    assert 0 < save < both


@pytest.mark.slow
def test_what_residuals_cost_is_counted_on_the_simulator():
    net = network(*SMALL["residual"])
    device = simwarp.Device((9, 0), multiprocessors=2)
    whole = gpu.bnn.prepare(net, way="whole", schemes=studies.KERNELS["FSB"], device=device).whole
    given = device.upload(np.zeros((2, *net.input.shape), np.uint8))
    counter = studies.Counter(device)
    both, save, fetch = (
        counter.cost(partial(whole.run, given, residuals=kind))["instructions"]
        for kind in ("both", "save", "fetch")
    )
    assert max(save, fetch) < both


def test_blocks_go_up_to_those_that_have_tasks():
    device = simwarp.Device(multiprocessors=2)
    meter = Stopwatch(device, *[1e-6] * 99)
    rows = studies.blocks(small(), meter, 64, silent)["rows"]
    assert [row["kernel"] for row in rows if row["blocks"] == 1] == list(studies.KERNELS)
    blocks = {name: [row["blocks"] for row in rows if row["kernel"] == name] for name in studies.KERNELS}
    assert blocks["the chip's"] == [1, 2, 4]  # of 256 threads: two for each multiprocessor
    assert blocks["SBNN-32"] == [1, 2, 4, 8, 16, 32]  # of a warp
    assert {row["threads"] for row in rows if row["kernel"].startswith("SBNN")} == {32}
    assert len(bars(parsed({"study": "blocks", "rows": rows}))) == len(rows)


@pytest.mark.gate
def test_blocks_on_the_simulator_are_one_launch_each():
    meter = studies.Counter(simwarp.Device((7, 5), multiprocessors=2))
    rows = studies.blocks(small(), meter, 1, silent)["rows"]
    assert {row["launches"] for row in rows} == {1}
    assert min(row["instructions"] for row in rows) > 100


def test_batches_end_where_32_bits_do(monkeypatch):
    monkeypatch.setattr(gpu.bnn.network, "LARGEST", 40 * 3)
    found = studies.batch(small(), Stopwatch(simwarp.Device(), 1e-6, 2e-6, 9.0), 8, silent)
    assert [(row["images"], row["waited"]) for row in found["rows"]] == [(1, 2e-6), (2, 4e-6)]
    assert found["rows"][1]["rate"] == pytest.approx(0.5e6)
    assert found["ended"] == "4 images: at most 3 of this network run together"


def test_batches_end_where_memory_does(monkeypatch):
    class MemoryError(Exception):
        """As PyCUDA's, which is not Python's."""

    def run(images):
        if images.shape[0] > 2:
            raise MemoryError("cuMemAlloc failed: out of memory")

    monkeypatch.setattr(gpu.bnn, "prepare", lambda *_, **__: SimpleNamespace(run=run))
    meter = Stopwatch(simwarp.Device(), *[1e-6] * 9)
    found = studies.batch(small(), meter, 3, silent)
    assert [row["images"] for row in found["rows"]] == [1, 2]
    assert found["ended"] == "3 images: there is no memory for them"


def test_too_many_images_for_memory_are_refused(monkeypatch):
    def prepare(*_, **__):
        raise RuntimeError("a graph of kernels: launch failed: CUDA_ERROR_OUT_OF_MEMORY")

    monkeypatch.setattr(gpu.bnn, "prepare", prepare)
    with pytest.raises(ShapeError, match=r"^8 images: there is no memory for them\ngive fewer by --images$"):
        studies.breakdown(small(), Stopwatch(simwarp.Device()), 8, silent)


@pytest.mark.slow
def test_scheme_says_which_layer_refuses_what():
    found = studies.scheme(small(), studies.Counter(simwarp.Device((8, 0))), 1, silent)
    rows = {row["scheme"]: row for row in found["rows"]}
    assert {row["path"] for row in found["rows"]} == {"2"}  # the other layer takes integers
    assert {name for name, row in rows.items() if "refused" in row} == {"wgmma"}
    assert rows["wgmma"]["refused"] == (
        "layer 2 (Dense): scheme='wgmma' on sm_80; its instructions are those of sm_90a alone"
    )
    assert rows["auto"]["instructions"] in {
        row["instructions"] for name, row in rows.items() if name != "auto"
    }


@pytest.mark.gate
def test_scheme_measures_convolutions_without_the_sums_that_are_joined_to_them(monkeypatch):
    monkeypatch.setattr(studies, "CONVOLUTIONS", ("bconv32", "wgmma"))
    monkeypatch.setattr(studies, "PRODUCTS", ())
    network, device = resnet14(size=8, width=8), simwarp.Device()
    assert any(map(is_sum, (step for step, _ in gpu.bnn.prepare(network, device=device)._way.steps)))
    rows = studies.scheme(network, studies.Counter(device), 1, silent)["rows"]
    residuals = [row for row in rows if row["path"].endswith("body.3")]
    assert {row["scheme"] for row in residuals} == {"auto", "bconv32", "wgmma"}
    assert all(row["layers"] == ["Conv"] and row["instructions"] for row in residuals)


def test_every_kind_of_refusal_is_a_row(monkeypatch):
    def launch_of(step, site):
        if site.schemes["2"] == "btc3":
            raise FormatError("words of 32\nit takes words of 64\nrepack them")
        return lambda *_: None

    monkeypatch.setattr(studies, "launch_of", launch_of)
    meter = Stopwatch(simwarp.Device(), *[1e-6] * 20)
    rows = {row["scheme"]: row for row in studies.scheme(small(), meter, 1, silent)["rows"]}
    assert (rows["btc3"]["seconds"], rows["btc3"]["refused"]) == (None, "words of 32; it takes words of 64")
    assert rows["btc2"]["seconds"] == 1e-6
    assert next(iter(rows)) == "auto"


# --------------------------------------------------------------------------------------------------
# Pictures
# --------------------------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"
TIMED = {
    "network": "<n>",
    "device": "H200",
    "images": 8,
    "unit": "seconds",
    "measured": {"runs_timed": 5, "bursts": 5, "idle_seconds": 0.01},
}


def parsed(data):
    text = to_svg(TIMED | data)
    assert "&lt;n&gt;" in text
    return ElementTree.fromstring(text)


def words(root):
    return [each.text for each in root.iter(f"{SVG}text")]


def bars(root):
    return [float(each.get("width")) for each in root.iter(f"{SVG}rect") if each.get("class") != "paper"]


def test_bars_are_as_long_as_their_numbers():
    rows = [
        {"path": path, "layers": ["Conv"], "seconds": seconds, "share": share}
        for path, seconds, share in (("0", 4e-6, 0.8), ("1", 1e-6, 0.2))
    ]
    root = parsed({"study": "breakdown", "rows": rows, "sum": 5e-6, "together": 4e-6})
    first, second = bars(root)
    assert first == 4 * second
    assert {"0 Conv", "4 µs, 80.0%", "sum 5 µs, together 4 µs"} <= set(words(root))
    assert "medians of 5 bursts of 5 runs, each burst behind 10 ms without work" in words(root)


def test_refused_schemes_have_words_and_no_bar():
    rows = [
        {"path": "1", "layers": ["Conv"], "scheme": "auto", "seconds": 1e-6},
        {"path": "1", "layers": ["Conv"], "scheme": "btc2", "seconds": None, "refused": "why"},
    ]
    root = parsed({"study": "scheme", "rows": rows})
    assert len(bars(root)) == 1
    assert {"1 Conv btc2", "refused"} <= set(words(root))


def test_shortcuts_show_their_bytes():
    rows = [{"shortcut": "A", "seconds": 1e-6, "residual_bytes": 2000}]
    assert "1 µs, 2 kB of residual data" in words(parsed({"study": "shortcut", "rows": rows}))


def corners(line):
    return [tuple(map(float, point.split(","))) for point in line.get("points").split()]


@pytest.mark.parametrize("ended", [None, "8 images: too many"])
def test_batches_are_curves_in_two_panels(ended):
    rows = [{"images": n, "seconds": 1e-6 * n, "waited": 2e-6 * n, "rate": 1e6} for n in (1, 2, 4)]
    root = parsed({"study": "batch", "rows": rows, "ended": ended})
    waited, worked, rate = map(corners, root.iter(f"{SVG}polyline"))
    for curve in (waited, worked):
        assert [x for x, _ in curve] == sorted(x for x, _ in curve)
        assert [y for _, y in curve] == sorted((y for _, y in curve), reverse=True)
    assert all(above < below for (_, above), (_, below) in zip(waited, worked, strict=True))
    assert len({y for _, y in rate}) == 1
    assert (ended in words(root)) == bool(ended)


def test_a_picture_of_sync_has_what_was_measured():
    row = {"images": 1, "layers": 9e-6, "whole": 8e-6, "without_barriers": 2e-6, "barrier": 2e-6}
    data = {"study": "sync", "rows": [row], "steps": 4, "barriers": 3}
    assert len(list(parsed(data).iter(f"{SVG}polyline"))) == 3
    counted = {"images": 1, "layers": 900, "whole": 800}
    root = parsed(data | {"unit": "instructions", "rows": [counted]})
    assert len(list(root.iter(f"{SVG}polyline"))) == 2
    assert "instructions of threads that the simulator executed" in words(root)


# --------------------------------------------------------------------------------------------------
# The command
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    pytest.importorskip("safetensors", reason="network files need simwarp[net]")
    save(small("a\x1b[2Jb"), tmp_path / "small.safetensors")
    return str(tmp_path / "small.safetensors")


def refused(capsys, *arguments):
    assert main(["net", "study", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


@pytest.mark.slow
def test_a_study_is_a_table_a_file_and_a_picture(path, tmp_path, capsys):
    out, svg = tmp_path / "x.json", tmp_path / "x.svg"
    options = ("--device", "sim", "--json", str(out), "--svg", str(svg))
    assert main(["net", "study", "breakdown", path, *options]) == 0
    printed = capsys.readouterr()
    assert "Pixels Dense Threshold" in printed.out
    assert "\x1b" not in printed.out
    assert f"wrote {out}\nwrote {svg}\n" in printed.err
    found = json.loads(out.read_text())
    assert (found["study"], found["images"], found["chip"]) == ("breakdown", 1, "sm_90")
    assert len(bars(ElementTree.fromstring(svg.read_text()))) == len(found["rows"]) == 2


def test_json_alone_is_printed(path, capsys, monkeypatch):
    costs = {"instructions": 7, "launches": 1}
    monkeypatch.setattr(studies.Counter, "cost", lambda *_: costs)
    assert main(["net", "study", "sync", path, "--device", "sim", "--images", "2", "--json", "-"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert [row["images"] for row in json.loads(captured.out)["rows"]] == [1, 2]


def test_what_cannot_be_studied_is_refused(path, capsys, monkeypatch):
    assert refused(capsys, "batch", path, "--device", "sim") == (
        "study batch on the simulator: latency and images in a second are times\n"
        "a simulator has none\ngive --device cuda, or study breakdown or sync\n"
    )
    assert refused(capsys, "shortcut", "mlp", "--device", "sim") == (
        "study shortcut of mlp: only a network that is made by name can have another shortcut\n"
        "choose among resnet14, resnet18\n"
    )
    assert "--width with " in refused(capsys, "breakdown", path, "--width", "8", "--device", "sim")
    assert "leave --size out" in refused(capsys, "breakdown", "mlp", "--size", "8", "--device", "sim")
    assert "leave --width out" in refused(capsys, "breakdown", "lenet", "--width", "2", "--device", "sim")
    assert "size is 7" in refused(capsys, "breakdown", "vgg16", "--size", "7", "--device", "sim")

    def nothing():
        raise NoGpuError("no CUDA device can be used: none found")

    monkeypatch.setattr("gpu.cuda.default_device", nothing)
    assert refused(capsys, "breakdown", "mlp", "--width", "64") == (
        "no CUDA device can be used: none found\ngive --device sim to count what the simulator executes\n"
    )


def test_shortcuts_are_those_of_a_name(tmp_path, capsys, monkeypatch):
    seen = {}

    def shortcut(networks, meter, images, progress):
        seen.update(networks)
        return studies._facts("shortcut", "resnet14", meter, images, [])

    monkeypatch.setattr(studies, "shortcut", shortcut)
    options = ("--size", "8", "--width", "16", "--device", "sim", "--json", "-")
    assert main(["net", "study", "shortcut", "resnet14", *options]) == 0
    assert list(seen) == ["A", "B", "bireal", "None"]
    assert studies.residual_bytes(seen["A"]) > studies.residual_bytes(seen["None"]) == 0


def test_ctrl_c_writes_nothing(path, tmp_path, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(studies.Counter, "cost", interrupted)
    options = ("--device", "sim", "--json", str(tmp_path / "x.json"), "--svg", str(tmp_path / "x.svg"))
    assert main(["net", "study", "breakdown", path, *options]) == 130
    assert capsys.readouterr().err.endswith("stopped\n")
    assert [each.name for each in tmp_path.iterdir()] == ["small.safetensors"]


def test_a_file_that_cannot_be_written_is_named(path, capsys, tmp_path):
    assert main(["net", "study", "breakdown", path, "--device", "sim", "--json", str(tmp_path)]) == 2
    assert "choose another file with --json" in capsys.readouterr().err
