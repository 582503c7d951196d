"""PTX ISA 9.7.12 and 9.7.19: control flow, which `simwarp.engine.schedule.branches` executes."""

from __future__ import annotations

from simwarp.ptx.instructions.table import nothing, row
from simwarp.ptx.kinds import BRANCH, CALL, EXIT, FENCE, INDEXED_BRANCH, REGISTER_COUNT, RETURN, TRAP

row("bra{.uni}", "target:label", kind=BRANCH, section="9.7.12.3", summary="continue at a label")(nothing)
row(
    "brx.idx{.uni}",
    "index:u32, targets:labels",
    kind=INDEXED_BRANCH,
    section="9.7.12.4",
    summary="continue at a label of a list, the one with the index",
)(nothing)
row(
    "call{.uni}",
    "function",
    kind=CALL,
    section="9.7.12.5",
    summary="call a device function by name or address; also vprintf, __assertfail, malloc and free",
)(nothing)
row(
    "ret{.uni}",
    "",
    kind=RETURN,
    section="9.7.12.6",
    summary="return from a function; in a kernel, end it for these lanes",
)(nothing)
row("exit", "", kind=EXIT, section="9.7.12.7", summary="end the kernel for these lanes")(nothing)
row("pmevent.mask", "events:number", kind=FENCE, section="9.7.19.3", summary="the same for several events")(
    nothing
)
row(
    "pmevent",
    "event:number",
    kind=FENCE,
    section="9.7.19.3",
    summary="count a profiler event; no profiler here",
)(nothing)
row(
    "nanosleep.u32",
    "time:u32",
    kind=FENCE,
    section="9.7.19.2",
    minimum_sm=70,
    summary="a hint to let others run; takes no time here",
)(nothing)
row(
    "setmaxnreg<.inc|.dec>.sync.aligned.u32",
    "count:number",
    kind=REGISTER_COUNT,
    section="9.7.19.5",
    minimum_sm=90,
    architecture="sm_90a",
    summary="give back registers of a warp, or wait until its block has more for it",
)(nothing)
row("brkpt", "", kind=TRAP, section="9.7.19.1", summary="stop for a debugger; without one, an error")(nothing)
row("trap", "", kind=TRAP, section="9.7.19.4", summary="stop the launch with an error")(nothing)
