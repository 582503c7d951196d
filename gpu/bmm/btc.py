"""The ±1 matrix product on bit tensor cores (BTC, section 5.2): its launches."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.bmm.fsb import arrange
from gpu.bmm.schemes import TensorCoreScheme, tensor_core_ptx
from gpu.device import Array, Device
from reference.types import PackedBits


def multiply_on_tensor_cores(
    a: PackedBits,
    b: PackedBits,
    c: Array,
    k: int,
    scheme: TensorCoreScheme,
    rule: tuple[Any, ...],
    device: Device,
) -> None:
    """Arrange both operands as the scheme takes them, and launch its kernel.

    Parameters
    ----------
    a, b : PackedBits
        On the device, words of 32 bits along K, first "lsb".
    c : (M, N) int32, or (ceil(N / 32), M) uint32 with a rule
        Where the product goes.
    k : int
    scheme : TensorCoreScheme
    rule : ()  or (thresholds, flip)
        On the device; makes the output bits.
    device : Device

    Examples
    --------
    >>> import simwarp
    >>> from gpu.bmm.packing import pack_on_device
    >>> from gpu.bmm.schemes import TENSOR_CORE_SCHEMES
    >>> device = simwarp.Device()
    >>> a = pack_on_device(np.ones((1, 5)), "a", "column", 32, "lsb", device)
    >>> b = pack_on_device(np.ones((5, 1)), "b", "row", 32, "lsb", device)
    >>> c = device.allocate((1, 1), np.int32)
    >>> multiply_on_tensor_cores(a, b, c, 5, TENSOR_CORE_SCHEMES["btc3"], (), device)
    >>> c.download()
    array([[5]], dtype=int32)
    """
    lines = [x.shape[0] if x.layout == "column" else x.shape[1] for x in (a, b)]
    operands = (*arrange(a, "a", scheme.format, device), *arrange(b, "b", scheme.format, device))
    ptx = tensor_core_ptx(scheme, "bits" if rule else "int", device.compute_capability)
    device.load(ptx.text).kernel(scheme.name)(
        (scheme.blocks(*lines), 1, 1),
        (scheme.threads, 1, 1),
        *operands,
        c,
        *(np.uint32(size) for size in (*lines, k)),
        *rule,
    )
