"""The command line: all commands by panel, imported when they run, and the exit codes of their errors."""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from reference.errors import SimwarpError
from simwarp.cli.output import STOPPED
from simwarp.faults import KernelFault

PANELS: dict[str, dict[str, tuple[str, str]]] = {
    "Kernels": {
        "run": ("run.run_app", "Run your own kernel, or a production kernel, on files."),
        "exec": ("exec.exec_app", "Run a whole CUDA program, without a GPU, under all checks."),
        "check": (
            "check.check_command",
            "Check a kernel under several schedules, for a gate; or plant faults that the checks must name.",
        ),
        "verify": (
            "verify.verify_command",
            "Run every tier on the same inputs and compare the results bit for bit.",
        ),
        "new": ("new.new_app", "Write a file to begin with: a case of your own."),
        "ptx": (
            "ptx.ptx_command",
            "Show the PTX of each source line, with its instructions, bytes and operations.",
        ),
        "coverage": (
            "coverage.coverage_command",
            "List the supported PTX instructions with their evidence, or check whether a file's kernels run.",
        ),
        "trace": ("trace.trace_app", "Show stored traces, and compare them."),
        "bench": (
            "bench.bench_app",
            "Time products and convolutions of ±1 beside torch's and CuPy's, and sparse formats.",
        ),
    },
    "Layouts and formats": {
        "layout": ("layout.layout_command", "Draw which word of a packed bit matrix holds each element."),
        "frag": (
            "frag.frag_command",
            "Show which lane, register and bit hold each element of a matrix instruction's operands.",
        ),
        "exclude": (
            "exclude.exclude_command",
            "Draw which taps of a convolution fall outside the image, and count them for every output pixel.",
        ),
        "tensor": ("tensor.tensor_app", "Look at files of sparse tensors, and convert them."),
        "cpd": (
            "cpd.cpd_command",
            "Decompose a sparse tensor into a sum of outer products, by alternating least squares.",
        ),
    },
    "Networks": {
        "net": ("net.net_app", "Look at binarized networks, run them on images, convert and study them.")
    },
    "Several devices": {
        "blas": (
            "blas.blas_app",
            "Level-3 BLAS over several devices: plans, timelines, and policies beside one another.",
        )
    },
    "Larger than the device": {
        "ooc": (
            "ooc.ooc_app",
            "Convolutions and networks larger than the device: plans, timelines, the paper's figures,"
            " training.",
        )
    },
    "The papers": {
        "paper": (
            "paper.paper_command",
            "Make figures and tables of the five papers: printed numbers beside ours, and why they differ.",
        )
    },
    "This installation": {
        "info": ("info.info_command", "List what is installed, and what can run here."),
        "cache": ("cache.cache_app", "Compiled kernels on disk."),
    },
    "Laboratory": {
        "fuzz": (
            "fuzz.fuzz_command",
            "Run random PTX programs: all devices must agree on every word, and so must equivalent mutants.",
        ),
        "probe": (
            "probe.probe_command",
            "Find fragment maps by experiment, and compare them with those of simwarp.fragments.",
        ),
        "record": (
            "record.record_command",
            "Record the results of hardware, with their origin: GPU, driver, NVRTC, date, commit, PTX "
            "digests.",
        ),
    },
}
"""The commands of each panel of ``simwarp --help``: where in `simwarp.cli` each is, and its short help."""


_SMALLER = "give smaller arrays, or run it where more memory is free"


class Commands(TyperGroup):
    """The commands of ``simwarp``; only the command that runs is imported. Ctrl-C raises `typer.Abort`."""

    def __init__(self, **options: Any) -> None:
        stubs = [
            TyperCommand(name, help=text, rich_help_panel=panel)
            for panel, commands in PANELS.items()
            for name, (_, text) in commands.items()
        ]
        options["commands"] = stubs
        super().__init__(**options)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the arguments name, and import its module."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load(command.name or ""), rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a KeyboardInterrupt becomes `typer.Abort`."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Abort from None


def load(name: str) -> Any:
    """Import the module of a command, and return its Click command or group."""
    place = next(commands[name][0] for commands in PANELS.values() if name in commands)
    module, attribute = place.split(".")
    found = getattr(import_module(f"simwarp.cli.{module}"), attribute)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        alone.command(name)(found)
        return get_command(alone)
    found.info.name = name
    return get_group(found)


app = typer.Typer(
    name="simwarp",
    cls=Commands,
    help="A GPU in NumPy, and the production kernels that it tests.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    """Print the version and exit, if ``--version`` was given."""
    if wanted:
        from reference.version import __version__

        sys.stdout.write(f"simwarp {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", "-V", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """A GPU in NumPy, and the production kernels that it tests."""


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code; a user's error is printed without a traceback.

    >>> run(["info", "--no-such-option"])
    2
    """
    with _interrupts() as interrupts:
        try:
            result: Any = app(arguments, prog_name="simwarp", standalone_mode=False)
        except typer.Exit as stop:
            if stop.exit_code == STOPPED:
                sys.stderr.write("stopped\n")
            return int(stop.exit_code)
        except (Exception, KeyboardInterrupt) as error:
            known = isinstance(error, SimwarpError | KernelFault)
            return _code_of(typer.Abort() if interrupts and not known else error)
    return result if isinstance(result, int) else 0


@contextmanager
def _interrupts() -> Generator[list[int]]:
    """Record each Ctrl-C, since interrupted code may raise another error (a class body in Python 3.11)."""
    noted: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        signal.default_int_handler(number, frame)

    before, is_main = signal.getsignal(signal.SIGINT), current_thread() is main_thread()
    if before is not signal.default_int_handler or not is_main:
        yield noted
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


def _code_of(error: BaseException) -> int:
    """Print a user's error, and return its exit code; re-raise any other error."""
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        sys.stderr.write("stopped\n")
        return STOPPED
    if type(error).__module__.startswith(("click", "typer")):
        return _usage_error(error)
    if isinstance(error, MemoryError) and not isinstance(error, SimwarpError):
        sys.stderr.write(f"the memory of this machine ended: {error or 'no reason is known'}\n{_SMALLER}\n")
        return 2
    if not isinstance(error, SimwarpError | KernelFault):
        raise error
    sys.stderr.write(f"{error}\n")
    return 1 if isinstance(error, KernelFault) else 2


def _usage_error(error: Any) -> int:
    """Print an error of the options, with the command whose help lists them."""
    context = getattr(error, "ctx", None)
    command = " ".join(context.command_path.split()) if context else "simwarp"
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    sys.stderr.write(f"{message}\nsee {command} --help\n")
    return 2
