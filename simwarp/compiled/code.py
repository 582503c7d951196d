"""Machine code of a kernel's segments."""

from __future__ import annotations

from ctypes import c_int64, c_void_p

from simwarp.llvm import MachineCode, llvm

__all__ = ["Code", "llvm"]


class Code(MachineCode):
    """The machine code of a kernel, whose function ``drive`` runs it from the tables that it is given."""

    def __init__(self, text: str) -> None:
        super().__init__(text, "drive", c_int64, *[c_void_p] * 7)
        self.drive = self.call
