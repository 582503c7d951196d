"""Which forms can be probed, and by what words people name them."""

from __future__ import annotations

from simwarp.fragments import all_opcodes, fragments_of

BMMA = (
    "wmma.load.a.sync.aligned.row.m8n8k128.b1",
    "wmma.load.b.sync.aligned.col.m8n8k128.b1",
    "wmma.load.c.sync.aligned.row.m8n8k128.s32",
    "wmma.load.c.sync.aligned.col.m8n8k128.s32",
    "wmma.store.d.sync.aligned.row.m8n8k128.s32",
    "wmma.store.d.sync.aligned.col.m8n8k128.s32",
    "wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32",
    "wmma.mma.and.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32",
)
"""What section 4 of the paper on bit tensor cores measures."""


def forms_named(words: list[str]) -> list[str]:
    """The forms that some words name: all, if there are none.

    Parameters
    ----------
    words : list of str
        Each an opcode, as PTX spells it; or what opcodes begin with, "wmma.load" or "mma.sync"; or "bmma",
        what section 4 of the paper measures.

    Raises
    ------
    FragmentError
        For a word that names none.

    Examples
    --------
    >>> forms_named(["movmatrix", "ldmatrix.sync.aligned.m8n8.x1"])[:2]
    ['movmatrix.sync.aligned.m8n8.trans.b16', 'ldmatrix.sync.aligned.m8n8.x1.b16']
    """
    if not words:
        return list(all_opcodes())
    named: list[str] = []
    for word in words:
        begun = [opcode for opcode in all_opcodes() if f"{opcode}.".startswith(f"{word}.")]
        if word == "bmma":
            begun = list(BMMA)
        named += begun or [fragments_of(word).opcode]
    return list(dict.fromkeys(named))
