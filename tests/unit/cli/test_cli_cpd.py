"""`simwarp cpd`: inputs, outputs, messages and exit codes."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import simwarp
from reference.cpd import cpd_als
from reference.errors import NoGpuError
from reference.sparse import read_tns, write_tensor, write_tns
from reference.types import Coo
from simwarp.cli import main

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", "NO_COLOR": "1"}


def tensor(dtype=np.float64):
    generator = np.random.default_rng(3)
    places = generator.permutation(6 * 7 * 5)[:60]
    values = (1 + generator.random(60)).astype(dtype)
    return Coo(np.array(np.unravel_index(places, (6, 7, 5))), values, (6, 7, 5))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with one tensor in every file format."""
    write_tns(tmp_path / "x.tns", tensor(), header=True)
    write_tns(tmp_path / "x.tns.gz", tensor(), header=True)
    write_tensor(tmp_path / "x.npz", tensor())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def cpd(*options, file="x.tns", rank=3):
    return main(["cpd", file, "--rank", str(rank), *map(str, options)])


def assert_holds(file, model):
    with np.load(file) as found:
        assert sorted(found) == sorted(
            ["weights", "fits", *(f"factor_{n}" for n in range(len(model.factors)))]
        )
        np.testing.assert_array_equal(found["weights"], model.weights)
        np.testing.assert_array_equal(found["fits"], model.fits)
        for n, factor in enumerate(model.factors):
            np.testing.assert_array_equal(found[f"factor_{n}"], factor)


# What it does


@pytest.mark.parametrize("file", ["x.tns", "x.tns.gz", "x.npz"])
@pytest.mark.usefixtures("folder")
def test_every_file_format_is_decomposed(file):
    assert cpd(file=file) == 0
    assert_holds("factors.npz", cpd_als(tensor(), 3))


@pytest.mark.usefixtures("folder")
def test_terminal_output_names_fit_and_iterations(capsys):
    assert cpd("--iterations", 4, "--tolerance", 0, "-o", "out.npz") == 0
    printed = capsys.readouterr()
    fits = cpd_als(tensor(), 3, iterations=4, tolerance=0).fits
    lines = printed.err.splitlines()
    assert lines[:4] == [f"iteration {n}: fit {fit:.6f}" for n, fit in enumerate(fits, 1)]
    assert lines[4] == "6 x 7 x 5, 60 nonzeros, rank 3, on cpu"
    assert lines[5].startswith(f"fit {fits[-1]:.6f} after 4 iterations (")
    assert lines[5].endswith(" s), not converged")
    assert lines[6:] == ["wrote out.npz: weights, 3 factors, fits"]
    assert printed.out == ""


@pytest.mark.usefixtures("folder")
def test_the_options_reach_the_decomposition(capsys):
    assert cpd("--seed", 2**64 - 1, "--iterations", 7, "--tolerance", 0.5, "--json", rank=2) == 0
    printed = capsys.readouterr()
    model = cpd_als(tensor(), 2, seed=2**64 - 1, iterations=7, tolerance=0.5)
    assert printed.err == ""
    report = json.loads(printed.out)
    assert report.pop("seconds") >= 0
    assert report == {
        "file": "x.tns",
        "shape": [6, 7, 5],
        "nonzeros": 60,
        "rank": 2,
        "device": "cpu",
        "format": None,
        "dtype": "float64",
        "seed": 2**64 - 1,
        "iterations": 2,
        "fit": model.fits[-1],
        "fits": list(model.fits),
        "converged": True,
        "output": "factors.npz",
    }
    assert_holds("factors.npz", model)


@pytest.mark.parametrize("file", ["x.tns", "x.npz"])
@pytest.mark.usefixtures("folder")
def test_dtype_converts_the_values(file, capsys):
    assert cpd("--dtype", "float32", "--json", file=file) == 0
    assert json.loads(capsys.readouterr().out)["dtype"] == "float32"
    assert_holds("factors.npz", cpd_als(tensor(np.float32), 3))


@pytest.mark.usefixtures("folder")
def test_a_float32_file_is_decomposed_in_float32(capsys):
    write_tensor(Path("single.npz"), tensor(np.float32))
    assert cpd("--json", file="single.npz") == 0
    assert json.loads(capsys.readouterr().out)["dtype"] == "float32"


@pytest.mark.usefixtures("folder")
def test_duplicate_coordinates_are_summed():
    lines = Path("x.tns").read_text().splitlines()
    place, value = lines[-1].rsplit(maxsplit=1)
    halves = [f"{place} {float(value) / 2!r}"] * 2
    with gzip.open("twice.tns.gz", "wt") as file:
        file.write("\n".join([*lines[:-1], *halves]) + "\n")
    assert read_tns("twice.tns.gz", duplicates="keep").values.size == 61
    assert cpd(file="twice.tns.gz") == 0
    assert_holds("factors.npz", cpd_als(tensor(), 3))
    assert cpd("--device", "sim", "--iterations", 1, file="twice.tns.gz") == 0


# On a device


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("None", "coo")
@pytest.mark.parametrize("format", [None, "coo"])
@pytest.mark.usefixtures("folder")
def test_the_simulator_gives_the_same_factors(format, capsys):
    options = ["--device", "sim", "--iterations", 2, "--deterministic", "--json"]
    assert cpd(*options, *(["--format", format] if format else [])) == 0
    report = json.loads(capsys.readouterr().out)
    model = cpd_als(tensor(), 3, iterations=2)
    assert report["device"] == simwarp.Device().name
    assert report["format"] == (format or "mm-csf")
    np.testing.assert_allclose(report["fits"], model.fits, atol=1e-9)
    with np.load("factors.npz") as found:
        np.testing.assert_allclose(found["weights"], model.weights, rtol=1e-6)


@pytest.mark.usefixtures("folder")
def test_the_format_and_the_options_reach_the_device(monkeypatch, capsys):
    calls = []

    def decompose(built, rank, *, progress, **options):
        calls.append((type(built).__name__, rank, options))
        return cpd_als(built, rank, iterations=1, progress=progress)

    monkeypatch.setattr("gpu.cpd_als", decompose)
    assert cpd("--device", "sim", "--format", "b-csf", "--deterministic", "--seed", 5, rank=2) == 0
    ((kind, rank, options),) = calls
    assert (kind, rank) == ("PerMode", 2)
    assert isinstance(options.pop("device"), simwarp.Device)
    assert options == {"seed": 5, "iterations": 50, "tolerance": 1e-5, "deterministic": True}
    assert "rank 2, on simwarp simulator (sm_90) from b-csf\n" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_missing_gpu_is_reported_before_the_file_is_read(monkeypatch, capsys):
    def none():
        raise NoGpuError("there is no CUDA device here\nuse simwarp.Device()")

    monkeypatch.setattr("gpu.cuda.default_device", none)
    assert cpd("--device", "cuda", file="no-such-file.tns") == 2
    printed = "there is no CUDA device here\ngive --device cpu, or --device sim for the simulator\n"
    assert capsys.readouterr().err == printed


# Requests that cannot be met


@pytest.mark.parametrize(
    ("options", "file", "complaint"),
    [
        ([], "none.tns", "none.tns cannot be read: No such file"),
        ([], "none.npz", "none.npz cannot be read: No such file"),
        ([], "x.csv", "x.csv has an unknown suffix\na sparse tensor is read from .tns, .tns.gz or .npz\n"),
        ([], "bad.tns", "bad.tns, line 2"),
        ([], "zero.tns", "there is nothing to decompose\n"),
        (
            ["--format", "mm-csf"],
            "x.tns",
            "--format mm-csf with --device cpu\nonly kernels read a format, and cpu runs none\n",
        ),
        (["--device", "sim", "--format", "csr"], "x.tns", "there is no format 'csr'\nchoose among coo, "),
        (["-o", "no/factors.npz"], "x.tns", "no/factors.npz cannot be written: there is no such folder\n"),
        (
            ["-o", "taken.npz"],
            "x.tns",
            "taken.npz cannot be written: Is a directory\nchoose another output with -o",
        ),
        (["--rank", "0"], "x.tns", "Invalid value for '--rank'"),
        (["--iterations", "0"], "x.tns", "Invalid value for '--iterations'"),
        (["--seed", "-1"], "x.tns", "Invalid value for '--seed'"),
        (["--tolerance", "nan"], "x.tns", "tolerance"),
        (["--dtype", "float16"], "x.tns", "Invalid value for '--dtype'"),
        (["--dtype", "float32"], "large.npz", "is inf as float32\nleave --dtype float32 out\n"),
    ],
    ids=str,
)
def test_impossible_requests_are_refused(folder, capsys, options, file, complaint):
    (folder / "bad.tns").write_text("1 1 2.0\n1 x 3.0\n")
    (folder / "zero.tns").write_text("1 1 0\n1 2 0\n")
    (folder / "taken.npz").mkdir()
    write_tensor(folder / "large.npz", Coo([[0, 1], [0, 1]], [1.0, 1e300], (2, 2)))
    before = sorted(path.name for path in folder.iterdir())
    assert cpd(*options, file=file) == 2
    printed = capsys.readouterr()
    assert complaint in printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""
    assert sorted(path.name for path in folder.iterdir()) == before


# The end


@pytest.mark.usefixtures("folder")
def test_a_stopped_decomposition_keeps_the_old_output(monkeypatch, capsys):
    def stopped(*_, progress, **__):
        progress(1, 0.5)
        raise KeyboardInterrupt

    Path("factors.npz").write_bytes(b"what was there")
    before = sorted(path.name for path in Path().iterdir())
    monkeypatch.setattr("reference.cpd_als", stopped)
    assert cpd() == 130
    assert capsys.readouterr().err.startswith("iteration 1: fit 0.500000\n")
    assert Path("factors.npz").read_bytes() == b"what was there"
    assert sorted(path.name for path in Path().iterdir()) == before


@pytest.mark.slow
def test_ctrl_c_stops_the_command(folder):
    before = sorted(path.name for path in folder.iterdir())
    request = ["cpd", "x.tns", "--rank", "3", "--iterations", "100000000", "--tolerance", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "simwarp", *request],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr.readline() == f"iteration 1: fit {cpd_als(tensor(), 3).fits[0]:.6f}\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert out == ""
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize("rank", [200_000_000, 10**21])
@pytest.mark.usefixtures("folder")
def test_a_rank_beyond_memory_is_refused(rank, capsys):
    assert cpd(rank=rank) == 2
    printed = capsys.readouterr().err.splitlines()
    assert printed[0].startswith(f"rank is {rank}: ")
    assert len(printed) == 3


@pytest.mark.parametrize("name", ["f.txt", "f", "f.npz.gz"])
def test_an_output_suffix_other_than_npz_is_refused(folder, name, capsys):
    before = sorted(folder.iterdir())
    assert cpd("-o", name) == 2
    printed = capsys.readouterr().err.splitlines()
    assert printed[0] == f"{name} has an unknown suffix"
    assert printed[2] == "choose a name that ends in .npz with -o"
    assert sorted(folder.iterdir()) == before


def test_nonfinite_values_are_refused(folder, capsys):
    (folder / "x.tns").write_text("1 1 nan\n2 2 1\n")
    assert cpd() == 2
    printed = capsys.readouterr().err
    assert "x.tns, line 1: the value is nan as float64\ncpd needs finite values\n" in printed
