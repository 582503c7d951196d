"""The probe of one instruction form, and the forms that command-line words name."""

from __future__ import annotations

from typing import Any

from simwarp.fragments import Fragments, all_opcodes, fragments_of
from simwarp.lab.probe.finding import Finding
from simwarp.lab.probe.moves import probe_moves
from simwarp.lab.probe.products import probe_product
from simwarp.lab.probe.ptx import NotExecutedError
from simwarp.lab.probe.warpgroups import probe_warpgroup

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
"""The forms of section 4 of the paper on bit tensor cores."""


def forms_named(words: list[str]) -> list[str]:
    """The forms that words name, by default all; FragmentError for a word that names none.

    A word is an opcode in PTX's spelling, or the beginning of one ("wmma.load", "mma.sync"), or "bmma" for
    the forms of section 4 of the paper on bit tensor cores.

    >>> forms_named(["movmatrix", "ldmatrix.sync.aligned.m8n8.x1"])[:2]
    ['movmatrix.sync.aligned.m8n8.trans.b16', 'ldmatrix.sync.aligned.m8n8.x1.b16']
    """
    if not words:
        return list(all_opcodes())
    forms: list[str] = []
    for word in words:
        begun = [opcode for opcode in all_opcodes() if f"{opcode}.".startswith(f"{word}.")]
        forms += BMMA if word == "bmma" else begun or [fragments_of(word).opcode]
    return list(dict.fromkeys(forms))


def probe(form: str | Fragments, device: Any) -> Finding:
    """Find the fragment maps of an instruction by experiment, and compare them with `simwarp.fragments`.

    ``form`` is an opcode in PTX's spelling, else FragmentError, or fragments to compare with instead. The
    finding has each operand's map with its first difference; or the reason why the device, a `simwarp.Device`
    or a `gpu.CudaDevice`, refuses the instruction.

    >>> import simwarp
    >>> finding = probe("ldmatrix.sync.aligned.m8n8.x4.b16", simwarp.Device())
    >>> finding.agreed, str(finding.operands[0].layout)
    (True, 'slot 2:c1  lane 4:c2 8:r1  register 4:m1')
    """
    fragments = fragments_of(form) if isinstance(form, str) else form
    opcode = fragments.opcode
    if opcode.startswith("wgmma"):
        how = probe_warpgroup
    elif opcode.startswith(("mma", "wmma.mma")):
        how = probe_product
    else:
        how = probe_moves
    try:
        return how(device, fragments)
    except NotExecutedError as error:
        return Finding(opcode, refusal=f"not executed by this device: {error}")
