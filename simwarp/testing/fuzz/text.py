"""Programs as PTX modules."""

from __future__ import annotations

from collections.abc import Sequence

from simwarp.testing.fuzz import control, plain, together
from simwarp.testing.fuzz.memory import PARAMETERS, TABLE
from simwarp.testing.fuzz.program import Program
from simwarp.testing.fuzz.writer import Writer

__all__ = ["HEAD", "control", "module_text", "plain", "together"]

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"


def module_text(programs: Sequence[Program]) -> str:
    r"""One module whose entries ``fuzz_0``, ``fuzz_1`` … are the programs.

    Examples
    --------
    >>> print(module_text([Program(0, 0, (), outputs=("%r0",))]).replace("\t", "  "))  # doctest: +ELLIPSIS
    .version 9.0
    .target sm_90
    ...
    .visible .entry fuzz_0(
      .param .align 16 .b8 numbers[32],
      .param .u64 inputs,
      .param .u64 outputs,
      .param .u64 memory
    )
    {
    ...
      st.global.b32 [%outputs+32], %r0;
      ret;
    }
    <BLANKLINE>
    """
    entries = "".join(Writer(program).entry(f"fuzz_{i}", PARAMETERS) for i, program in enumerate(programs))
    table = TABLE if ", table;" in entries else ""
    return HEAD + table + (plain.MIX if ", mix, " in entries else "") + entries
