"""`simwarp bench`: rounds, answers and peers on fakes and the simulator, the command and its picture."""

import contextlib
import json
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

import reference
import simwarp
from reference.errors import NoGpuError, SchemeError, ShapeError
from simwarp.cli import main
from simwarp.draw.bench import to_svg
from simwarp.lab.bench import peers, problems, rounds, table
from simwarp.lab.network_studies import Timer

pytest.importorskip("typer", reason="the command line needs simwarp[cli]")
pytest.importorskip("cuda.bindings", reason="compiling needs simwarp[compile]")


def silent(done, total):
    assert 0 <= done < total


@pytest.fixture(autouse=True)
def _any_core(monkeypatch):
    monkeypatch.setattr(rounds, "quietest_core", lambda: 0)
    monkeypatch.setattr(rounds, "on_core", lambda core: contextlib.nullcontext())


# --------------------------------------------------------------------------------------------------
# Rounds
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("met", "kept"), [(None, 3), (2, 2), (1, 1)])
def test_an_interrupt_keeps_the_whole_rounds(met, kept):
    on, calls = rounds.Rounds(), []

    def measure():
        calls.append(len(calls))
        if met is not None and len(calls) == 2 * met + 2:  # in the second of a round's two timings
            raise KeyboardInterrupt
        return float(len(calls))

    timings = [on.timing(measure) for _ in range(2)]
    assert on.measure(3, silent) == kept
    assert [len(timing._rounds) for timing in timings] == [kept, kept]


def test_an_interrupt_of_the_first_round_ends_the_run():
    def interrupt():
        raise KeyboardInterrupt

    on = rounds.Rounds()
    on.timing(interrupt)
    with pytest.raises(KeyboardInterrupt):
        on.measure(3, silent)


def test_a_figure_is_the_median_of_the_rounds():
    on, times = rounds.Rounds(), iter([(3.0, 1.0), (9.0, 8.0), (4.0, 2.0)])
    timing = on.timing(lambda: next(times))
    on.measure(3, silent)
    assert timing.medians == (4.0, 2.0)


def test_a_call_waits_for_its_result(monkeypatch):
    clock = SimpleNamespace(now=0.0)

    def passing(seconds):
        clock.now += seconds

    monkeypatch.setattr(rounds.time, "perf_counter", lambda: clock.now)
    whole, host = rounds.medians(lambda: passing(2e-6), lambda: passing(5e-6))
    assert (whole, host) == (pytest.approx(7e-6), pytest.approx(2e-6))


# --------------------------------------------------------------------------------------------------
# Problems
# --------------------------------------------------------------------------------------------------


def numbers(problem):
    """The whole answer of a problem."""
    if isinstance(problem, problems.Product):
        return reference.bmm(problem.a, problem.b)
    return reference.bconv2d(problem.x, problem.w)


PROBLEMS = [lambda: problems.Product(40), lambda: problems.Convolution(33, images=2, side=7)]


@pytest.mark.parametrize("make", PROBLEMS)
def test_answers_are_those_of_the_reference(make):
    problem = make()
    right = numbers(problem)
    assert problem.is_right(right)
    assert problem.is_right(right.astype(np.float16))
    wrong = right.copy()
    wrong[-1, 0] += 2
    assert not problem.is_right(wrong)
    assert not problem.is_right(wrong.astype(np.float32))


def test_bytes_and_operations_are_counted_once():
    product, convolution = problems.Product(64), problems.Convolution(32, images=2, side=8)
    assert (product.operations, product.moved(1 / 8, 4)) == (2 * 64**3, 64**2 * 4.25)
    assert convolution.operations == 2 * (2 * 8 * 8) * 32 * 9 * 32
    assert convolution.moved(1 / 8, 4) == (2 * 64 * 32 + 9 * 32**2) / 8 + 4 * 2 * 64 * 32


@pytest.mark.parametrize("size", [0, -3, 2**24])
def test_other_sizes_are_refused(size):
    with pytest.raises(ShapeError, match=f"size {size}: .*\n.*\ngive other --sizes"):
        problems.Product(size)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("kind", ["bmm", pytest.param("bconv", marks=pytest.mark.slow)])
def test_the_simulator_counts_and_checks(kind):
    found = table.counted(kind, [16], simwarp.Device(), silent)
    assert [(row["operands"], row["output"]) for row in found["rows"]] == [
        ("prepared", "int32"),
        ("prepared", "bits"),
        ("float16", "int32"),
    ]
    assert [row["launches"] for row in found["rows"][:2]] == [1, 1]  # without what a first call makes
    assert all(row["instructions"] > 1000 for row in found["rows"])
    assert found["unit"] == "instructions"
    json.dumps(found)


@pytest.mark.parametrize("wrong", ["int32", "bits"])
def test_a_wrong_answer_is_not_counted(wrong, monkeypatch):
    def bmm(a, b, **rule):
        if ("thresholds" in rule) == (wrong == "bits"):
            b = simwarp.gpu.prepare(-np.ones((16, 16), np.int8), "b", device=a.device)
        return real(a, b, **rule)

    real = problems.gpu.bmm
    monkeypatch.setattr(problems, "gpu", SimpleNamespace(bmm=bmm, prepare=simwarp.gpu.prepare))
    with pytest.raises(
        table.WrongAnswerError, match=f"bmm/16: the answer of simwarp, prepared to {wrong}, is"
    ):
        table.counted("bmm", [16], simwarp.Device(), silent)


# --------------------------------------------------------------------------------------------------
# Peers
# --------------------------------------------------------------------------------------------------


class Numbers:
    """A library whose answers are right, unless ``off``."""

    name, version = "numbers", "1.2"
    off = 0

    def products(self, problem):
        dots = numbers(problem) + self.off

        def case(output, call):
            wait = list
            return problems.Case(self.name, "int8", output, call, problem.is_right, 7.0, None, wait)

        def refuse():
            raise RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED\nmore")

        yield case("int32", lambda: dots)
        yield case("float8", refuse)


def missing():
    raise peers.LeftOutError("not installed")


@pytest.fixture
def _known_times(monkeypatch):
    monkeypatch.setattr(table, "medians", lambda call, wait: (4e-6, 3e-6))
    monkeypatch.setattr(Timer, "cost", lambda self, work, together=1: {"seconds": 2e-6})


@pytest.mark.usefixtures("_known_times")
def test_rows_have_the_call_first_and_the_kernels_second():
    found = table.timed("bmm", [16], simwarp.Device(), 3, silent, [Numbers, missing])
    assert found["versions"]["numbers"] == "1.2"
    assert found["left_out"] == {"missing": "not installed", "numbers bmm/16": "CUBLAS_STATUS_NOT_SUPPORTED"}
    assert (found["unit"], found["measured"]["rounds"]) == ("seconds", 3)
    ints, _, real, theirs = found["rows"]
    assert [row["who"] for row in found["rows"]] == ["simwarp"] * 3 + ["numbers"]
    assert (ints["seconds"], ints["returns"], ints["kernels"]) == (4e-6, 3e-6, 2e-6)
    assert ints["kernels_rate"] == 2 * ints["rate"] == pytest.approx(2 * 16**3 / 2e-6)
    assert real["kernels"] is theirs["kernels"] is real["kernels_rate"] is None
    assert theirs["intensity"] == 2 * 16**3 / 7


@pytest.mark.usefixtures("_known_times")
def test_a_peer_with_a_wrong_answer_ends_the_run(monkeypatch):
    monkeypatch.setattr(Numbers, "off", 2)
    with pytest.raises(table.WrongAnswerError, match="the answer of numbers, int8 to int32, is wrong"):
        table.timed("bmm", [16], simwarp.Device(), 1, silent, [Numbers])


def test_libraries_without_a_gpu_are_left_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(peers.LeftOutError, match="torch"):
        peers.Torch()
    blind = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setitem(sys.modules, "cupy", blind)
    with pytest.raises(peers.LeftOutError, match="finds no GPU"):
        peers.Cupy()


class Tensor:
    """A tensor of torch's, in NumPy."""

    def __init__(self, x):
        self.x = x

    def __matmul__(self, other):
        return Tensor((self.x.astype(np.float32) @ other.x.astype(np.float32)).astype(self.x.dtype))

    def half(self):
        return Tensor(self.x.astype(np.float16))

    def permute(self, *axes):
        return Tensor(self.x.transpose(axes))

    def contiguous(self, **_):
        return Tensor(np.ascontiguousarray(self.x))

    def t(self):
        return Tensor(self.x.T)

    def cuda(self):
        return self

    cpu = cuda

    def numpy(self):
        return self.x


def conv2d(x, w, padding):
    assert padding == 1
    y = reference.bconv2d(x.x.transpose(0, 2, 3, 1), w.x.transpose(2, 3, 1, 0))
    return Tensor(y.transpose(0, 3, 1, 2).astype(np.float16))


@pytest.fixture
def torch(monkeypatch):
    events = iter(range(100))

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = next(events)

        def synchronize(self):
            pass

        def elapsed_time(self, later):
            return float(later.at - self.at)

    class CUDAGraph:
        def replay(self):
            pass

    fake = SimpleNamespace(
        __version__="2.9",
        from_numpy=Tensor,
        channels_last="channels last",
        backends=SimpleNamespace(cudnn=SimpleNamespace(benchmark=False)),
        nn=SimpleNamespace(functional=SimpleNamespace(conv2d=conv2d)),
        _int_mm=lambda a, b: Tensor(a.x.astype(np.int32) @ b.x.astype(np.int32)),
        cuda=SimpleNamespace(
            is_available=lambda: True,
            synchronize=lambda: None,
            CUDAGraph=CUDAGraph,
            graph=lambda graph: contextlib.nullcontext(),
            Event=Event,
        ),
    )
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


@pytest.mark.usefixtures("torch")
def test_torch_multiplies_halves_and_bytes():
    peer = peers.Torch()
    cases = list(peer.products(problems.Product(24)))
    assert [(case.operands, case.output) for case in cases] == [("float16", "float16"), ("int8", "int32")]
    assert all(case.right(case.call()) for case in cases)
    assert [case.operands for case in peer.products(problems.Product(20))] == ["float16"]  # int8 takes eights


def test_torch_convolves_channels_last(torch):
    (case,) = peers.Torch().convolutions(problems.Convolution(5, images=1, side=6))
    assert case.right(case.call())
    assert torch.backends.cudnn.benchmark


@pytest.mark.usefixtures("torch")
def test_torch_s_kernels_are_timed_by_its_events(monkeypatch):
    monkeypatch.setattr("simwarp.lab.network_studies.time.sleep", lambda _: None)
    (case, *_) = peers.Torch().products(problems.Product(24))
    assert case.meter.cost(case.call, 10)["seconds"] == pytest.approx(1e-4)  # a millisecond for ten


# --------------------------------------------------------------------------------------------------
# The roof, and its picture
# --------------------------------------------------------------------------------------------------


def test_the_roof_is_that_of_the_device_or_of_a_named_chip():
    assert table.roof_of("NVIDIA H200", None)["peak"] == pytest.approx(17.1e15, rel=0.01)
    assert table.roof_of("NVIDIA A100-SXM4-80GB", None)["peak"] == pytest.approx(4.99e15, rel=0.01)
    assert table.roof_of("some GPU", None) is None
    assert table.roof_of("some GPU", "h100")["chip"] == "H100 SXM"
    assert table.roof_of("NVIDIA L40S", None) is None  # nobody says how many bits it multiplies
    with pytest.raises(SchemeError, match="unknown chip 'B52'"):
        table.roof_of("NVIDIA H200", "B52")


SVG = "{http://www.w3.org/2000/svg}"
ROW = {"case": "bmm/<8>", "who": "simwarp", "operands": "prepared", "output": "int32", "intensity": 400.0}


def picture(**row):
    roof = table.roof_of("NVIDIA H200", None)
    data = {"bench": "bmm", "device": "<H200>", "unit": "seconds", "roof": roof, "rows": [ROW | row]}
    return ElementTree.fromstring(to_svg(data))


def points(root):
    return {c.get("class"): (float(c.get("cx")), float(c.get("cy"))) for c in root.iter(f"{SVG}circle")}


def test_calls_and_kernels_are_points_below_the_roof():
    root = picture(rate=1e14, kernels_rate=1e15)
    found = points(root)
    assert found["hollow"][0] == found["point"][0]
    corner = [tuple(map(float, p.split(","))) for p in root.find(f"{SVG}polyline").get("points").split()]
    assert corner[1][1] < found["point"][1] < found["hollow"][1]
    texts = [each.text for each in root.iter(f"{SVG}text")]
    assert "1: bmm/<8>, simwarp, prepared to int32, 100 Top/s a call, 1 Pop/s its kernels" in texts


def test_without_times_a_point_lies_on_the_roof():
    root = picture()
    ((x, y),) = points(root).values()
    (x0, y0), (x1, y1), _ = (
        tuple(map(float, p.split(","))) for p in root.find(f"{SVG}polyline").get("points").split()
    )
    assert y == pytest.approx(y0 + (y1 - y0) * (x - x0) / (x1 - x0), abs=0.3)


def test_a_picture_needs_the_limits_of_the_chip():
    data = {"bench": "bmm", "device": "some GPU", "unit": "seconds", "roof": None, "rows": [ROW]}
    with pytest.raises(SchemeError, match="the limits of some GPU are not known"):
        to_svg(data)


# --------------------------------------------------------------------------------------------------
# The command
# --------------------------------------------------------------------------------------------------


def refused(capsys, *arguments):
    assert main(["bench", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_the_command_prints_a_table_and_writes_a_file_and_a_picture(tmp_path, capsys):
    out, plot = tmp_path / "x.json", tmp_path / "x.svg"
    options = ("--device", "sim", "--sizes", "16", "--json", str(out), "--plot", str(plot))
    assert main(["bench", "bmm", *options]) == 0
    printed = capsys.readouterr()
    assert "bmm/16" in printed.out
    assert f"wrote {out}\nwrote {plot}\n" in printed.err
    found = json.loads(out.read_text())
    assert (found["bench"], found["roof"]["chip"], len(found["rows"])) == ("bmm", "H200", 3)
    assert len(points(ElementTree.fromstring(plot.read_text()))) == 1


@pytest.mark.usefixtures("_known_times")
def test_times_are_printed_with_what_is_left_out(capsys, monkeypatch):
    monkeypatch.setattr(table, "timed", lambda *given: timed(*given, peers=[Numbers, missing]))
    monkeypatch.setattr("simwarp.cli.bench.cuda_device", lambda advice: simwarp.Device())
    assert main(["bench", "bmm", "--sizes", "16", "--rounds", "2"]) == 0
    printed = capsys.readouterr().out
    for part in ("4 µs", "2 µs", "2 of 2 rounds; median", "missing is left out: not installed"):
        assert part in printed


timed = table.timed


def test_what_cannot_be_measured_is_refused(capsys, monkeypatch):
    def nothing():
        raise NoGpuError("no CUDA device can be used: none found")

    monkeypatch.setattr("gpu.cuda.default_device", nothing)
    assert refused(capsys, "bconv") == (
        "no CUDA device can be used: none found\ngive --device sim to count operations and bytes\n"
    )
    assert "give e.g. --sizes 1024,4096" in refused(capsys, "bmm", "--sizes", "1x", "--device", "sim")
    assert "give other --sizes" in refused(capsys, "bmm", "--sizes", "0", "--device", "sim")
    monkeypatch.setattr("simwarp.cli.bench.cuda_device", lambda advice: simwarp.Device())
    assert "give --chip, e.g. H200" in refused(capsys, "bmm", "--plot", "x.svg")  # before minutes of rounds
    assert "unknown chip 'B52'" in refused(capsys, "bmm", "--chip", "B52", "--device", "sim")


def test_json_alone_is_printed_and_ctrl_c_writes_nothing(tmp_path, capsys, monkeypatch):
    assert main(["bench", "bmm", "--device", "sim", "--sizes", "8", "--json", "-"]) == 0
    captured = capsys.readouterr()
    assert (captured.err, len(json.loads(captured.out)["rows"])) == ("", 3)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(table, "counted", interrupted)
    assert main(["bench", "bmm", "--device", "sim", "--json", str(tmp_path / "x")]) == 130
    assert list(tmp_path.iterdir()) == []
