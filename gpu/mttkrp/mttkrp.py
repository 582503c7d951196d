"""The matricised tensor times Khatri-Rao product (MTTKRP) on a device (MM-CSF, equation 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpu.device import Device, planned
from gpu.host import choose_device, in_stream, moved_to, on_device
from gpu.mttkrp.checks import check_kind, check_rank
from gpu.mttkrp.plan import Plan
from gpu.mttkrp.prepared import MOST_PLANS, PreparedSparse
from gpu.mttkrp.upload import arrays_of
from gpu.recording import Call, call_of
from reference.errors import CaptureError
from reference.types.arguments import as_matrix, as_sequence, check_alike, check_factors, check_mode


def mttkrp(
    tensor: Any,
    factors: Sequence[Any],
    mode: int,
    *,
    device: Device | None = None,
    deterministic: bool = False,
) -> Any:
    """The MTTKRP of a sparse tensor on a device.

    Row i of the result is a sum over the nonzeros with index i in ``mode``: of the value times the product of
    the other factors' rows, element by element.

    The result equals `reference.mttkrp` within `reference.mttkrp_bound`.

    Parameters
    ----------
    tensor : any of `reference.types.SparseTensor`
        On the host or on a device. Coordinates that a `Coo` repeats have the sum of their values. Or a sparse
        tensor of SciPy, pydata/sparse, PyTorch (on the host) or pyttb, in any of their formats, which is read
        into a `Coo`. Or the result of `gpu.prepare`, which is not checked and uploaded again.
    factors : sequence of (dimension, R) arrays
        One for each mode, of the values' dtype, on the host or on a device. That of `mode` is not read. With
        a tensor of torch among them the call is in torch's current stream.
    mode : int
        From 0.
    device : Device, optional
        Default: the operands' own, or the first CUDA device.
    deterministic : bool
        Whether the same call gives the same bits each time, on every device. If False, sums are added
        atomically, in any order.

    Returns
    -------
    (dimension of the mode, R) array of the factors' dtype
        On the host; on the device if a factor is there. Rows without nonzeros are 0.

    Raises
    ------
    ShapeError, DtypeError, FormatError, NoGpuError
        Before anything is computed.
    NotANumberError
        For a NaN or an infinity in a tensor of another library.
    CaptureError
        While torch captures its current stream: for `deterministic`, a tensor that is not prepared, and the
        first call of a kind.

    Notes
    -----
    Source: MM-CSF (SC'19), equation 3 and algorithms 2, 6, 7 and 8.

    Examples
    --------
    >>> import simwarp
    >>> from reference.types import Coo
    >>> tensor = Coo([[0, 1], [2, 0]], [5.0, 7.0], (2, 3))
    >>> mttkrp(tensor, [np.ones((2, 1)), [[1.0], [2.0], [3.0]]], 0, device=simwarp.Device())
    array([[15.],
           [ 7.]])

    The same from SciPy:

    >>> from scipy.sparse import csr_array
    >>> matrix = csr_array([[0.0, 0.0, 5.0], [7.0, 0.0, 0.0]])
    >>> mttkrp(matrix, [np.ones((2, 1)), [[1.0], [2.0], [3.0]]], 0, device=simwarp.Device())
    array([[15.],
           [ 7.]])
    """
    factors = as_sequence(factors, "factors")
    call: Call | None = None
    if isinstance(tensor, PreparedSparse):
        plain = mode.__class__ is int and deterministic.__class__ is bool
        if plain and (device is None or device is tensor.device):
            call = call_of((mode, deterministic), factors, tensor.device, None)
        known = None if call is None else tensor.calls.get(call.key)
        if call is not None and known is not None:
            return _launched(known, call.pointers, call.arrays, call.device)
    else:
        tensor = check_kind(tensor)
    mode = check_mode(mode, len(tensor.shape))
    arrays = (tensor,) if isinstance(tensor, PreparedSparse) else arrays_of(tensor)
    device = choose_device(device, *arrays, *factors)
    there = in_stream(device, None, *factors)
    stays = any(map(on_device, factors))
    known = [_factor(x, n, there) for n, x in enumerate(factors)]
    rank, dtype = check_rank(check_factors(known, tensor.shape)), np.dtype(known[0].dtype)
    check_alike(known)
    placed = [x if n == mode else moved_to(x, there) for n, x in enumerate(known)]
    aligned = all(x.pointer % 16 == 0 for n, x in enumerate(placed) if n != mode)
    if there is not device and there.capturing:
        _refuse_capture(tensor, (mode, rank, dtype, deterministic, aligned))
    if isinstance(tensor, PreparedSparse):
        launch = tensor.plan(mode, rank, dtype, deterministic, vector=aligned)
        if call is not None:
            planned(tensor.calls, call.key, lambda: launch, MOST_PLANS)
    else:
        launch = Plan(tensor, mode, rank, dtype, device, deterministic, vector=aligned, checked=True)
    addresses = [0 if n == mode else x.pointer for n, x in enumerate(placed)]
    out = _launched(launch, addresses, [x for n, x in enumerate(placed) if n != mode], there)
    return out if stays else out.download()


def _launched(plan: Plan, addresses: Sequence[int], arrays: Sequence[Any], there: Any) -> Any:
    """The result of a plan for factors that were checked, in the stream of a device."""
    setting = plan.setting
    apart = there.queue != 0 and setting.deterministic  # all its calls use the same slots, in one stream
    home = setting.device if apart or not there.queue else there
    if apart:
        there.before_default()
    out = home.allocate((plan.shape[plan.mode], setting.rank), setting.dtype, "out")
    plan.launch(addresses, arrays, out, home)
    if apart:
        there.after_default()
    return out


def _refuse_capture(tensor: Any, key: tuple[int, int, Any, bool, bool]) -> None:
    """Refuse a call in a capture of torch's stream that needs more than launches there."""
    if key[3]:
        raise CaptureError(
            "a deterministic mttkrp in a capture of torch's\nits launches are in the default stream\n"
            "leave out deterministic, or capture with capture() of its device"
        )
    if not isinstance(tensor, PreparedSparse) or key not in tensor.plans:
        raise CaptureError(
            "an mttkrp in a capture of torch's without a plan\nonly launches are captured\n"
            "prepare the tensor, and make the same call once before the capture"
        )


def _factor(x: Any, n: int, device: Device) -> Any:
    """A factor as an array of the device, or of the host in native byte order."""
    if on_device(x):
        return moved_to(x, device)
    x = as_matrix(x, f"factors[{n}]")
    return x.astype(x.dtype.newbyteorder("="), copy=False)
