"""`simwarp run` with a user's kernel: its output, the files it writes, and its exit codes."""

import io
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
from reference.errors import NoGpuError
from simwarp.cli import main
from simwarp.cli.run_outcome import Outcome
from simwarp.device.schedules import Differences
from simwarp.faults import KernelFault

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", "NO_COLOR": "1"}

SAXPY = """\
#include <stdio.h>
extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i] + y[i];
    if (i == 0) printf("%d elements\\n", n);
}
"""
FILL = "__global__ void fill(int* x, int n) { if (threadIdx.x < n) x[threadIdx.x] = threadIdx.x; }\n"
LAST = "__global__ void last(int* x) { if (threadIdx.x == 0) atomicExch(x, blockIdx.x); }\n"
RACE = "__global__ void race(int* x) { if (threadIdx.x == 0) x[0] = x[0] + 1; }\n"
ENDLESS = "__global__ void endless(unsigned* x) { while (atomicAdd(x, 1) != 0xffffffffu) {} }\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with kernels, x.npy and y.npy of 100 elements."""
    for name, text in (
        ("saxpy", SAXPY),
        ("fill", FILL),
        ("last", LAST),
        ("race", RACE),
        ("endless", ENDLESS),
        ("two", FILL + LAST),
    ):
        (tmp_path / f"{name}.cu").write_text(text)
    np.save(tmp_path / "x.npy", np.arange(100, dtype=np.float32))
    np.save(tmp_path / "y.npy", np.ones(100, np.float32))
    (tmp_path / "bad.npy").write_text("hello")
    (tmp_path / "zero.ptx").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "fifo.cu")
    with (tmp_path / "sparse.ptx").open("wb") as file:
        file.truncate(1 << 40)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def saxpy(*options, n=100, y="y.npy:inout"):
    launch = ["--grid", "4", "--block", "32"]
    args = [f"n={n}", "2.5", "x.npy", y]
    return ["run", "saxpy.cu", *launch, *(word for a in args for word in ("--arg", a)), *options]


def one(file, *options, block="32", x="x=zeros:int32:1"):
    return ["run", f"{file}.cu", "--grid", "8", "--block", block, "--arg", x, *options]


# What it does


def test_a_kernel_runs_on_files_and_numbers(folder, capsys):
    assert main(saxpy("--output", "out")) == 0
    np.testing.assert_array_equal(np.load("out/y.npy"), np.arange(100) * np.float32(2.5) + 1)
    assert [path.name for path in (folder / "out").iterdir()] == ["y.npy"]
    assert (np.load("y.npy") == 1).all()
    printed = capsys.readouterr()
    assert printed.out == "100 elements\n"
    lines = printed.err.splitlines()
    assert lines[0] == f"wrote {Path('out/y.npy')}: 100 float32"
    assert lines[1].startswith("saxpy on simwarp simulator (sm_90): ")
    assert lines[1].endswith(" thread-instructions, all exact: hardware gives the same bits")
    assert len(lines) == 2


@pytest.mark.usefixtures("folder")
def test_the_options_may_come_first():
    assert main(["run", "--block", "4", "--grid=1", "fill.cu", "--arg", "out:int32:4", "--arg", "4"]) == 0
    assert np.load("out.npy").tolist() == [0, 1, 2, 3]


@pytest.mark.usefixtures("folder")
def test_inout_without_a_folder_overwrites_the_file():
    assert main(saxpy()) == 0
    np.testing.assert_array_equal(np.load("y.npy"), np.arange(100) * np.float32(2.5) + 1)


@pytest.mark.usefixtures("folder")
def test_an_input_file_is_unchanged(capsys):
    assert main(saxpy(y="y.npy")) == 0
    assert (np.load("y.npy") == 1).all()
    assert "the kernel changed y; to write it, give its file as FILE.npy:inout" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_arrays_are_created_from_a_description(capsys):
    arguments = ["--arg", "n=6", "--arg", "x=out:int32:2x3"]
    assert main(["run", "two.cu", "--kernel", "fill", "--grid", "1", "--block", "32", *arguments]) == 0
    assert np.load("x.npy").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert "wrote x.npy: 2 x 3 int32" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_run_is_described_as_json(capsys):
    assert main(saxpy("--json", "--observe", "sectors", "-o", "out")) == 0
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert printed.err == ""
    counted = report.pop("report")
    assert set(counted) == {"fidelity", "sectors"}
    assert counted["fidelity"]["counts"]["exact"] == report.pop("executed")
    assert report.pop("summary") == counted["fidelity"]["text"]
    assert report == {
        "kernel": "saxpy",
        "grid": [4, 1, 1],
        "block": [32, 1, 1],
        "device": "simwarp simulator (sm_90)",
        "ended": True,
        "outputs": {"y": {"file": str(Path("out/y.npy")), "dtype": "float32", "shape": [100]}},
        "changed": ["y"],
        "unwritten": [],
        "notes": [],
        "not_seen": [],
        "warnings": "",
        "faults": [],
        "findings": [],
        "schedules": None,
        "both": None,
        "stdout": "100 elements\n",
    }


@pytest.mark.usefixtures("folder")
def test_reports_are_printed_as_tables(capsys):
    assert main(saxpy("--observe", "sectors,divergence")) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("100 elements\nline ")
    assert printed.count("100 elements") == 1
    assert "\nSectors: " in printed
    assert "\nDivergence: " in printed
    assert "saxpy.cu:5" in printed
    assert main(saxpy("--observe", "all")) == 0
    assert "\nTraffic\n" in capsys.readouterr().out


# What it finds


@pytest.mark.usefixtures("folder")
def test_a_fault_is_printed_and_nothing_is_written(capsys):
    assert main(saxpy("-o", "out", n=101)) == 1
    printed = capsys.readouterr()
    first, line, caret, who, values, _ = printed.err.splitlines()[:6]
    assert first == "saxpy.cu:5: out of bounds: read of x[100], past its end"
    assert line == f"    5 | {Path('saxpy.cu').read_text().splitlines()[4]}"
    assert line[caret.index("^") : caret.rindex("~") + 1] == "x[i]"
    assert who == "  kernel saxpy, block (3, 0, 0), thread (4, 0, 0), warp 0, lane 4"
    assert "past the end of x" in values
    assert not Path("out/y.npy").exists()


@pytest.mark.usefixtures("folder")
def test_a_fault_is_described_as_json(capsys):
    assert main(saxpy("--json", n=101)) == 1
    report = json.loads(capsys.readouterr().out)
    (fault,) = report["faults"]
    counts = report["report"]["fidelity"]["counts"]
    assert (report["ended"], report["outputs"], report["executed"]) == (False, {}, sum(counts.values()))
    assert report["executed"] > 100
    assert (fault["class"], fault["check"], fault["allocation"]) == ("OutOfBounds", "bounds", "x")
    assert (fault["place"]["source_line"], fault["place"]["lane"]) == (5, 4)
    assert fault["element"] == "x[100]"
    assert fault["place"]["source_text"].strip().startswith("y[i]")
    assert fault["message"].startswith("saxpy.cu:5: out of bounds: ")


@pytest.mark.usefixtures("folder")
def test_collected_faults_are_all_printed(capsys):
    assert main(saxpy("--checks", "bounds=report", "-o", "out", n=101)) == 1
    printed = capsys.readouterr().err
    assert printed.count("[100], past its end") == 3
    assert np.load("out/y.npy")[99] == 248.5
    assert main(saxpy("--checks", "races=off,bounds=off", n=101)) == 0


@pytest.mark.usefixtures("folder")
def test_a_race_names_its_line(capsys):
    assert main(one("race")) == 1
    assert "race.cu:1" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_result_that_depends_on_scheduling_is_reported(capsys):
    assert main(one("last")) == 0
    assert main(one("last", "--schedules", "5")) == 1
    assert "x[0] depends on scheduling" in capsys.readouterr().out
    assert main(one("last", "--schedules", "5", "--json")) == 1
    schedules = json.loads(capsys.readouterr().out)["schedules"]
    assert schedules["compared"] == ["lowest pc", "stack", *(f"random, seed {seed}" for seed in range(3))]
    assert schedules["differences"][0]["array"] == "x"


@pytest.mark.usefixtures("folder")
def test_a_result_independent_of_scheduling_passes(capsys):
    assert main(saxpy("--schedules", "3")) == 0
    printed = capsys.readouterr().out
    assert printed == "100 elements\ncompared: lowest pc; stack; random, seed 0\nno result differs\n"


def test_a_fault_of_another_schedule_counts():
    outcome = Outcome(None, simwarp.Device(), io.StringIO(), differences=Differences((), {}, (), ()))
    assert outcome.clean
    outcome.differences = Differences((), {}, (), (KernelFault("found by chance"),))
    assert not outcome.clean


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_an_endless_kernel_is_stopped(capsys):
    assert main(one("endless", "--budget", "2000")) == 1
    found = "endless.cu:1: runaway kernel: more than 2000 instructions executed"
    assert found in capsys.readouterr().err


def unwritten(*options, shape="2x3"):
    """Run `fill` so that the last of six elements stays unwritten."""
    args = ["--arg", f"x=out:int32:{shape}", "--arg", "5"]
    return ["run", "fill.cu", "--grid", "1", "--block", "32", *args, *options]


@pytest.mark.usefixtures("folder")
def test_unwritten_elements_are_reported(capsys):
    assert main(unwritten()) == 1
    printed = capsys.readouterr().err.splitlines()
    assert printed[:3] == [
        "wrote x.npy: 2 x 3 int32, incomplete",
        "x: 1 of 6 elements was never written, the first is x[1, 2]",
        "let the kernel write all of them, or give --partial",
    ]
    assert np.load("x.npy").ravel()[:5].tolist() == [0, 1, 2, 3, 4]
    assert main(unwritten("--json")) == 1
    assert json.loads(capsys.readouterr().out)["unwritten"] == [
        {"array": "x", "count": 1, "size": 6, "first": [1, 2]}
    ]


@pytest.mark.usefixtures("folder")
def test_unwritten_elements_are_allowed_by_option(capsys):
    assert main(unwritten("--partial")) == 0
    printed = capsys.readouterr().err
    assert "incomplete\nx: 1 of 6 elements was never written, the first is x[1, 2]\nfill on" in printed
    assert main(unwritten(shape="5")) == 0
    assert "incomplete" not in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_race_under_several_schedules_is_reported_once(capsys):
    (Path() / "shared.cu").write_text(
        "__global__ void k(int* y) { __shared__ int t[128]; int i = threadIdx.x; t[i] = i; y[i] = t[127-i]; }"
    )
    assert (
        main(["run", "shared.cu", "--grid=1", "--block=128", "--arg=zeros:int32:128", "--schedules=4"]) == 1
    )
    printed = capsys.readouterr()
    assert (printed.out + printed.err).count("race: read of t[127]") == 1
    assert "ends without a fault; a fault stops random, seed 1:\n  shared.cu:1: " in printed.out
    assert "elements differ" not in printed.out


@pytest.mark.at_most(7)
@pytest.mark.slow_cases("*while (true)*")
@pytest.mark.parametrize(
    "body",
    [
        "__trap();",
        "assert(x == nullptr);",
        "*(int*)1 = 1;",
        "while (true) __nanosleep(1);",
        "*x += threadIdx.x;",
    ],
)
@pytest.mark.parametrize("options", [(), ("--json",), ("--schedules", "2")], ids=" ".join)
def test_a_fault_exits_with_1(folder, capsys, body, options):
    (folder / "k.cu").write_text(f"#include <assert.h>\n__global__ void k(int* x) {{ {body} }}")
    assert main(["run", "k.cu", "--grid=1", "--block=32", "--arg=zeros:int32:1", *options]) == 1
    capsys.readouterr()


# What it refuses


REFUSED = [
    (["run", "no.cu", "--grid", "1", "--block", "1"], ["no.cu cannot be read", "give a .cu or .ptx"]),
    (["run", "x.npy", "--grid", "1", "--block", "1"], ["x.npy is neither CUDA C++ nor PTX"]),
    (["run", "saxpy.cu"], ["--grid"]),
    (["run", "saxpy.cu", "--grid", "1"], ["--block"]),
    (["run", "two.cu", "--grid", "1", "--block", "1"], ["two.cu has 2 kernels", "fill, last"]),
    (["run", "two.cu", "--kernel", "x", "--grid", "1", "--block", "1"], ["no kernel 'x'", "fill, last"]),
    (saxpy("--kernel", "sax"), ["no kernel 'sax'"]),
    (saxpy("--device", "tpu"), ["'--device'", "'sim', 'cuda'"]),
    (saxpy("--checks", "race=off"), ["'race' is not a kind"]),
    (saxpy("--checks", "rise"), ["'rise' is not an action"]),
    (saxpy("--checks", "report,races=off"), ["checks: report,races=off"]),
    (saxpy("--observe", "bank"), ["nothing called 'bank'", "choose among them, or --observe all"]),
    (saxpy("--cc", "nine"), ["--cc nine", "--cc 8.0"]),
    (saxpy("--cc", "1.0"), ["does not compile for compute capability 1.0", "it does for 7.5, 8.0,"]),
    (saxpy("--shared", "-1"), ["--shared"]),
    (saxpy("--schedules", "1"), ["--schedules"]),
    (saxpy("--budget", "0"), ["--budget"]),
    (saxpy("--no-such-option"), ["--no-such-option"]),
    (saxpy("--arg", "1"), ["takes 4 arguments, 5 given"]),
    (saxpy(y="bad.npy"), ["bad.npy does not hold an array"]),
    (saxpy(y="none.npy"), ["none.npy: No such file"]),
    (saxpy(y="one"), ["--arg one", "out:float32:1024"]),
    (saxpy(y="out:float33:3"), ["'float33' is not a dtype"]),
    (saxpy(y="out:float32:"), ["--arg out:float32:"]),
    (saxpy(n=2**40), ["argument 0 is 1099511627776"]),
    (saxpy("--grid", "1,1,1,1"), ["--grid 1,1,1,1"]),
    (saxpy("--grid", "a"), ["--grid a"]),
    (saxpy("--grid", "0x2"), ["--grid 0x2: not one to three positive integers"]),
    (saxpy("--block", "\u0663\u0662"), ["not one to three positive integers"]),
    (saxpy("--cc", "\u0669.0"), ["not a compute capability"]),
    (saxpy("--cc", "6.6"), ["does not compile for compute capability 6.6"]),
    (saxpy(n="\u0663"), ["not a .npy file, a number, or an array"]),
    (saxpy(y="out:int32:1099511627776"), ["out:int32:1099511627776 would take 4398046511104 bytes"]),
    (saxpy(y="zeros:int32:1099511627776"), ["more than this machine has\nmake it smaller"]),
    (saxpy(y="zeros:int32:3x99999999999999999999"), ["more than this machine has"]),
    (
        ["run", "zero.ptx", "--grid", "1", "--block", "1"],
        ["zero.ptx is not a regular file\ngive a .cu or .ptx"],
    ),
    (["run", "fifo.cu", "--grid", "1", "--block", "1"], ["fifo.cu is not a regular file"]),
    (["run", "sparse.ptx", "--grid", "1", "--block", "1"], ["sparse.ptx has more than 256 MiB"]),
    (["coverage", "zero.ptx"], ["zero.ptx is not a regular file"]),
    (saxpy("--block", "2000"), ["2000 threads"]),
    (saxpy("-o", "x.npy"), ["x.npy cannot be created", "-o"]),
]


def contents():
    """The contents of the files in the folder; None for files of endless length."""
    endless = ("zero.ptx", "fifo.cu", "sparse.ptx")
    return {path: None if path.name in endless else path.read_bytes() for path in Path().iterdir()}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("arguments", "parts"), REFUSED, ids=[parts[0] for _, parts in REFUSED])
def test_unsuitable_arguments_are_refused(capsys, arguments, parts):
    before = contents()
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err
    for part in parts:
        assert part in printed.err
    assert contents() == before


def test_host_code_and_compile_errors_are_reported(folder, capsys, monkeypatch):
    monkeypatch.setattr("simwarp.run.source.has_nvcc", lambda: False)
    (folder / "host.cu").write_text(SAXPY + "int main() { saxpy<<<1, 1>>>(0, 0, 0, 0); }\n")
    assert main(["run", "host.cu", "--grid", "1", "--block", "1"]) == 2
    printed = capsys.readouterr().err.splitlines()
    assert "host.cu has code for the host: `int main(` in line 8" in printed[0]
    assert printed[1].startswith("pip install 'simwarp[nvcc]'")
    assert printed[2].endswith("nvcc -ptx -arch=sm_90 -lineinfo -o host.ptx host.cu")
    assert printed[3].endswith("simwarp run host.ptx …")
    (folder / "wrong.cu").write_text(SAXPY.replace("= a", "= b"))
    assert main(["run", "wrong.cu", "--grid", "1", "--block", "1"]) == 2
    assert 'wrong.cu(5): error: identifier "b" is undefined' in capsys.readouterr().err


def test_an_unsupported_instruction_is_reported(folder, capsys):
    (folder / "copy.cu").write_text(
        '__global__ void k(int* y) {\n float x = 1; asm volatile("redux.sync.min.f32 %0, %0, -1;" : "+f"(x));'
        " y[threadIdx.x] = x; }\n"
    )
    command = ["run", "copy.cu", "--grid=1", "--block=32", "--arg=out:int32:32"]
    assert main(command) == 2
    what, runs, advice = capsys.readouterr().err.splitlines()
    assert what.startswith("copy.cu:2: `redux.sync.min.f32")
    assert "of the PTX, is not supported" in what
    assert runs.startswith("of redux, this version runs redux.sync")
    assert "simwarp coverage" in advice
    assert main(["coverage", "copy.cu"]) == 1
    assert "redux.sync.min.f32" in capsys.readouterr().out
    assert main(["coverage", "fill.cu"]) == 0


@pytest.mark.usefixtures("folder")
def test_a_missing_gpu_is_reported(capsys, monkeypatch):
    def nothing():
        raise NoGpuError("no CUDA device can be used: none found\npass device=simwarp.Device()")

    monkeypatch.setattr("gpu.cuda.default_device", nothing)
    assert main(saxpy("--device", "cuda")) == 2
    assert capsys.readouterr().err.splitlines() == [
        "no CUDA device can be used: none found",
        "give --device sim to run on the simulator",
    ]
    assert main(saxpy("--device", "cuda", "--observe", "banks")) == 2
    assert "are for the simulator" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_failed_write_leaves_no_file(capsys, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("reference.files.os.fsync", full)
    before = sorted(Path().iterdir())
    assert main(saxpy()) == 2
    assert "y.npy cannot be written: No space left" in capsys.readouterr().err
    assert sorted(Path().iterdir()) == before
    assert (np.load("y.npy") == 1).all()


@pytest.mark.usefixtures("folder")
def test_ctrl_c_exits_with_130_and_keeps_the_input(monkeypatch, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("simwarp.run.kernel.run_on", stop)
    assert main(saxpy()) == 130
    assert capsys.readouterr().err.endswith("stopped\n")
    assert (np.load("y.npy") == 1).all()


READY = """
import sys
import simwarp.cli.commands
from simwarp.cli import main
print("ready", flush=True)
sys.exit(main(sys.argv[1:]))
"""


def cpu_seconds(process):
    """CPU time of a running process."""
    user, system = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads CPU times as Linux gives them")
def test_ctrl_c_stops_the_installed_command(folder):
    arguments = one("endless", "--budget", str(10**12), "--checks", "off")
    before = sorted(path.name for path in folder.iterdir())
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", READY, *arguments],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "ready\n"
        ready = cpu_seconds(process)
        while cpu_seconds(process) < ready + 2:  # the kernel is running by then, even on a busy machine
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert out == ""
    assert "Traceback" not in err
    assert sorted(path.name for path in folder.iterdir()) == before


def test_run_bmm_still_multiplies_matrices(folder, capsys):
    np.save(folder / "a.npy", np.ones((3, 40)))
    assert main(["run", "bmm", "a.npy", "a.npy", "--transpose-b", "-o", "c.npy"]) == 0
    assert np.load("c.npy").tolist() == [[40] * 3] * 3
    assert main(["run", "--help"]) == 0
    printed = capsys.readouterr().out
    assert "bmm" in printed
    assert "--grid" in printed
    assert "FILE [OPTIONS]" not in printed
