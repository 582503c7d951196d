"""Execution of a program, from its start to the report."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from reference.errors import FormatError, InputFileError, SchemeError
from simwarp.checks import KINDS, NOTED, STRICT, for_all
from simwarp.chips.chips import multiprocessors_of
from simwarp.device.device import Device
from simwarp.exec.build import DRIVER, SONAME, build_program, runtime_folder
from simwarp.exec.chip_facts import memory_limit
from simwarp.exec.codes import STOPPING
from simwarp.exec.device_memory import DeviceMemory
from simwarp.exec.elf import read_elf
from simwarp.exec.fatbin import BUILD_WITH, choose_ptx, read_fatbins
from simwarp.exec.holder import Holder
from simwarp.exec.protocol import FD_VARIABLE, receive, send
from simwarp.exec.python_scripts import NO_NVVM, numba_home, pycuda_settings, script_command
from simwarp.exec.report import Report
from simwarp.exec.server import Server
from simwarp.run.both.devices import second_device
from simwarp.run.both.settings import Both

_GRACE = 2.0
"""Seconds that an interrupted program has to end by itself."""


def execute(
    program: Path,
    arguments: Sequence[str] = (),
    *,
    cc: tuple[int, int] | None = None,
    device: Any = None,
    checks: str | Mapping[str, str] | None = None,
    budget: int | None = 10**8,
    schedule: str = "lowest pc",
    seed: int = 0,
    nvcc: Sequence[str] = (),
    quiet: bool = False,
    stdout: int | None = None,
) -> Report:
    """Run a CUDA program or a Python script, or build and run a ``.cu`` file, on a simulated device.

    The program writes to our standard output and error; findings go to standard error at once.

    Parameters
    ----------
    program : Path
        The program, linked with the shared CUDA 13 runtime and with PTX embedded, or its source; or a script
        (``.py``) of Numba or of another package that uses the driver.
    arguments : sequence of str
        Of the program.
    cc : (int, int), optional
        The compute capability to simulate, by default 9.0, or that of the second device.
    device : optional
        "both" or a `simwarp.run.Both` holds each launch against a second device, see `Report.both`.
    checks : str or mapping of str to str, optional
        The action for faults, as in `simwarp.Device`; kinds that are not named have their default: those at
        which a chip stops are raised, the others are collected.
    budget : int, optional
        The most steps of a launch.
    schedule, seed : str, int
        The order of lanes, as in `simwarp.Device`.
    nvcc : sequence of str
        More options of nvcc.
    quiet : bool
        Whether to print no findings.
    stdout : int, optional
        The file descriptor that the program has as its standard output; by default ours.

    Raises
    ------
    InputFileError
        If the file is not such a program; the message has the flags to build it with.
    MissingExtraError, CompileError
        If the runtime or the program cannot be built.

    Examples
    --------
    >>> execute(Path("no-such-program.cu"))
    Traceback (most recent call last):
    ...
    reference.errors.InputFileError: no-such-program.cu cannot be read
    it is not a regular file
    give a program, or its source (.cu)
    """
    both = _both(device)
    with ExitStack() as stack:
        stack.enter_context(_terminable())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="simwarp-exec-")))
        chip = None if both is None else stack.enter_context(second_device(both))
        cc = cc or ((9, 0) if chip is None else chip.compute_capability)
        command, more, notes = _prepared(program, arguments, folder, cc, nvcc)
        report = Report(command, quiet=quiet)
        for note in notes:
            report.note(note)
        simulator = Device(
            cc,
            checks=_checks(checks),
            instruction_budget=budget,
            schedule=schedule,
            seed=seed,
            multiprocessors=multiprocessors_of(cc),
            memory=DeviceMemory.new_space(),
        )
        report.device = simulator.name
        server = Server(simulator, report, memory_limit())
        if both is not None and chip is not None:
            server.holder = Holder(both, chip, simulator, report)
        _run(server, report, stdout, more)
    return report


def _both(device: Any) -> Both | None:
    """The settings of a comparison; None for the simulator alone."""
    if device is not None and device != "both" and not isinstance(device, Both):
        raise SchemeError(
            f"execute: device is a {type(device).__name__}\na program runs on a simulated device\n"
            'pass device="both" or a Both, or omit it'
        )
    return Both() if device == "both" else device


def _prepared(
    program: Path, arguments: Sequence[str], folder: Path, cc: tuple[int, int], nvcc: Sequence[str]
) -> tuple[list[str], dict[str, str], list[str]]:
    """The command that runs a program, built if need be, with its environment variables, and notes."""
    if program.suffix == ".py":
        command, of_numba = script_command(_readable(program), arguments), numba_home(folder)
        lacks = not of_numba and b"numba" in program.read_bytes()
        return command, of_numba | pycuda_settings(), [NO_NVVM] * lacks
    if program.suffix == ".cu":
        return [str(_built(program, folder, cc, nvcc)), *arguments], {}, []
    check_program(program, cc)
    return [str(program), *arguments], {}, []


def check_program(program: Path, cc: tuple[int, int]) -> None:
    """Raise an error for a program that ``simwarp exec`` cannot run.

    Parameters
    ----------
    program : Path
    cc : (int, int)
        The compute capability to simulate.

    Raises
    ------
    InputFileError
        With the flags to build it with.

    Examples
    --------
    >>> check_program(Path("no-such-program"), (9, 0))
    Traceback (most recent call last):
    ...
    reference.errors.InputFileError: no-such-program cannot be read: No such file or directory
    give a program, or its source (.cu)
    """
    elf = read_elf(program)
    if not os.access(program, os.X_OK):
        raise InputFileError(
            f"{program} is not executable\nit is an ELF file without that permission\nchmod +x it"
        )
    build = f"build it with {BUILD_WITH.format(cc=10 * cc[0] + cc[1])}"
    runtimes = [name for name in elf.needed if name.startswith("libcudart.so")]
    others = [name for name in runtimes if name != SONAME]
    if others:
        raise InputFileError(
            f"{program} needs {others[0]}\nthis runtime is that of CUDA 13, {SONAME}\n{build} of CUDA 13.0"
        )
    code = elf.section(".nv_fatbin")
    if code and not runtimes:
        raise InputFileError(
            f"{program} contains the static CUDA runtime\n"
            f"simwarp cannot intercept calls of a static library\n{build}"
        )
    if elf.rpath:
        raise InputFileError(
            f"{program} looks for its libraries in {elf.rpath} first (DT_RPATH)\n"
            "it would load the libcudart of that folder, not simwarp's\n"
            "link it without -rpath, or with -Wl,--enable-new-dtags"
        )
    try:
        for entries in read_fatbins(code):
            if entries:
                choose_ptx(entries, cc)
    except FormatError as error:
        raise InputFileError(f"{program}: {error}") from None


def _built(source: Path, folder: Path, cc: tuple[int, int], options: Sequence[str]) -> Path:
    output = folder / source.stem
    build_program(_readable(source), output, cc, options)
    return output


def _readable(source: Path) -> Path:
    if not source.is_file():
        raise InputFileError(
            f"{source} cannot be read\nit is not a regular file\ngive a program, or its source (.cu)"
        )
    return source


def _checks(given: str | Mapping[str, str] | None) -> Mapping[str, str]:
    """Kind of check → its action, with defaults for the other kinds; "strict" adds notes."""
    default = {kind: "raise" if kind in STOPPING else "report" for kind in KINDS if kind not in STRICT}
    if given == "strict":
        given = dict.fromkeys(NOTED, "strict")
    named = for_all(given) if isinstance(given, str) else dict(given or {})
    collected = {kind: "report+strict" for kind, action in named.items() if action == "strict"}
    return default | named | {kind: action for kind, action in collected.items() if kind not in STOPPING}


def _run(server: Server, report: Report, stdout: int | None, more: Mapping[str, str]) -> None:
    """Start the program, serve its requests until it ends, and leave no process behind."""
    began = time.monotonic()
    ours, theirs = socket.socketpair()
    folder = runtime_folder()
    environment = {
        **os.environ,
        FD_VARIABLE: str(theirs.fileno()),
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")])),
        "NUMBA_CUDA_DRIVER": str(folder / DRIVER),
        **more,
    }
    try:
        with ours:
            child = _start(report.command, theirs, environment, stdout)
            try:
                _serve(server, ours, child)
                report.returncode = child.wait()
            except KeyboardInterrupt:
                _interrupt(child)
            finally:
                child.kill()
                child.wait()
    finally:
        theirs.close()
        server.finish()
        report.seconds = time.monotonic() - began


def _start(
    command: Sequence[str], theirs: socket.socket, environment: Mapping[str, str], stdout: int | None
) -> subprocess.Popen[bytes]:
    try:
        child = subprocess.Popen(
            [os.path.abspath(command[0]), *command[1:]],  # noqa: PTH100 - keeps links
            pass_fds=[theirs.fileno()],
            env=environment,
            stdout=stdout,
        )
    except OSError as error:
        raise InputFileError(
            f"{command[0]} cannot be started\n{error.strerror or error}\nbuild it on this machine"
        ) from None
    theirs.close()
    return child


def _serve(server: Server, end: socket.socket, child: subprocess.Popen[bytes]) -> None:
    """Answer requests until the program has ended or closed the socket."""
    ended = os.pidfd_open(child.pid)
    try:
        while True:
            ready, _, _ = select.select([end, ended], [], [])
            if end not in ready:
                return
            message = receive(end)
            if message is None:
                return
            send(end, server.answer(message))
    except (BrokenPipeError, ConnectionResetError):
        return
    finally:
        os.close(ended)


def _interrupt(child: subprocess.Popen[bytes]) -> None:
    """Interrupt a program, and give it a moment to clean up."""
    with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        child.send_signal(signal.SIGINT)
        child.wait(_GRACE)


@contextmanager
def _terminable() -> Generator[None]:
    """Treat SIGTERM as Ctrl-C, so that the report is written; only in the main thread."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # signals can be set in the main thread only
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
