"""Transfer of sparse tensors to and from devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

from gpu.device import Device, is_array, is_foreign
from gpu.host import moved_to
from gpu.mttkrp.checks import check_tensor

Tensor = TypeVar("Tensor")


def upload(tensor: Any, device: Device) -> Any:
    """Check a sparse tensor and upload it.

    Parameters
    ----------
    tensor : any of `reference.types.SparseTensor`, or one of another library, as for `gpu.mttkrp`
        Arrays that are on the device already are neither checked nor copied.
    device : Device

    Returns
    -------
    The same dataclass, or a `Coo` for a tensor of another library, with device arrays.

    Raises
    ------
    FormatError, ShapeError
        If its arrays do not fit one another.

    Examples
    --------
    >>> import simwarp
    >>> from reference.types import Coo
    >>> tensor = upload(Coo([[0, 1], [2, 0]], [5.0, 7.0], (2, 3)), simwarp.Device())
    >>> tensor.values.device.name, tensor.shape
    ('simwarp simulator (sm_90)', (2, 3))
    """
    return on_device(check_tensor(tensor), device)


def on_device(tensor: Tensor, device: Device) -> Tensor:
    """Upload a sparse tensor without checks."""
    return _mapped(tensor, lambda x: moved_to(x, device))


def download(tensor: Tensor) -> Tensor:
    """Download a sparse tensor to the host.

    Examples
    --------
    >>> import simwarp
    >>> from reference.types import Coo
    >>> tensor = Coo([[0, 1], [2, 0]], [5.0, 7.0], (2, 3))
    >>> download(upload(tensor, simwarp.Device())).values
    array([5., 7.])
    """
    return _mapped(tensor, lambda x: x.download() if is_array(x) else x)


def scaled(tensor: Tensor, exponent: int) -> Tensor:
    """A tensor on the host with its values times ``2**exponent``.

    >>> from reference.types import Coo
    >>> scaled(Coo([[0, 1], [2, 0]], [5.0, 7.0], (2, 3)), -1).values
    array([2.5, 3.5])
    """
    return _mapped(download(tensor), lambda x: np.ldexp(x, exponent) if x.dtype.kind == "f" else x)


def arrays_of(tensor: Any) -> Iterator[Any]:
    """Yield every array of a sparse tensor, on the host or on a device.

    Examples
    --------
    >>> from reference.types import Coo
    >>> [array.shape for array in arrays_of(Coo([[0, 1], [2, 0]], [5.0, 7.0], (2, 3)))]
    [(2, 2), (2,)]
    """
    if _is_data(tensor):
        yield tensor
    elif isinstance(tensor, tuple):
        for part in tensor:  # pyright: ignore[reportUnknownVariableType]
            yield from arrays_of(part)
    elif is_dataclass(tensor):
        for part in fields(tensor):
            yield from arrays_of(getattr(tensor, part.name))


def _is_data(x: Any) -> bool:
    """True if ``x`` is an array of the host, of a device, or of another library."""
    return isinstance(x, np.ndarray) or is_array(x) or is_foreign(x)


def _mapped(x: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of nested dataclasses and tuples with a function applied to every array."""
    if _is_data(x):
        return change(x)
    if isinstance(x, tuple):
        return tuple(_mapped(part, change) for part in x)  # pyright: ignore[reportUnknownVariableType]
    if is_dataclass(x) and not isinstance(x, type):
        return replace(x, **{part.name: _mapped(getattr(x, part.name), change) for part in fields(x)})
    return x
