"""One step of a warp, as a recording tells it.

>>> lanes_of(0x80000003)
[0, 1, 31]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from simwarp.observe.trace.code import TracedInstruction
from simwarp.observe.trace.selection import TraceError
from simwarp.observe.trace.values import in_hex

NO_INSTRUCTION = TracedInstruction(0, "", "")
"""That of a barrier or fault."""


@dataclass(frozen=True)
class Written:
    """A register after a step: ``words``, (n,) unsigned, for the lanes that executed it, ascending.

    Of a store or reduction it is a register that went to memory.
    """

    name: str
    type: str
    words: npt.NDArray[Any]


@dataclass(frozen=True)
class Access:
    """Lanes read or wrote memory.

    Attributes
    ----------
    kind, space : str
        As of `simwarp.observe.AccessEvent`.
    mask : int
        The lanes.
    width : int
        Bytes of each.
    addresses : (n,) uint64
        For the lanes of the mask, ascending.
    """

    kind: str
    space: str
    mask: int
    width: int
    addresses: npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Record:
    """One step of a warp, or a barrier that it passed, or a fault found in it.

    Attributes
    ----------
    kind : str
        "step", "barrier", "fault"; "stopped" for a step that touched memory and then did not end.
    number : int
        How many steps of this warp came before.
    instruction : TracedInstruction
        Of a step.
    mask : int
        The lanes.
    written : list of Written
    accesses : list of Access
    message : str
        Of a fault.
    """

    kind: str
    number: int
    instruction: TracedInstruction
    mask: int
    written: list[Written] = field(default_factory=list[Written])
    accesses: list[Access] = field(default_factory=list[Access])
    message: str = ""

    @property
    def lanes(self) -> list[int]:
        """The lanes of the mask."""
        return lanes_of(self.mask)

    def value(self, register: str, lane: int) -> int:
        """The bits that a lane gave to a register in this step.

        Raises
        ------
        TraceError
            If the step did not write it, or the lane not execute the step.
        """
        for written in self.written:
            if written.name == register and self.mask >> lane & 1:
                return int(written.words[self.lanes.index(lane)])
        names = ", ".join(written.name for written in self.written) or "nothing"
        raise TraceError(
            f"step {self.number} wrote no {register} in lane {lane}: `{self.instruction.text}`\n"
            f"it wrote {names}, in lanes {self.mask:#010x}"
        )

    def to_json(self) -> dict[str, Any]:
        """The same as plain data, words in hex."""
        it = self.instruction
        return {
            "kind": self.kind,
            "number": self.number,
            "line": it.line,
            "source": it.source,
            "text": it.text,
            "mask": self.mask,
            "written": [
                {"name": w.name, "type": w.type, "words": [in_hex(word, w.type) for word in w.words.tolist()]}
                for w in self.written
            ],
            "accesses": [
                {
                    "kind": a.kind,
                    "space": a.space,
                    "mask": a.mask,
                    "width": a.width,
                    "addresses": a.addresses.tolist(),
                }
                for a in self.accesses
            ],
            "message": self.message,
        }


def lanes_of(mask: int) -> list[int]:
    """The lanes of a mask, ascending."""
    return [lane for lane in range(mask.bit_length()) if mask >> lane & 1]
