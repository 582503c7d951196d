"""``simwarp run --device both``: the options, and the comparison of the simulator with a GPU."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from reference.errors import NoGpuError, SchemeError
from simwarp.cli.output import Where
from simwarp.faults import KernelFault

if TYPE_CHECKING:
    from simwarp.device.device import Device
    from simwarp.run.both.devices import Second
    from simwarp.run.both.results import Compared
    from simwarp.run.both.settings import Both, NotComparedError
    from simwarp.run.kernel import Result
    from simwarp.run.tolerance import FloatOperations
    from simwarp.run.work import Work

Bits = Annotated[bool, typer.Option("--bits", help="With --device both: equal bits, the default.")]
Bound = Annotated[
    bool,
    typer.Option(
        "--bound", help="With --device both: floats may differ by what the run's roundings explain."
    ),
]
Bisect = Annotated[
    bool, typer.Option("--bisect", help="With --device both: find the first instruction that differs.")
]
Anyway = Annotated[
    bool,
    typer.Option("--compare-anyway", help="With --device both: compare a kernel with undefined behaviour."),
]
Seconds = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="With --device both: how long the GPU may run a launch; 60."),
]

_WORDS = {"bits": "--bits", "bound": "--bound", "bisect": "--bisect", "anyway": "--compare-anyway"}
"""The options that one device does not have, by the names of `Both`."""


def settings(
    device: Where, seconds: float | None, rtol: float | None, atol: float | None, **flags: Any
) -> Both | None:
    """The settings of ``--device both``; None for one device, for which these options are an error.

    ``flags`` are those of `Both`: ``bits``, ``bound``, ``bisect``, ``anyway`` and ``schedules``.
    """
    from simwarp.run.both.settings import Both

    if device is not Where.both:
        of_both = {name: value for name, value in flags.items() if name in _WORDS}
        given = [_WORDS[name] for name, value in of_both.items() if value]
        given += ["--chip-seconds"] if seconds is not None else []
        if given:
            raise SchemeError(
                f"{', '.join(given)} with --device {device}\nthese compare two devices\ngive --device both"
            )
        return None
    return Both(rtol=rtol, atol=atol, seconds=60.0 if seconds is None else seconds, **flags)


@contextmanager
def opened(both: Both | None, console: Console) -> Generator[Second | None]:
    """The GPU of a comparison, in a process of its own; None for one device."""
    from simwarp.run.both.devices import second_device

    if both is None:
        yield None
        return
    with ExitStack() as stack:
        try:
            with console.status("starting the GPU"):
                chip = stack.enter_context(second_device(both))
        except NoGpuError as error:
            raise NoGpuError(
                f"{str(error).splitlines()[0]}\n--device both needs a GPU beside the simulator\n"
                "give --device sim, or run it on a machine with one"
            ) from None
        yield chip


def compared(
    work: Work,
    result: Result,
    both: Both,
    chip: Second,
    simulator: Callable[..., Device],
    counted: FloatOperations | None,
    console: Console,
    words: Sequence[str],
) -> Compared:
    """Hold the simulator's result against the GPU's; ``words`` are those of the command."""
    from simwarp.run.both.compare import hold

    with console.status("comparing") as status:
        shown = replace(both, show=status.update)
        found = hold(work, result, shown, chip, simulator, counted=counted)
    return replace(found, replay=command("run", words))


def command(name: str, words: Sequence[str]) -> str:
    """The command that was typed, without its options for reports, so that it compares again."""
    return shlex.join(["simwarp", name, *(word for word in words if word not in ("--json", "--github"))])


def undefined(work: Work, faults: list[KernelFault]) -> NotComparedError:
    """The error for a kernel with findings, in the words of the command line."""
    from simwarp.ptx.mangled_names import readable
    from simwarp.run.both.settings import NotComparedError

    error = NotComparedError.of(faults, readable(work.kernel.name))
    error.args = (str(error).replace("with anyway=True", "with --compare-anyway"),)
    return error


def to_json(found: Compared | None, refused: NotComparedError | None) -> dict[str, Any] | None:
    """The comparison as plain data; None if none was asked for."""
    if refused is not None:
        return {"compared": False, "reason": str(refused)}
    return None if found is None else {"compared": True, **found.to_json()}
