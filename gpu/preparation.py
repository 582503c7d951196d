"""`gpu.prepare`: operands of many calls, checked, packed and arranged once."""

from __future__ import annotations

from typing import Any

from gpu.bconv.prepared import PreparedTensor, prepare_tensor
from gpu.bmm.prepared import PreparedMatrix, prepare_matrix
from gpu.device import Device
from gpu.host import Prepared, unknown
from gpu.mttkrp.prepared import PreparedSparse, prepare_sparse
from reference.errors import FormatError, SchemeError
from reference.types.arguments import Kind


def prepare(
    operand: Any,
    role: str | None = None,
    *,
    scheme: str = "auto",
    transpose: bool = False,
    kind: Kind = "xnor",
    device: Device | None = None,
) -> PreparedMatrix | PreparedTensor | PreparedSparse:
    """Prepare an operand on a device once, for many calls.

    Signs are packed, words arranged for the scheme's kernel, ones counted. For filters, the addends of border
    pixels are computed at the first call with images of a size. A sparse tensor is checked and uploaded, and
    gets a plan at the first call for a mode and rank. An array on the device that has the kernel's layout is
    not copied: do not change it afterwards.

    Parameters
    ----------
    operand
        An operand of `gpu.bmm`, `gpu.bconv2d` or `gpu.mttkrp`, on the host or on a device; also a stack of
        matrices. A sparse tensor of another library becomes a `Coo`.
    role : "a", "b", "x" or "w", optional
        The name of the argument of `gpu.bmm` (a, b) or `gpu.bconv2d` (x, w). None for sparse tensors.
    scheme : str
        A scheme of the later calls, whose form of operands is made. "auto" makes lines of matrices with their
        ones on sm_75 to sm_90. Of the schemes that take lines (btc1, btc2, mma, skinny, wgmma) each later
        call has the fastest for its sizes, unless it names one; an operand in another form keeps its scheme.
        For a `Coo`, the format to build, e.g. "mm-csf", or "auto" to leave it a `Coo`.
    transpose : bool
        For "a" and "b": whether the operand is the transpose of the matrix.
    kind : {"xnor", "and", "or"}
        For "a" and "b": what the bits of numbers are: their signs with "xnor", else 1 for what is not 0.
        Prepared bits are bits: a product of any kind takes them. Prepared signs are for "xnor" alone.
    device : Device, optional
        Default: the operand's own, or the first CUDA device.

    Returns
    -------
    PreparedMatrix, PreparedTensor or PreparedSparse
        With the original shape. Results of calls with it stay on its device.

    Raises
    ------
    ShapeError, DtypeError, FormatError, SchemeError, NoGpuError
    NotANumberError
        At once for host arrays; for device arrays at the device's next synchronisation.

    Examples
    --------
    >>> import numpy as np, simwarp, gpu
    >>> weights = gpu.prepare(np.ones((130, 2)), "b", scheme="btc3", device=simwarp.Device())
    >>> weights
    PreparedMatrix(b of shape (130, 2) for btc3)
    >>> gpu.bmm(-np.ones((1, 130)), weights).download()
    array([[-130, -130]], dtype=int32)
    """
    if isinstance(operand, Prepared):
        raise FormatError(
            f"the operand is a {type(operand).__name__}\nit is already prepared\n"
            "prepare the original operand for another role or scheme"
        )
    if transpose and role not in ("a", "b"):
        raise SchemeError(f"transpose is given for role={role!r}\nonly matrices are transposed\nleave it out")
    if kind != "xnor" and role not in ("a", "b"):
        raise SchemeError(f"kind={kind!r} is given for role={role!r}\nonly matrices have kinds\nleave it out")
    if role is None:
        return prepare_sparse(operand, scheme=scheme, device=device)
    if role == "a" or role == "b":
        return prepare_matrix(operand, role, scheme=scheme, transpose=transpose, kind=kind, device=device)
    if role == "x" or role == "w":
        return prepare_tensor(operand, role, scheme=scheme, device=device)
    raise unknown("role", role, ("a and b of bmm", "x and w of bconv2d", "None of sparse tensors"))
