"""From a form to what a device says about it."""

from __future__ import annotations

from typing import Any

from simwarp.fragments import Fragments, fragments_of
from simwarp.lab.probe.finding import Finding
from simwarp.lab.probe.moves import probe_moves
from simwarp.lab.probe.products import probe_product
from simwarp.lab.probe.ptx import NotExecutedError
from simwarp.lab.probe.warpgroups import probe_warpgroup


def probe(form: str | Fragments, device: Any) -> Finding:
    """Find the fragment maps of an instruction by experiment, and compare them with `simwarp.fragments`.

    Parameters
    ----------
    form : str or Fragments
        An opcode as PTX spells it; or fragments of it, to compare with others than `simwarp.fragments` has.
    device
        A `simwarp.Device` or a `gpu.CudaDevice`.

    Returns
    -------
    Finding
        Of each operand, the map that was found and where it differs; or why the device does not execute the
        instruction.

    Raises
    ------
    FragmentError
        If there is no such instruction.

    Examples
    --------
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
