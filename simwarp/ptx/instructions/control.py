"""PTX ISA 9.7.12: control flow. What these do to the lanes is in `simwarp.ptx.execute`."""

from __future__ import annotations

from simwarp.ptx.instructions._table import row
from simwarp.ptx.rows import Form


@row("bra{.uni}", "target:label", kind="branch", section="9.7.12.3", summary="continue at a label")
def bra(form: Form) -> None:
    return None


@row("ret{.uni}", "", kind="exit", section="9.7.12.6", summary="end the kernel for these lanes")
def ret(form: Form) -> None:
    return None


@row("exit", "", kind="exit", section="9.7.12.7", summary="end the kernel for these lanes")
def exit_(form: Form) -> None:
    return None


@row("trap", "", kind="trap", section="9.7.19.4", summary="stop the launch with an error")
def trap(form: Form) -> None:
    return None
