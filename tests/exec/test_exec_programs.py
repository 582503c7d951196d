"""Whole programs on the simulated device, built by nvcc: each checks itself, its report is checked here."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from reference.errors import CompileError, InputFileError
from simwarp.cli import main
from simwarp.exec import Report, check_program, execute
from simwarp.exec.build import build_program, runtime_folder
from simwarp.exec.device_memory import CallFault, HostAccess
from simwarp.exec.server import Server
from simwarp.faults import (
    AssertionFailed,
    KernelFault,
    Livelock,
    OutOfBounds,
    Race,
    TextureFault,
    UninitialisedRead,
)
from simwarp.run.nvcc import has_nvcc, nvcc_command

PROGRAMS = Path(__file__).parent / "programs"
CC = (9, 0)
OPTIONS = {
    "driver": ["-lcuda"],
    "driver_textures": ["-lcuda"],
    "mixed": ["-lcuda"],
    "linked": ["-rdc=true", str(PROGRAMS / "linked_part.cu")],
}
"""More options of nvcc by program."""
Build = Callable[[str], Path]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_nvcc(), reason="nvcc (pip install 'simwarp[nvcc]') or g++ is not installed"),
]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Build a program, once for all workers."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "exec-programs"
    folder.mkdir(exist_ok=True)

    def built(name: str) -> Path:
        program = folder / name
        with (folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not program.exists():
                build_program(PROGRAMS / f"{name}.cu", program, CC, OPTIONS.get(name, []))
        return program

    return built


def line(name: str, text: str) -> tuple[str, int]:
    """File and line number of a line of a program that contains a text."""
    lines = (PROGRAMS / f"{name}.cu").read_text().splitlines()
    return f"{name}.cu", next(i for i, one in enumerate(lines, 1) if text in one)


def at(fault: KernelFault) -> tuple[str | None, int | None]:
    return fault.place.source_file, fault.place.source_line


def run(program: Path, *arguments: str) -> Report:
    return execute(program, arguments, quiet=True)


@pytest.mark.at_most(5)
@pytest.mark.parametrize(
    ("name", "arguments", "kernels"),
    [
        ("reduction", ("--size", "1000"), {"add": 1, "reduce<float>": 1}),
        ("streams", (), {"scale": 2}),
        ("cooperative", (), {"rotate": 1}),
        ("managed", (), {"count": 2}),
        ("symbols", (), {"multiply": 1}),
        ("cluster", (), {"exchange": 1}),
        ("tensor_map", (), {"tile": 1}),
        ("linked", (), {"first": 1, "second": 1}),
        ("mixed", (), {"add": 2}),
        ("textures", (), {"sample": 1, "layers": 1, "volume": 1}),
    ],
)
def test_a_right_program_is_right_and_without_findings(
    build: Build,
    capfd: pytest.CaptureFixture[str],
    name: str,
    arguments: tuple[str, ...],
    kernels: dict[str, int],
) -> None:
    report = run(build(name), *arguments)
    assert capfd.readouterr().out == f"{name}: right\n"
    assert (report.exit_code, report.findings) == (0, [])
    assert dict(report.kernels) == kernels
    assert report.executed > 0
    assert not report.missing


def test_a_program_of_the_driver_is_right_and_its_wrong_calls_are_in_the_report(
    build: Build, capfd: pytest.CaptureFixture[str]
) -> None:
    report = run(build("driver"))
    assert capfd.readouterr().out == "driver: right\n"
    assert (report.exit_code, report.findings, dict(report.kernels)) == (0, [], {"scale": 2})
    assert set(report.failed) == {
        ("cuDeviceGetCount", "CUDA_ERROR_NOT_INITIALIZED"),
        ("cuMemAlloc", "CUDA_ERROR_INVALID_CONTEXT"),
        ("cuModuleGetFunction", "CUDA_ERROR_NOT_FOUND"),
        ("cuPointerGetAttribute", "CUDA_ERROR_INVALID_VALUE"),
        ("cuModuleLoadData", "CUDA_ERROR_NO_BINARY_FOR_GPU"),
    }
    assert any("machine code (a cubin)" in note for note in report.notes)


def test_the_drivers_textures_are_right_until_one_is_destroyed(
    build: Build, capfd: pytest.CaptureFixture[str]
) -> None:
    report = run(build("driver_textures"))
    assert capfd.readouterr().out == "driver_textures: right\n"
    assert [type(fault) for fault in report.findings] == [TextureFault]
    assert at(report.findings[0]) == line("driver_textures", "tex2D<float>(in")
    assert set(report.failed) == {("cuTexObjectDestroy", "CUDA_ERROR_INVALID_VALUE")}
    assert report.exit_code == 0


def test_a_graph_is_launched_as_it_was_captured_and_built(
    build: Build, capfd: pytest.CaptureFixture[str]
) -> None:
    report = run(build("graphs"))
    assert capfd.readouterr().out == "graphs: right\n"
    assert report.kernels["add"] == 13
    assert [type(fault) for fault in report.findings] == [UninitialisedRead, CallFault]


def test_a_race_is_found_and_the_program_goes_on(build: Build, capfd: pytest.CaptureFixture[str]) -> None:
    report = execute(build("race"))
    printed = capfd.readouterr()
    assert (printed.out, report.exit_code) == ("race: ended\n", 0)
    (race,) = report.findings
    assert isinstance(race, Race)
    assert at(race) == line("race", "tile[63 - threadIdx.x]")
    assert str(race) in printed.err


def test_the_schedule_is_that_of_the_options(build: Build, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", "--schedule", "random", "--seed", "3", str(build("lock"))]) == 0
    assert capfd.readouterr().out == "lock: cudaSuccess 32\n"
    report = execute(build("lock"), schedule="stack", quiet=True)
    assert (report.findings, "independent progress" in report.notes[0]) == ([], True)
    assert capfd.readouterr().out == "lock: cudaErrorNotSupported 0\n"


def test_a_write_out_of_bounds_is_an_error_that_stays(
    build: Build, capfd: pytest.CaptureFixture[str]
) -> None:
    report = run(build("bounds"))
    assert capfd.readouterr().out == "bounds: the error stays\n"
    assert report.exit_code == 9
    (fault,) = report.findings
    assert isinstance(fault, OutOfBounds)
    assert at(fault) == line("bounds", "x[threadIdx.x] = 1")
    assert (fault.offset, fault.element, fault.allocation) == (400, "x[100]", "x")


def test_unwritten_memory_is_found_on_the_device_and_in_managed_pages(build: Build) -> None:
    report = run(build("uninitialised"))
    assert report.exit_code == 0
    first, second, copy, free = report.findings
    assert isinstance(first, UninitialisedRead)
    assert isinstance(second, UninitialisedRead)
    assert (first.offset, second.offset) == (63 * 4, 50000 * 4)
    assert isinstance(copy, OutOfBounds)
    assert isinstance(free, OutOfBounds)
    assert report.failed["cudaFree", "cudaErrorInvalidValue"] == 1


def test_a_host_that_reads_device_memory_is_named_before_it_crashes(
    build: Build, capfd: pytest.CaptureFixture[str]
) -> None:
    report = run(build("host_crash"))
    assert capfd.readouterr().out == "before\n"
    assert (report.exit_code, report.to_json()["signal"]) == (128 + signal.SIGSEGV, signal.SIGSEGV)
    (fault,) = report.findings
    assert isinstance(fault, HostAccess)
    assert fault.offset == 16
    assert "the host reads device memory" in str(fault)


def test_a_call_of_what_the_runtime_lacks_is_in_the_report(build: Build) -> None:
    report = run(build("unsupported"))
    assert report.exit_code == 0
    assert dict(report.missing) == {"cudaMallocMipmappedArray": 1}


def test_a_kernel_that_never_ends_is_stopped_with_a_timeout(
    build: Build, capfd: pytest.CaptureFixture[str]
) -> None:
    report = run(build("deadlock"))
    assert capfd.readouterr().out == "deadlock: cudaErrorLaunchTimeout\n"
    assert report.exit_code == 1
    assert [type(fault) for fault in report.findings] == [Livelock]


def test_output_of_kernels_and_host_is_in_order(build: Build, capfd: pytest.CaptureFixture[str]) -> None:
    report = run(build("printing"))
    assert capfd.readouterr().out.splitlines() == [
        "host 0",
        "kernel 1, thread 0",
        "kernel 1, thread 1",
        "host 1",
        "kernel 2, thread 0",
        "cudaErrorAssert",
    ]
    assert [type(fault) for fault in report.findings] == [AssertionFailed]


def test_the_command_builds_a_source_and_writes_its_report(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, source = tmp_path / "report.json", str(PROGRAMS / "race.cu")
    assert main(["exec", "--report", str(path), "--error-exitcode", "7", source]) == 7
    assert capfd.readouterr().out == "race: ended\n"
    report = json.loads(path.read_text())
    assert (report["exit_code"], [one["class"] for one in report["findings"]]) == (0, ["Race"])
    assert main(["exec", "--checks", "races=off", "--error-exitcode", "7", "--json", source]) == 0
    assert json.loads(capfd.readouterr().out)["findings"] == []


def test_a_source_that_does_not_compile_is_an_error_with_the_compilers_output(tmp_path: Path) -> None:
    source = tmp_path / "wrong.cu"
    source.write_text("int main() { return nothing; }\n")
    with pytest.raises(CompileError, match="nothing"):
        execute(source)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["-cudart", "static", "-gencode", "arch=compute_90,code=compute_90"], "static CUDA runtime"),
        (["-cudart", "shared", "-gencode", "arch=compute_80,code=sm_80"], "machine code"),
        (["-cudart", "shared", "-gencode", "arch=compute_100,code=compute_100"], "compute_100"),
    ],
)
def test_programs_that_cannot_run_are_refused_with_the_flags_to_build_with(
    tmp_path: Path, flags: list[str], reason: str
) -> None:
    program = tmp_path / "program"
    source = PROGRAMS / "race.cu"
    command = [
        *nvcc_command(),
        "--no-compress",
        *("-cudadevrt", "none"),
        *flags,
        f"-L{runtime_folder()}",
        "-o",
        str(program),
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "static" in flags and "cannot find -lcudart_static" in done.stderr:
        pytest.skip("this nvcc comes without the static runtime")
    assert done.returncode == 0, done.stderr
    with pytest.raises(InputFileError, match=reason) as found:
        check_program(program, CC)
    assert "nvcc -cudart shared -gencode arch=compute_90,code=compute_90" in str(found.value)


def start(program: Path, report: Path) -> tuple[subprocess.Popen[str], int]:
    """Start a program that does not end; its simulator's process, and its own number."""
    command = [sys.executable, "-m", "simwarp", "exec", "--report", str(report), str(program)]
    simulator = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert simulator.stdout is not None
    return simulator, int(simulator.stdout.readline())


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.at_most(2)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["endless", "counting"])
def test_a_stopped_run_writes_its_report_and_leaves_no_process(
    build: Build, tmp_path: Path, name: str, number: signal.Signals
) -> None:
    report = tmp_path / "report.json"
    simulator, pid = start(build(name), report)
    simulator.send_signal(number)
    _, error = simulator.communicate(timeout=30)
    assert simulator.returncode == 130, error
    assert not lives(pid)
    assert json.loads(report.read_text())["stopped"]


def test_a_simulator_that_fails_leaves_no_process(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(server: Server, message: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(Server, "answer", fail)
    program = build("endless")
    with pytest.raises(RuntimeError, match="planted"):
        run(program)
    running = [os.path.realpath(link) for link in Path("/proc").glob("[0-9]*/exe")]
    assert str(program.resolve()) not in running


def test_a_simulator_that_is_killed_takes_the_program_with_it(build: Build, tmp_path: Path) -> None:
    simulator, pid = start(build("endless"), tmp_path / "report.json")
    assert lives(pid)
    simulator.kill()
    simulator.communicate(timeout=30)
    deadline = time.monotonic() + 10
    while lives(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not lives(pid)
