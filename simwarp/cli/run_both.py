"""``simwarp run --device both``: the options, and the comparison of the simulator with a GPU."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from reference.errors import NoGpuError, SchemeError
from simwarp.cli.output import Where

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

_OPTIONS = {
    "bits": "--bits",
    "bound": "--bound",
    "bisect": "--bisect",
    "anyway": "--compare-anyway",
    "schedules": "--schedules",
    "rtol": "--rtol",
    "atol": "--atol",
    "seconds": "--chip-seconds",
}
"""The options by the names of `Both`."""


def settings(device: str, of_one: Collection[str] = (), **given: Any) -> Both | None:
    """The settings of ``--device both``; None for one device.

    ``given`` are parameters of `Both`, None or False for an option that was not given. For one device such an
    option is an error, unless ``of_one`` names it.
    """
    from simwarp.run.both.settings import Both

    given = {name: value for name, value in given.items() if value is not None and value is not False}
    if device == Where.both:
        return Both(**given)
    foreign = [_OPTIONS[name] for name in given if name not in of_one]
    if foreign:
        raise SchemeError(
            f"{', '.join(foreign)} with --device {device}\nthese compare two devices\ngive --device both"
        )
    return None


@contextmanager
def opened(both: Both | None, console: Console) -> Generator[Second | None]:
    """The GPU of a comparison, in a process of its own; None for one device."""
    from simwarp.run.both.devices import second_device

    if both is None:
        yield None
        return
    with ExitStack() as stack:
        with beside_a_gpu(), console.status("starting the GPU"):
            chip = stack.enter_context(second_device(both))
        yield chip


@contextmanager
def beside_a_gpu() -> Generator[None]:
    """Say what to do where there is no GPU."""
    try:
        yield
    except NoGpuError as error:
        raise NoGpuError(
            f"{str(error).splitlines()[0]}\n--device both needs a GPU beside the simulator\n"
            "give --device sim, or run it on a machine with one"
        ) from None


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
    return replace(found, replay=command(words))


def command(words: Sequence[str]) -> str:
    """The command that was typed, without its options for reports, so that it compares again."""
    return shlex.join(["simwarp", "run", *(word for word in words if word not in ("--json", "--github"))])


def to_json(found: Compared | None, refused: NotComparedError | None) -> dict[str, Any] | None:
    """The comparison as plain data; None if none was asked for."""
    if refused is not None:
        return {"compared": False, "reason": str(refused)}
    return None if found is None else {"compared": True, **found.to_json()}
