"""The second device of a comparison: one of this process, or a GPU in a process of its own.

A launch on a GPU cannot be stopped from its process. So the GPU has a process that is killed when the time of
a launch is over, and the driver ends the context with it. That process also ends when this one does.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gpu.device import is_array, is_foreign
from reference.errors import LaunchError, SchemeError, SimwarpError
from simwarp.program.bind import target_number
from simwarp.ptx.mangled_names import readable
from simwarp.ptx.syntax import Module
from simwarp.run.arguments import Argument
from simwarp.run.binding import givens
from simwarp.run.both.program_launch import Contents, ProgramLaunch, repeated
from simwarp.run.both.settings import Both, ChipTimeoutError, NotComparedError
from simwarp.run.values import Out, Surface, Texture, on_host
from simwarp.run.work import Work

Words = npt.NDArray[np.uint64]

UNWRITTEN = 0xA5
"""The bytes of memory that nothing wrote, on both devices."""
_START = 300.0
"""Seconds that the GPU's process may take to start, and the driver to compile a kernel."""
_LAUNCHES = count()
"""Numbers of launches, so that each has PTX of its own: a GPU keeps the variables of a loaded module."""
_PROGRAM = """
import sys
from multiprocessing.connection import Connection
line = Connection(int(sys.argv[1]))
sys.path[:] = line.recv()
from simwarp.run.both.devices import serve
serve(line)
"""


@dataclass(frozen=True)
class Dump:
    """A buffer that a kernel receives behind its own arguments.

    Its first word becomes the address of the byte ``watched``, an argument's position and an offset.
    """

    words: Words
    watched: tuple[int, int] | None = None


@dataclass(frozen=True)
class Answer:
    """What a launch left on a device."""

    arrays: dict[int, npt.NDArray[Any]]  # by position among the arguments
    addresses: dict[int, int]  # of these arrays
    words: Words = field(default_factory=lambda: np.empty(0, np.uint64))  # of the dump


class Second(Protocol):
    """The second device."""

    @property
    def name(self) -> str:
        """The chip's name."""
        ...

    @property
    def compute_capability(self) -> tuple[int, int]:
        """Its compute capability, (major, minor)."""
        ...

    def answer(self, work: Work, dump: Dump | None = None) -> Answer:
        """Launch the kernel, and return its arrays."""
        ...

    def repeat(self, launch: ProgramLaunch) -> Contents:
        """Repeat a launch of a whole program, and return what its memory then holds."""
        ...


def answer(
    device: Any,
    work: Work,
    dump: Dump | None = None,
    begins: Callable[[list[Argument]], object] = lambda arguments: None,
) -> Answer:
    """Launch a kernel on a device of this process; ``begins`` receives its arguments just before."""
    work = _afresh(work)
    arguments = work.prepare(device)
    if dump is not None:
        words = dump.words.copy()
        if dump.watched is not None:
            position, offset = dump.watched
            words[0] = arguments[position].value.pointer + offset
        arguments.append(Argument(len(arguments), "dump", device.upload(words)))
    work.start(device, arguments, lambda: begins(arguments))
    arrays = {a.position: a.value.download() for a in arguments if a.is_array}
    addresses = {a.position: int(a.value.pointer) for a in arguments if a.is_array}
    if dump is None:
        return Answer(arrays, addresses)
    last = arguments[-1].position
    del addresses[last]
    return Answer(arrays, addresses, arrays.pop(last))


def _afresh(work: Work) -> Work:
    """The launch with PTX that no device has loaded, whose variables thus have their initial values."""
    if not any(variable.space == "global" for variable in work.source.module.variables):
        return work
    ptx = f"{work.source.ptx}\n// launch {next(_LAUNCHES)}\n"
    return replace(work, source=replace(work.source, ptx=ptx))


def with_equal_bytes(work: Work) -> Work:
    """The launch with host arrays as arguments, those to fill with the bytes of memory that nothing wrote."""
    known: dict[int, Any] = {}

    def plain(value: Any, name: str) -> Any:
        if id(value) not in known:
            known[id(value)] = _on_host(value, name)
        return known[id(value)]

    names = work.source.parameters(work.kernel)
    args = [
        replace(one, value=plain(one.value, one.label or (names[i] if i < len(names) else f"argument {i}")))
        for i, one in enumerate(givens(work.args))
    ]
    return replace(work, args=args, source=replace(work.source, unoptimised=None))


def _on_host(value: Any, name: str) -> Any:
    """An argument as a value that both devices can take."""
    if isinstance(value, Out):
        return np.full(value.shape, np.frombuffer(bytes([UNWRITTEN]) * value.dtype.itemsize, value.dtype)[0])
    if isinstance(value, Surface | Texture):
        return replace(value, array=_on_host(value.array, name))
    if is_array(value) or is_foreign(value):
        raise SchemeError(
            f"{name} is an array on a device\nboth devices take the same bytes, from the host\n"
            "pass its copy on the host: numpy.asarray(…)"
        )
    return on_host(value, name)


def check_target(module: Module, chip: Second) -> None:
    """Raise LaunchError if the second device cannot run the module's target."""
    major, minor = chip.compute_capability
    have, wanted = 10 * major + minor, target_number(module)
    alone = module.target[-1:] in ("a", "f")
    if wanted > have or (alone and wanted != have):
        needs = f"sm_{wanted} itself" if alone else f"sm_{wanted} or later"
        raise LaunchError(
            f"the kernel is PTX for {module.target}, {chip.name} is sm_{have}\nthe target needs {needs}\n"
            f"compile for this chip: --cc {major}.{minor}, cc=({major}, {minor}), or nvcc -arch=sm_{have}"
        )


@contextmanager
def second_device(both: Both) -> Generator[Second]:
    """The second device of a comparison; a process that it has ends with the block."""
    if both.other is not None:
        yield Here(both.other)
        return
    both.show("starting the GPU")
    chip = Apart(first_gpu, both.seconds)
    try:
        chip.start()
        yield chip
    finally:
        chip.close()


@dataclass(frozen=True)
class Here:
    """A device of this process."""

    device: Any

    @property
    def name(self) -> str:
        """The device's name."""
        return str(self.device.name)

    @property
    def compute_capability(self) -> tuple[int, int]:
        """The device's compute capability."""
        return self.device.compute_capability

    def answer(self, work: Work, dump: Dump | None = None) -> Answer:
        """Launch the kernel, and return its arrays."""
        return answer(self.device, work, dump)

    def repeat(self, launch: ProgramLaunch) -> Contents:
        """Repeat a launch of a whole program, and return what its memory then holds."""
        return repeated(self.device, launch)


def first_gpu() -> Any:
    """The first GPU; raises NoGpuError without one, and SchemeError if GPUs of several kinds are visible."""
    from gpu.cuda import default_device
    from gpu.cuda.contexts import driver

    device: Any = default_device()
    visible = map(driver().Device, range(driver().Device.count()))
    check_alike([(str(one.name()), one.compute_capability()) for one in visible])
    return device


def check_alike(kinds: list[tuple[str, tuple[int, int]]]) -> None:
    """Raise SchemeError if several kinds of GPU are visible: nothing says which one is meant."""
    if len(set(kinds)) > 1:
        listed = ", ".join(f"{i}: {name}, sm_{10 * cc[0] + cc[1]}" for i, (name, cc) in enumerate(kinds))
        raise SchemeError(
            f"the GPUs of this machine differ ({listed})\na kernel is held against one of them\n"
            "name it: CUDA_VISIBLE_DEVICES=0, or Both(gpu.CudaDevice(0))"
        )


class Apart:
    """A device in a process of its own; ``make`` makes it there, and must be a function of a module."""

    name = ""
    compute_capability = (0, 0)

    def __init__(self, make: Callable[[], Any], seconds: float) -> None:
        self._make, self._seconds = make, seconds
        self._line, self._theirs = Pipe()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, and wait for its device."""
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, str(self._theirs.fileno())],
            pass_fds=[self._theirs.fileno()],
            stdin=subprocess.PIPE,  # never written: its end tells the process that this one is gone
            stdout=2,  # a kernel's printf writes there, and stdout has reports
            start_new_session=True,  # Ctrl-C reaches this process, which then ends that one
        )
        self._theirs.close()
        self._line.send(sys.path)
        self._line.send(self._make)
        self.name, self.compute_capability = self._received(_START, "the GPU did not start")

    def answer(self, work: Work, dump: Dump | None = None) -> Answer:
        """Launch the kernel, and return its arrays; ChipTimeoutError if it takes too long."""
        return self._asked(partial(answer, work=work, dump=dump), work.kernel.name)

    def repeat(self, launch: ProgramLaunch) -> Contents:
        """Repeat a launch of a whole program, and return what its memory then holds; see `answer`."""
        return self._asked(partial(repeated, launch=launch), launch.kernel)

    def _asked(self, task: Callable[..., Any], kernel: str) -> Any:
        """What a launch of a kernel gives in the process; it is called with the device and ``begins``."""
        self._line.send(task)
        self._received(_START, f"the driver did not compile {readable(kernel)}")
        return self._received(self._seconds, f"{readable(kernel)} did not end on {self.name}")

    def _received(self, seconds: float, what: str) -> Any:
        """The next reply; raises the exception of the process, or ChipTimeoutError after ``seconds``."""
        if not self._line.poll(seconds):
            self.close()
            raise ChipTimeoutError(
                f"{what} within {seconds:g} seconds\n"
                "its process was ended, and the GPU's context with it\n"
                "give it more time (--chip-seconds, seconds=), or look for a loop that waits for ever"
            )
        try:
            ok, value = self._line.recv()
        except (EOFError, OSError):
            self.close()
            code = None if self._process is None else self._process.returncode
            raise NotComparedError(
                f"the process of the GPU ended by itself, with exit code {code}\n"
                "the driver or the kernel ended it\nlook at its messages above, and run it with --device cuda"
            ) from None
        if not ok:
            raise value
        return value

    def close(self) -> None:
        """End the process, whatever it does."""
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()
        if process is not None:
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
        self._line.close()


def serve(line: Connection) -> None:
    """Answer the launches of the parent process, until it closes the line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    device: Any = None
    while True:
        try:
            asked = line.recv()
        except EOFError:
            return
        try:
            if device is None:
                device = asked()
                line.send((True, (str(device.name), tuple(device.compute_capability))))
                continue
            line.send((True, asked(device, begins=partial(_tell, line))))
        except Exception as error:
            line.send((False, _sendable(error)))


def _tell(line: Connection, *arguments: Any) -> None:
    """Tell the parent that the kernel is compiled and begins."""
    line.send((True, None))


def _end_with_parent() -> None:
    """End this process when the parent is gone, even while a kernel hangs."""
    sys.stdin.buffer.read()
    os._exit(1)


def _sendable(error: Exception) -> Exception:
    """The exception, if it survives the way through a pipe; else its text, as an exception of its class."""
    text = str(error) if isinstance(error, SimwarpError) else f"{type(error).__name__}: {error}"
    plain = [kind for kind in type(error).__mro__ if issubclass(kind, SimwarpError)]
    for make in (lambda: error, *(partial(kind, text) for kind in plain)):
        with suppress(Exception):
            return pickle.loads(pickle.dumps(make()))
    return SimwarpError(text)
