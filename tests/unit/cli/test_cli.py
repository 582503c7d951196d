"""The command line: its output, the files it writes, and its exit codes."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import reference
import simwarp
from gpu.bconv.schemes import EVERY_SCHEME as CONVOLUTIONS
from gpu.bmm.schemes import RING_SCHEMES, SCHEMES, TENSOR_CORE_SCHEMES
from gpu.bmm.skinny import SKINNY_SCHEMES
from gpu.bmm.warpgroups import WARPGROUP_SCHEMES
from reference.errors import NoGpuError
from reference.version import __version__
from simwarp.cli import commands, main
from simwarp.cli.verify import _by_case
from simwarp.faults import OutOfBounds, Place
from simwarp.lab.subjects import SUBJECTS, cases
from simwarp.testing import load
from simwarp.verify import CASES

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", "NO_COLOR": "1"}


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def no_gpu(monkeypatch):
    def nothing():
        raise NoGpuError("no CUDA device can be used: none found\npass device=simwarp.Device()")

    monkeypatch.setattr("gpu.cuda.default_device", nothing)


def command(*arguments, folder=None, interpreter=()):
    """Run the real command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-P", *interpreter, "-m", "simwarp", *map(str, arguments)],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def refused(capsys, arguments, *parts, code=2):
    """Assert that the command ends with one short message and prints nothing else."""
    assert main([str(a) for a in arguments]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err
    assert 1 <= len(printed.err.splitlines()) <= (3 if code == 2 else 4)
    for part in parts:
        assert str(part) in printed.err
    return printed.err


# verify


@pytest.mark.gate
def test_verify_prints_a_table(capsys):
    assert main(["verify", "--case", "pack-lsb", "--inputs", "12", "--budget", "600"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["case", "tier", "inputs", "shapes", "mismatches", "time"]
    assert [line.split()[:2] for line in lines[1:3]] == [["pack-lsb", "reference"], ["pack-lsb", "gpu"]]
    assert lines[-1] == "all tiers agree on the 12 inputs asked for; 100 shapes verify a case"


@pytest.mark.slow
def test_verify_prints_json(capsys):
    assert main(["verify", "--case", "pack-lsb", "--inputs", "20", "--seed", "3", "-j", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    seconds = report.pop("seconds")
    rows = report.pop("rows")
    assert report == {
        "agreed": True,
        "seed": 3,
        "interrupted": False,
        "too_few_shapes": [],
        "mismatches": [],
        "device": "sim",
    }
    assert [(r["case"], r["tier"], r["inputs"], r["mismatches"]) for r in rows] == [
        ("pack-lsb", "reference", 20, 0),
        ("pack-lsb", "simulator", 20, 0),
    ]
    assert sum(r["seconds"] for r in rows) <= seconds


def test_all_inputs_of_a_case_are_its_combinations():
    assert _by_case(["blas3=all", "5"], {"bmm": 160, "blas3": 308}) == {"bmm": 5, "blas3": 308}


@pytest.mark.slow
def test_verify_runs_several_cases(capsys):
    cases = ["--case", "pack-row", "--case", "bmm"]
    assert main(["verify", *cases, "--inputs", "bmm=2", "--inputs", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(row["case"], row["inputs"]) for row in report["rows"]] == [("pack-row", 1)] * 3 + [
        ("bmm", 2)
    ] * 3
    assert main(["verify", *cases, "--inputs", "1", "--inputs", "bmm=2"]) == 0
    assert "all tiers agree on the inputs asked for; 100 shapes verify a case" in capsys.readouterr().out


@pytest.mark.slow
def test_verify_gives_the_same_report_for_any_number_of_jobs(capsys):
    reports = []
    for jobs in ("1", "3", "0"):
        assert main(["verify", "--case", "pack-lsb", "--inputs", "9", "-j", jobs, "--json"]) == 0
        reports.append(json.loads(capsys.readouterr().out))
        for timed in (reports[-1], *reports[-1]["rows"]):
            del timed["seconds"]
    assert reports[1:] == reports[:1] * 2
    assert reports[0]["agreed"]
    assert main(["verify", "--case", "pack-lsb", "--inputs", "3", "--jobs", "2"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == "all tiers agree on the 3 inputs asked for; 100 shapes verify a case"


def test_only_one_process_uses_the_gpu(monkeypatch, capsys):
    monkeypatch.setattr("gpu.cuda.default_device", simwarp.Device)
    refused(
        capsys,
        ["verify", "--device", "both", "--jobs", "2"],
        "--jobs 2 with --device both",
        "leave --jobs out",
    )


@pytest.mark.slow
def test_a_small_budget_is_kept_and_reported_as_too_small():
    start = cpu_seconds_of_children()
    done = command("verify", "--budget", "0.1")
    assert done.returncode == 1
    assert "fewer than 100 shapes tried" in done.stdout
    assert "give a larger --budget" in done.stdout
    assert done.stderr == ""
    assert cpu_seconds_of_children() - start < 30


def cpu_seconds_of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def test_a_single_input_is_verified_again(capsys):
    assert main(["verify", "--case", "bmm", "--input", "7", "--seed", "2"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("gpu on simwarp.Device") == 1
    assert "all tiers agree" in printed


@pytest.fixture
def wrong_bit(monkeypatch):
    """Flip one bit in the result of the simulator."""
    honest = CASES["bmm"]

    def wrong(item, device):
        c = honest.answers["gpu"](item, device)
        c[-1, -1] ^= 2
        return c

    monkeypatch.setitem(CASES, "bmm", replace(honest, answers={**honest.answers, "gpu": wrong}))


@pytest.mark.usefixtures("wrong_bit")
def test_verify_reports_a_wrong_tier(capsys):
    assert main(["verify", "--case", "bmm", "--input", "2"]) == 1
    printed = capsys.readouterr().out
    assert "simulator differs from reference in 1 of" in printed
    assert "bits 1 differ" in printed
    assert "replay: simwarp verify --case bmm --seed 0 --input 2" in printed
    assert "the tiers differ on 1 inputs" in printed


@pytest.mark.usefixtures("wrong_bit")
def test_verify_reports_a_wrong_tier_as_json(capsys):
    assert main(["verify", "--case", "bmm", "--input", "2", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    (mismatch,) = report["mismatches"]
    assert not report["agreed"]
    assert mismatch["bits"] == [1]
    assert mismatch["place"]["kernel"] == "bmm32"
    assert main([*mismatch["replay"].split()[1:], "--json"]) == 1  # the command that repeats the mismatch
    assert json.loads(capsys.readouterr().out)["mismatches"] == [mismatch]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--case", "unknown"], ["'unknown'", "pack-row, pack-lsb, pack-128, pack-lines, bmm"]),
        (["--budget", "0"], ["--budget"]),
        (["--budget", "soon"], ["--budget"]),
        (["--input", "-1"], ["--input"]),
        (["--input", str(2**80)], ["--input"]),
        (["--inputs", "0"], ["--inputs 0"]),
        (["--inputs", "many"], ["--inputs many", "bmm=120"]),
        (["--inputs", "bmm=0"], ["--inputs bmm=0"]),
        (["--inputs", "pack-lsb=all"], ["--inputs pack-lsb=all", "blas3=all"]),
        (["--inputs", "all"], ["--inputs all", "one of a case"]),
        (["--case", "bmm", "--inputs", "pack-row=9"], ["--inputs pack-row=9", "choose among bmm"]),
        (["--seed", "x"], ["--seed"]),
        (["--device", "tpu"], ["--device", "sim"]),
        (["--no-such-option"], ["--no-such-option"]),
        (["argument"], ["argument"]),
    ],
)
def test_verify_refuses_wrong_options(capsys, arguments, parts):
    refused(capsys, ["verify", *arguments], *parts)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("device", ["cuda", "both"])
def test_verify_reports_a_missing_gpu(capsys, device):
    refused(capsys, ["verify", "--device", device, "--budget", "1"], "no CUDA device", "--device sim")


# run bmm


@pytest.fixture
def folder(tmp_path):
    """A folder with a.npy (33, 70), b.npy (70, 9), and files that must be refused."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((33, 70)), rng.standard_normal((70, 9)).astype(np.float16)
    arrays = {
        "a": a,
        "b": b,
        "a-transposed": a.T,
        "b-transposed": b.T,
        "int32": np.ones((70, 9), np.int32),
        "cube": np.ones((70, 9, 1, 1)),
        "empty": np.ones((70, 0)),
        "nan": np.where(np.arange(630).reshape(70, 9) == 11, np.nan, b),
        "short": np.ones((69, 9)),
    }
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    np.savez(tmp_path / "several.npz", a=a, b=b)
    np.save(tmp_path / "objects.npy", np.array([[None]]), allow_pickle=True)
    (tmp_path / "text.npy").write_text("hello")
    (tmp_path / "nothing.npy").write_bytes(b"")
    (tmp_path / "zip.npy").write_bytes(b"PK\x03\x04 cut short")
    (tmp_path / "header.npy").write_bytes(b"\x93NUMPY\x01\x00\x20\x00{'descr': '<f8', 'shape': (3,   ")
    huge = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 1000000), }"
    (tmp_path / "huge.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00" + huge.ljust(117) + b"\n")
    whole = (tmp_path / "b.npy").read_bytes()
    (tmp_path / "cut.npy").write_bytes(whole[:-1])
    (tmp_path / "folder.npy").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("a", "b", "options"),
    [
        ("a", "b", []),
        ("a-transposed", "b", ["--transpose-a"]),
        ("a", "b-transposed", ["--transpose-b"]),
        ("a-transposed", "b-transposed", ["--transpose-a", "--transpose-b"]),
    ],
)
def test_two_files_are_multiplied(capsys, folder, a, b, options):
    out = folder / "c.npy"
    assert (
        main(["run", "bmm", str(folder / f"{a}.npy"), str(folder / f"{b}.npy"), "-o", str(out), *options])
        == 0
    )
    expected = reference.bmm(np.load(folder / "a.npy"), np.load(folder / "b.npy"))
    c = np.load(out)
    assert c.dtype == np.int32
    np.testing.assert_array_equal(c, expected)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "33 x 9 int32" in printed.err
    assert "simulator (sm_90)" in printed.err


def test_the_product_is_described_as_json(capsys, folder):
    out = folder / "c.npy"
    assert (
        main(["run", "bmm", str(folder / "a.npy"), str(folder / "b.npy"), "--output", str(out), "--json"])
        == 0
    )
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {
        "output": str(out),
        "shape": [33, 9],
        "device": "simwarp simulator (sm_90)",
    }
    assert printed.err == ""


@pytest.mark.slow
def test_the_installed_command_multiplies(folder):
    done = command("run", "bmm", "a.npy", "b.npy", "-o", "c.npy", folder=folder)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "wrote c.npy: 33 x 9 int32, on simwarp simulator (sm_90)\n"
    assert np.load(folder / "c.npy").shape == (33, 9)
    # Paths are relative to the working directory, and permissions are those of any new file.
    plain = folder / "plain"
    plain.touch()
    assert (folder / "c.npy").stat().st_mode == plain.stat().st_mode


BAD = [
    ("no-such.npy", ["no-such.npy", "No such file"]),
    ("text.npy", ["text.npy does not hold an array"]),
    ("nothing.npy", ["nothing.npy does not hold an array"]),
    ("zip.npy", ["zip.npy does not hold an array"]),
    ("header.npy", ["header.npy does not hold an array"]),
    ("huge.npy", ["huge.npy does not hold an array"]),
    ("cut.npy", ["cut.npy does not hold an array"]),
    ("several.npz", ["several.npz holds several arrays"]),
    ("objects.npy", ["objects.npy does not hold an array"]),
    ("folder.npy", ["folder.npy", "directory"]),
    ("int32.npy", ["b has elements of int32", "astype"]),
    ("cube.npy", ["b has shape (70, 9, 1, 1)"]),
    ("empty.npy", ["b has shape (70, 0)"]),
    ("nan.npy", ["b[1, 2] is NaN"]),
    ("short.npy", ["(33, 70)", "(69, 9)"]),
]


@pytest.mark.parametrize(("b", "parts"), BAD, ids=[name for name, _ in BAD])
@pytest.mark.parametrize("existing", [False, True])
def test_unsuitable_operands_are_refused(capsys, folder, b, parts, existing):
    out = folder / "c.npy"
    if existing:
        out.write_bytes(b"precious")
    before = sorted(folder.iterdir())
    refused(capsys, ["run", "bmm", folder / "a.npy", folder / b, "-o", out], *parts)
    assert sorted(folder.iterdir()) == before
    assert not existing or out.read_bytes() == b"precious"


@pytest.mark.parametrize("option", [["--device", "tpu"], ["--device", "both"], ["--transpose-c"]])
def test_unsuitable_options_are_refused(capsys, folder, option):
    arguments = ["run", "bmm", folder / "a.npy", folder / "b.npy", "-o", folder / "c.npy", *option]
    refused(capsys, arguments, option[-1].strip("-"))
    assert not (folder / "c.npy").exists()


@pytest.mark.usefixtures("no_gpu")
def test_a_product_on_a_missing_gpu_is_refused(capsys, folder):
    arguments = ["run", "bmm", folder / "a.npy", folder / "b.npy", "-o", folder / "c.npy", "--device", "cuda"]
    refused(capsys, arguments, "no CUDA device", "--device sim")
    assert not (folder / "c.npy").exists()


@pytest.mark.parametrize("out", ["missing/c.npy", "folder.npy", "a.npy/c.npy"])
def test_an_unwritable_output_is_reported(capsys, folder, out):
    before = sorted(folder.rglob("*"))
    refused(capsys, ["run", "bmm", folder / "a.npy", folder / "b.npy", "-o", folder / out], out, "-o")
    assert sorted(folder.rglob("*")) == before


def test_a_missing_output_option_is_reported(capsys, folder):
    refused(capsys, ["run", "bmm", folder / "a.npy", folder / "b.npy"], "--output")


@pytest.mark.slow
def test_the_installed_command_refuses_bad_input(folder):
    done = command("run", "bmm", "a.npy", "text.npy", "-o", "c.npy", folder=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "text.npy does not hold an array: it begins with b'hello', and a .npy file with b'\\x93NUMPY'\n"
        "give a .npy file, as numpy.save writes it\n"
    )


def test_a_kernel_fault_is_not_a_usage_error(capsys, folder, monkeypatch):
    def fall(*args, **kwargs):
        raise OutOfBounds("write of 4 bytes", "address 4", "check the index", Place(kernel="bmm32", lane=3))

    monkeypatch.setattr("gpu.bmm", fall)
    arguments = ["run", "bmm", folder / "a.npy", folder / "b.npy", "-o", folder / "c.npy"]
    refused(capsys, arguments, "kernel bmm32, lane 3", "address 4", "check the index", code=1)
    assert not (folder / "c.npy").exists()


# info, record, help


def test_info_lists_versions_extras_and_kernels(capsys):
    assert main(["info"]) == 0
    printed = capsys.readouterr().out
    (bmm64,) = (line for line in printed.splitlines() if line.startswith("schemes: bmm64 "))
    assert "64-bit words" in bmm64
    assert bmm64.rstrip().endswith("K > 65535: bmms64 takes over")
    for part in (__version__, "numpy", np.__version__, "NVRTC 13.0", "extras: cli", "gpu", "instructions"):
        assert part in printed


def test_info_prints_json(capsys):
    assert main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert set(facts) == {
        *("simwarp", "python", "numpy", "numba", "extras", "compiler", "gpu", "instructions", "schemes"),
    }
    assert list(facts["schemes"]) == [
        *SCHEMES,
        *TENSOR_CORE_SCHEMES,
        *RING_SCHEMES,
        *SKINNY_SCHEMES,
        *WARPGROUP_SCHEMES,
    ]
    assert (facts["simwarp"], facts["compiler"]) == (__version__, "NVRTC 13.0")
    assert facts["extras"]["cli"] == facts["extras"]["compile"] == "installed"
    assert facts["instructions"] > 40


@pytest.mark.usefixtures("no_gpu")
def test_goldens_are_not_recorded_without_a_gpu(capsys, tmp_path):
    printed = refused(capsys, ["record", "bmm", "--out", tmp_path / "new"], "no CUDA device", "NVIDIA GPU")
    assert "--device" not in printed
    assert list(tmp_path.iterdir()) == []


class StandIn(simwarp.Device):
    """A simulator that reports a GPU's name."""

    name, uuid, driver_version = "NVIDIA Test", "0" * 32, "580.0"


@pytest.fixture
def stand_in(monkeypatch):
    monkeypatch.setattr("gpu.cuda.default_device", StandIn)
    monkeypatch.setattr("simwarp.lab.subjects.cases.INPUTS", 2)


@pytest.mark.usefixtures("stand_in")
def test_goldens_are_recorded(capsys, tmp_path):
    arguments = ["record", "pack-row", "--out", str(tmp_path)]
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    (outcome,) = report["recorded"]
    assert report["device"] == "NVIDIA Test"
    assert outcome.pop("seconds") >= 0
    assert outcome == {
        "subject": "pack-row",
        "paths": [str(tmp_path / "sm_90" / f"pack-row.{e}") for e in ("npz", "json")],
        "differences": [],
    }
    assert load(tmp_path / "sm_90" / "pack-row.json").meta["inputs"] == 2
    assert main(arguments) == 0
    assert "recorded pack-row on NVIDIA Test: 0 differ" in capsys.readouterr().err


@pytest.mark.usefixtures("stand_in")
def test_impossible_recordings_are_refused(capsys, tmp_path):
    refused(capsys, ["record", "unknown", "--out", tmp_path], "unknown", "bmm, bmm-btc")
    refused(capsys, ["record", "--out", tmp_path], "simwarp record --list")
    (tmp_path / "file").write_text("in the way")
    refused(capsys, ["record", "pack-row", "--out", tmp_path / "file"], "cannot be written", "--out")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("option", [["--device", "sim"], ["--small"]])
def test_a_trial_is_not_written_to_the_goldens(capsys, option):
    refused(capsys, ["record", "silicon", *option], option[0], "not evidence", "--out")


def test_record_lists_its_subjects(capsys):
    assert main(["record", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main(["record", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["subjects"]
    assert [line.split()[0] for line in lines] == [row["subject"] for row in listed] == list(SUBJECTS)
    assert {"silicon", "sanitizer", "ptx-integer", "fuzz"} <= SUBJECTS.keys()
    assert next(row for row in listed if row["subject"] == "counters")["needs"] == ["ncu"]


@pytest.mark.usefixtures("stand_in")
def test_an_interrupted_recording_is_resumed(capsys, tmp_path, monkeypatch):
    """Ctrl-C keeps complete subjects; --missing records the others."""
    answers = cases.case_answers

    def stop(case, *arguments):
        if case.name == "pack-row":
            raise KeyboardInterrupt
        return answers(case, *arguments)

    arguments = ["record", "pack-c*", "pack-row", "--out", str(tmp_path)]
    monkeypatch.setattr(cases, "case_answers", stop)
    assert main(arguments) == 130
    assert {path.stem for path in (tmp_path / "sm_90").iterdir()} == {"pack-column"}
    before = (tmp_path / "sm_90" / "pack-column.json").stat()
    monkeypatch.setattr(cases, "case_answers", answers)
    assert main([*arguments, "--missing", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [one["subject"] for one in report["recorded"]] == ["pack-row"]
    assert (tmp_path / "sm_90" / "pack-column.json").stat() == before


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["colum"], ["there is no layout colum", "choose 'row' or 'column'"]),
        (["row", "--word", "16"], ["there is no --word 16", "choose 32 or 64 or 128"]),
        (["row", "--first", "last"], ["there is no --first last", "choose 'msb' or 'lsb'"]),
        (["row", "--rows", "0"], ["--rows 0: give a matrix at least one row"]),
        (["row", "--cols", "-1"], ["--cols -1: give a matrix at least one row"]),
    ],
)
def test_layout_errors_name_command_line_options(capsys, options, parts):
    refused(capsys, ["layout", "--rows", "4", "--cols", "70", *options], *parts)


def test_the_shape_of_a_layout_is_given_once(capsys):
    pictures = set[str]()
    for shape in (["--shape", "5x40"], ["--shape", "5,40"], ["--rows", "5", "--cols", "40"]):
        assert main(["layout", "row", *shape]) == 0
        pictures.add(capsys.readouterr().out)
    assert len(pictures) == 1
    for wrong in ([], ["--rows", "5"], ["--shape", "5"], ["--shape", "5x40", "--rows", "5"]):
        refused(capsys, ["layout", "row", *wrong], "rows and columns of the matrix are needed, once")


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (
            b"hello",
            "x.npy does not hold an array: it begins with b'hello', and a .npy file with b'\\x93NUMPY'",
        ),
        (b"# a text\n1 2\n", "x.npy does not hold an array: it begins with b'# a te'"),
        (b"", "x.npy does not hold an array: "),
    ],
)
def test_a_text_file_is_refused_as_an_array(capsys, tmp_path, content, part):
    (tmp_path / "x.npy").write_bytes(content)
    arguments = ["run", "bmm", tmp_path / "x.npy", tmp_path / "x.npy", "-o", tmp_path / "c.npy"]
    assert "pickle" not in refused(capsys, arguments, part)


def test_the_docs_name_every_scheme_and_option():
    docs = Path(simwarp.__file__).parents[1] / "docs"
    of_gpu = (docs / "gpu.md").read_text()
    schemes = SCHEMES | TENSOR_CORE_SCHEMES | RING_SCHEMES | SKINNY_SCHEMES | WARPGROUP_SCHEMES | CONVOLUTIONS
    assert all(f'`"{name}"`' in of_gpu for name in schemes)
    plugin = (docs.parent / "simwarp/testing/plugin.py").read_text()
    options = set(re.findall(r'"(--simwarp-[a-z]+)"', plugin))
    of_testing = (docs / "testing.md").read_text()
    assert len(options) >= 4
    assert all(f"| `{option}=" in of_testing for option in options)
    assert not any("`\\|`" in path.read_text() for path in docs.glob("*.md"))


@pytest.mark.parametrize("arguments", [[], ["run"]])
def test_simwarp_without_a_command_shows_help(capsys, arguments):
    assert main(arguments) == 2
    assert "Usage" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--help"], ["verify", "run", "info", "record", "layout"]),
        (["verify", "--help"], ["--case", "--seed", "--input", "--budget", "--device", "--json"]),
        (["run", "bmm", "--help"], ["--output", "--transpose-a", "--transpose-b", "--device"]),
        (["record", "--help"], ["--out", "--missing"]),
    ],
)
def test_help_names_options_and_examples(capsys, arguments, parts):
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert all(part in printed for part in parts)


def test_an_unknown_command_is_refused(capsys):
    refused(capsys, ["fly"], "fly", "simwarp --help")


@pytest.mark.slow
def test_help_exits_with_0_and_usage_errors_with_2():
    assert command("--help").returncode == 0
    done = command("verify", "--case", "unknown")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


@pytest.mark.at_most(1)
@pytest.mark.parametrize("package", ["typer", "rich", "click"])
def test_a_missing_extra_is_named(package):
    program = (
        f"import sys; sys.modules[{package!r}] = None; sys.argv = ['simwarp', 'info'];"
        "from simwarp.cli import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    if package == "click" and done.returncode == 0:
        return  # a Typer release with its own copy of Click
    assert (done.returncode, done.stdout) == (2, "")
    what, advice = done.stderr.splitlines()
    assert package in what
    assert advice == "pip install 'simwarp[cli]'"


def test_another_missing_module_is_not_reported_as_a_missing_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "simwarp.verify", None)
    with pytest.raises(ImportError, match="simwarp"):
        main(["verify"])


# Stopped at any moment


@pytest.mark.parametrize("error", [RuntimeError("__set_name__"), ImportError("PyCapsule_Import")])
def test_an_interrupt_that_became_another_error_stops_the_command(monkeypatch, capsys, error):
    def swallow(*_, **__):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise error from None

    monkeypatch.setattr(commands, "app", swallow)
    before = signal.getsignal(signal.SIGINT)
    assert main(["info"]) == 130
    assert capsys.readouterr().err == "stopped\n"
    assert signal.getsignal(signal.SIGINT) is before


READY = """
import sys
import simwarp.cli.commands
from simwarp.cli import commands, main
print("ready", flush=True)
sys.exit(main(sys.argv[1:]))
"""


def start(*arguments, folder):
    """Start the command in its own process group, with its modules already imported."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", READY, *arguments],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def stop(process, number, after):
    """Send a signal after a delay unless the process has ended; return its exit code and output."""
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        process.send_signal(number)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    rng = np.random.default_rng(1)
    a, b = rng.integers(-128, 128, (2, 900, 900)).astype(np.int8)
    np.save(folder / "a.npy", a)
    np.save(folder / "b.npy", b)
    return folder, reference.bmm(a, b)


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.singly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("after", [0.02, 0.1, 0.25, 0.5, 1.0])
def test_a_stopped_product_leaves_no_partial_file(large, tmp_path, number, after):
    folder, expected = large
    out = tmp_path / "c.npy"
    process = start("run", "bmm", "a.npy", "b.npy", "-o", str(out), folder=folder)
    code, _, err = stop(process, number, after)
    assert code in (0, 130, -number), err
    assert "Traceback" not in err
    if code == 0:
        assert out.exists()
    if out.exists():
        np.testing.assert_array_equal(np.load(out), expected)
    if number == signal.SIGINT:
        assert [path.name for path in tmp_path.iterdir()] in ([], ["c.npy"])


WRITING = """
import signal, sys, numpy as np, os
from pathlib import Path
from reference.files import write_whole
def write(file):
    file.write(b"half of it")
    file.flush()
    print("ready", flush=True)
    signal.pause()
try:
    write_whole(Path("c.npy"), write)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_write_keeps_the_old_file(tmp_path, number):
    (tmp_path / "c.npy").write_bytes(b"precious")
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", WRITING],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    process.communicate(timeout=300)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert (tmp_path / "c.npy").read_bytes() == b"precious"
    names = {path.name for path in tmp_path.iterdir()}
    if number == signal.SIGINT:
        assert names == {"c.npy"}
    assert all(name == "c.npy" or name.startswith(".c.npy.") for name in names)


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_stopped_verify_reports_partial_results(tmp_path, options):
    """On a busy machine the first signals may come before there is a result; that stops it, too."""
    for after in (0.6, 3, 8, 20):
        process = start("verify", "--case", "bmm", "--budget", "60", *options, folder=tmp_path)
        code, out, err = stop(process, signal.SIGINT, after)
        assert code == 130
        assert "Traceback" not in err + out
        if out:
            break
    if options:
        assert json.loads(out)["interrupted"] is True
    else:
        assert "stopped" in out + err
    assert list(tmp_path.iterdir()) == []


def test_help_lists_common_commands_first(capsys):
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    names = re.findall(r"^\W*(\w+)  +[A-Z]", printed, re.MULTILINE)
    order = ("run", "verify", "coverage", "trace", "layout", "tensor", "info", "cache", "fuzz", "record")
    assert [name for name in names if name in order] == list(order)
    titles = [
        printed.index(title)
        for title in ("Kernels", "Layouts and formats", "This installation", "Laboratory")
    ]
    assert titles == sorted(titles)


def test_help_of_run_describes_running_a_kernel(capsys):
    for arguments, code in ((["run"], 2), (["run", "--help"], 0)):
        assert main(arguments) == code
        printed = capsys.readouterr().out
        assert "--grid" in printed
        assert "simwarp run bmm" in printed
        assert "FILE [OPTIONS]" not in printed
