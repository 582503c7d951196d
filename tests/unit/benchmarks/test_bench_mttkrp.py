"""`simwarp bench mttkrp`: formats, right answers, counts, times, and the command."""

import contextlib
import json

import numpy as np
import pytest

import simwarp
from gpu.mttkrp import FORMATS
from reference import sparse
from reference.errors import NoGpuError, SchemeError
from reference.sparse import index_bytes, mm_csf, mttkrp_work
from reference.sparse.tns import write_tns
from reference.types import Coo
from simwarp.cli import main
from simwarp.lab.bench import mttkrp, rounds
from simwarp.lab.bench.table import WrongAnswerError
from simwarp.lab.network_studies import Timer
from support import scattered_tensors

pytest.importorskip("typer", reason="the command line needs simwarp[cli]")
pytest.importorskip("cuda.bindings", reason="compiling needs simwarp[compile]")


def silent(done, total):
    assert 0 <= done < total


@pytest.fixture(autouse=True)
def _any_core(monkeypatch):
    monkeypatch.setattr(rounds, "quietest_core", lambda: 0)
    monkeypatch.setattr(rounds, "on_core", lambda core: contextlib.nullcontext())


@pytest.fixture(autouse=True)
def _plain_builders(request, monkeypatch):
    """The reference's builders, which give the same arrays uncompiled; slow tests have production's."""
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr(mttkrp, "formats", sparse)


@pytest.fixture
def _known_times(monkeypatch):
    monkeypatch.setattr(Timer, "cost", lambda self, work, together=1: {"seconds": 2e-6})


def problem(shape=(5, 6, 7), nonzeros=40, rank=4):
    return mttkrp.Problem.of("x.tns", scattered_tensors.scattered(shape, nonzeros), rank)


@pytest.mark.slow
def test_the_simulator_counts_every_format():
    given = problem()
    found = mttkrp.counted(given, mttkrp.builders("all", 3), silent)
    assert (found["bench"], found["unit"], found["rank"]) == ("mttkrp", "instructions", 4)
    assert found["operations"] == 9 * given.tensor.values.size * 4
    assert [row["format"] for row in found["rows"]] == list(FORMATS)
    for row in found["rows"]:
        assert len(row["modes"]) == 3
        for what in ("instructions", "launches", "sectors", "bytes"):
            assert row[what] == sum(mode[what] for mode in row["modes"]) > 0
        made = FORMATS[row["format"]](given.tensor)
        assert row["index_bytes"] == {"paper": index_bytes(made), "held": index_bytes(made, by="held")}
        assert row["work"]["reads"] == mttkrp_work(made, 4).reads


def test_fewer_requested_bytes_are_counted_where_fibers_are_longer():
    coords = np.array([[0] * 30, [0] * 30, range(30)])
    row = Coo(coords, np.ones(30, np.float32), (2, 2, 30))
    builds = mttkrp.builders("mm-csf-along-0,mm-csf-along-2", 3)
    along_0, along_2 = mttkrp.counted(mttkrp.Problem.of("row", row, 32), builds, silent)["rows"]
    assert along_2["work"]["reads"] < along_0["work"]["reads"]
    assert along_2["bytes"] < along_0["bytes"]
    for row in (along_0, along_2):
        assert 0 < row["load_sectors"] < row["sectors"]
        assert row["load_sectors"] == sum(mode["load_sectors"] for mode in row["modes"])
    # by hand: a fiber of 30 nonzeros along mode 2 reads 30 rows of 4 sectors for modes 0 and 1
    assert along_2["modes"][0]["load_sectors"] > 30 * 4


@pytest.mark.usefixtures("_known_times")
def test_times_are_of_each_mode_and_their_sum():
    given = problem()
    builds = mttkrp.builders("coo,mm-csf", 3)
    found = mttkrp.timed(given, builds, simwarp.Device(), 2, silent)
    assert (found["unit"], found["measured"]["rounds"]) == ("seconds", 2)
    for row in found["rows"]:
        assert row["modes"] == [2e-6] * 3
        assert row["seconds"] == pytest.approx(6e-6)
        assert row["rate"] == pytest.approx(found["operations"] / row["seconds"])


@pytest.mark.usefixtures("_known_times")
def test_figures_follow_from_a_report():
    coords = np.array([[0, 0, 3], [1, 2, 2], [4, 5, 5]])
    given = mttkrp.Problem.of("x", Coo(coords, np.ones(3, np.float32), (4, 9, 7)), 8)
    # distinct rows: 2, 2 and 2; mode 0 reads 4 and writes 4, mode 1 writes 9, mode 2 writes 7
    assert given.row_bytes == 4 * 8 * (3 * 4 + 4 + 9 + 7)
    builds = mttkrp.builders("b-csf,mm-csf,mm-csf-along-0,mm-csf-along-2", 3)
    found = mttkrp.timed(given, builds, simwarp.Device(), 1, silent)
    assert [row["of_mixed"] for row in mttkrp.directions(found)] == [1.0] * 3
    assert [row["speedup"] for row in mttkrp.speedups(found)] == [1.0] * 3
    row = mttkrp.roofline(found, 1e12)
    nbytes = 3 * (index_bytes(mm_csf(given.tensor), by="held") + 12) + given.row_bytes
    assert (row["bytes"], row["operations"]) == (nbytes, 9 * 3 * 8)
    assert row["bound"] == pytest.approx(9 * 3 * 8 / nbytes * 1e12)
    assert row["share"] == pytest.approx(9 * 3 * 8 / 6e-6 / row["bound"])
    simulated = {"tensor": "t", "unit": "instructions", "rows": []}
    for name, sectors in (("b-csf", 30), ("mm-csf", 20)):
        simulated["rows"].append({"format": name, "modes": [{"sectors": sectors}]})
    assert mttkrp.speedups(simulated) == [{"tensor": "t", "mode": 0, "speedup": 1.5}]
    with pytest.raises(SchemeError, match="has no row of mm-csf"):
        mttkrp.directions({**simulated, "rows": simulated["rows"][:1]})


def test_one_direction_of_mm_csf_has_one_partition():
    builds = mttkrp.builders("mm-csf-along-1", 3)
    made = builds["mm-csf-along-1"](problem().tensor)
    assert [part.modes[-1] for part in made.partitions] == [1]
    assert len(mm_csf(problem().tensor).partitions) > 1


def test_duplicate_coordinates_are_summed():
    given = mttkrp.Problem.of("x", Coo([[0, 0], [1, 1]], np.ones(2, np.float32), (2, 3)), 2)
    assert given.tensor.values.tolist() == [2.0]


def test_a_wrong_answer_is_not_counted(monkeypatch):
    monkeypatch.setattr(mttkrp.reference, "mttkrp", lambda *given: np.ones((given[0].shape[given[2]], 4)))
    with pytest.raises(WrongAnswerError, match=r"x\.tns: the result of mode 0 as coo is wrong"):
        mttkrp.counted(problem(), mttkrp.builders("coo", 3), silent)


@pytest.mark.parametrize("names", ["csv", "", "mm-csf-along-3", "all,coo"])
def test_unknown_formats_are_refused(names):
    with pytest.raises(SchemeError, match="there is no format"):
        mttkrp.builders(names, 3)


@pytest.fixture
def file(tmp_path):
    write_tns(tmp_path / "x.tns", scattered_tensors.scattered((5, 6, 7), 40))
    return str(tmp_path / "x.tns")


def test_the_command_prints_a_line_for_each_format(file, tmp_path, capsys):
    report = tmp_path / "report.json"
    words = ["bench", "mttkrp", file, "--device", "sim", "--rank", "4", "--formats", "coo,csf-one"]
    assert main([*words, "--json", str(report)]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = json.loads(report.read_text())
    shape = " × ".join(map(str, found["shape"]))
    about = f"{shape}, {found['nonzeros']} nonzeros, R = 4, float32"
    assert lines[0] == f"x.tns: {about}, on simwarp simulator (sm_90)"
    assert [line.split()[0] for line in lines[1:]] == ["format", "coo", "csf-one"]
    assert [row["format"] for row in found["rows"]] == ["coo", "csf-one"]
    assert f"{found['rows'][0]['sectors']:,}" in lines[2]


def test_json_alone_is_printed(file, capsys):
    assert main(["bench", "mttkrp", file, "--device", "sim", "--formats", "coo", "--json", "-"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["sectors"] == sum(mode["sectors"] for mode in row["modes"])


@pytest.mark.usefixtures("_known_times")
def test_times_are_printed(file, capsys, monkeypatch):
    monkeypatch.setattr("simwarp.cli.bench_mttkrp.cuda_device", lambda advice: simwarp.Device())
    assert main(["bench", "mttkrp", file, "--rank", "4", "--formats", "coo", "--rounds", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["format", "indices", "made", "in", "all", "modes", "rate"] + [
        word for mode in "012" for word in ("mode", mode)
    ]
    assert lines[2].split()[0] == "coo"
    assert lines[3] == "1 of 1 rounds; median of the rounds' medians"


def test_what_cannot_be_measured_is_refused(file, tmp_path, capsys, monkeypatch):
    def missing(advice):
        raise NoGpuError(f"no GPU\nthere is none\n{advice}")

    monkeypatch.setattr("simwarp.cli.bench_mttkrp.cuda_device", missing)
    assert main(["bench", "mttkrp", file]) == 2
    assert "give --device sim to count instructions and sectors" in capsys.readouterr().err
    assert main(["bench", "mttkrp", str(tmp_path / "no.tns"), "--device", "sim"]) == 2
    assert "no.tns cannot be read" in capsys.readouterr().err
    assert main(["bench", "mttkrp", file, "--device", "sim", "--formats", "csv"]) == 2
    assert "there is no format 'csv'" in capsys.readouterr().err
    (tmp_path / "nan.tns").write_text("1 1 nan\n")
    assert main(["bench", "mttkrp", str(tmp_path / "nan.tns"), "--device", "sim"]) == 2
    assert "a benchmark needs finite values" in capsys.readouterr().err
