"""PTX ISA 9.7.12, 9.7.19: control flow. How lanes follow it is in `simwarp.engine.branches`."""

from __future__ import annotations

from functools import partial

from simwarp.ptx.instructions._table import row
from simwarp.ptx.rows import Form


@row("bra{.uni}", "target:label", kind="branch", section="9.7.12.3", summary="continue at a label")
def bra(form: Form) -> None:
    return None


@row(
    "brx.idx{.uni}",
    "index:u32, targets:labels",
    kind="indexed branch",
    section="9.7.12.4",
    summary="continue at a label of a list, the one with the index",
)
def brx(form: Form) -> None:
    return None


@row(
    "call{.uni}",
    "function",
    kind="call",
    section="9.7.12.5",
    summary="call a device function by name or address; also vprintf, __assertfail, malloc and free",
)
def call(form: Form) -> None:
    return None


@row(
    "ret{.uni}",
    "",
    kind="return",
    section="9.7.12.6",
    summary="return from a function; in a kernel, end it for these lanes",
)
def ret(form: Form) -> None:
    return None


@row("exit", "", kind="exit", section="9.7.12.7", summary="end the kernel for these lanes")
def exit_(form: Form) -> None:
    return None


_hint = partial(row, kind="fence")


@_hint(
    "nanosleep.u32",
    "time:u32",
    section="9.7.19.2",
    minimum_sm=70,
    summary="a hint to let others run; takes no time here",
)
@_hint("pmevent", "event:number", section="9.7.19.3", summary="count a profiler event; no profiler here")
@_hint("pmevent.mask", "events:number", section="9.7.19.3", summary="the same for several events")
def hint(form: Form) -> None:
    return None


@row("trap", "", kind="trap", section="9.7.19.4", summary="stop the launch with an error")
@row("brkpt", "", kind="trap", section="9.7.19.1", summary="stop for a debugger; without one, an error")
def trap(form: Form) -> None:
    return None
