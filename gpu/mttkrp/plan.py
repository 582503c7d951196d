"""Plans: the launches of an MTTKRP for one tensor and mode, prepared once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.device import Array, Device, LaunchChain
from gpu.mttkrp.checks import check_arrays, check_dtype, check_kind, check_rank
from gpu.mttkrp.formats import OF_TYPE
from gpu.mttkrp.kernels import Launch, Setting, Work, factors_of, sink_of
from gpu.mttkrp.reduction import clearing, reduction
from gpu.mttkrp.upload import arrays_of, download, on_device
from reference.errors import DtypeError, FormatError, ShapeError
from reference.types import PerMode
from reference.types.arguments import check_mode


def plan(
    tensor: Any, mode: int, rank: int, dtype: npt.DTypeLike, device: Device, deterministic: bool = False
) -> Plan:
    """Prepare the launches of an MTTKRP, which do not depend on the factors' values.

    Parameters
    ----------
    tensor : any of `reference.types.SparseTensor`, or one of another library, as for `gpu.mttkrp`
        On the host, to be checked and uploaded, or on the device.
    mode : int
    rank : int
    dtype : float32 or float64
        The factors' type, which must be the values'.
    device : Device
    deterministic : bool
        Whether the same call gives the same bits each time: partial sums are then stored, one row of `rank`
        elements for each, and added up in a fixed order.

    Returns
    -------
    Plan

    Raises
    ------
    ShapeError, DtypeError, FormatError

    Examples
    --------
    >>> import simwarp
    >>> from reference.types import Coo
    >>> device = simwarp.Device()
    >>> tensor = Coo([[0, 1], [2, 0]], [5.0, 7.0], (2, 3))
    >>> launch = plan(tensor, 0, 2, np.float64, device)
    >>> factors = [device.upload(np.ones((n, 2)) * n) for n in tensor.shape]
    >>> out = device.allocate((2, 2), np.float64)
    >>> launch(factors, out)
    >>> out.download()
    array([[15., 15.],
           [21., 21.]])
    """
    return Plan(tensor, mode, rank, dtype, device, deterministic)


class Plan:
    """The prepared launches of an MTTKRP; see `plan`.

    Parameters
    ----------
    tensor, mode, rank, dtype, device, deterministic
        As for `plan`.
    vector : bool
        Whether factors and result start at multiples of 16 bytes, as all arrays do that devices allocate.
    checked : bool
        Whether the tensor's kind and fields have been checked. Its host arrays are checked here.

    Attributes
    ----------
    mode : int
    shape : tuple of int
    setting : Setting
    """

    def __init__(
        self,
        tensor: Any,
        mode: int,
        rank: int,
        dtype: npt.DTypeLike,
        device: Device,
        deterministic: bool = False,
        *,
        vector: bool = True,
        checked: bool = False,
    ) -> None:
        tensor = tensor if checked else check_kind(tensor)
        self.shape: tuple[int, ...] = tensor.shape
        self.mode = check_mode(mode, len(self.shape))
        parts = [on_device(part, device) for part in _parts(tensor, self.mode)]
        dtype = check_dtype(dtype, parts[0].values.dtype)
        order = len(self.shape)
        self.setting = Setting(device, dtype, order, check_rank(rank), deterministic, vector)
        self._keep = list(arrays_of(tuple(parts)))  # the launches hold only addresses of these arrays
        self._works = [_work(part, self.mode, self.setting) for part in parts]
        self._clearing = clearing(self._works, self.shape[self.mode], self.setting)
        self._reduction: tuple[Launch, ...] = ()
        if deterministic:
            slot_rows = np.concatenate([work.slot_rows for work in self._works])
            self._partial = device.allocate((slot_rows.size, self.setting.rank), dtype, "slots")
            self._reduction = reduction(slot_rows, self.setting)
        of_works = [launch for work in self._works for launch in work.launches]
        self._launches = (*self._clearing, *of_works, *self._reduction)
        self._chain = LaunchChain(tuple(launch.plan for launch in self._launches))
        orders = list(dict.fromkeys(launch.modes for launch in self._launches))
        self._factors = [factors_of(modes) for modes in orders]
        self._numbers = [orders.index(launch.modes) for launch in self._launches]
        """Which of these each launch takes."""
        self._last: tuple[Any, list[tuple[bytes, ...]]] = (None, [])

    def __call__(self, factors: Sequence[Array], out: Array, stream: Any = None) -> None:
        """Launch; nothing is compiled, allocated or copied, so that a CUDA graph can capture the call.

        Parameters
        ----------
        factors : sequence of device arrays
            (dimension, rank) of each mode; that of the plan's own mode is ignored.
        out : device array, (dimension of the mode, rank)
            Overwritten.
        stream : Stream, optional
            Keep factors and result alive until the stream's work is done.

        Raises
        ------
        ShapeError, DtypeError
            If an array has another shape or type, or if rows are read 16 bytes at a time and its address is
            not a multiple of 16.
        """
        self._check(factors, out)
        addresses = [0 if n == self.mode else x.pointer for n, x in enumerate(factors)]
        structures = self._structures(addresses, out)
        if stream is None:
            self.setting.device.launch_all(self._chain, structures)
            return
        for launch, given in zip(self._launches, structures, strict=True):
            launch(given, stream)

    def launch(self, addresses: Sequence[int], arrays: Iterable[Any], out: Array, there: Device) -> None:
        """Launch in a stream's device, with addresses of factors and their arrays, which are not checked."""
        there.launch_all(self._chain, self._structures(addresses, out))
        if there.queue:
            for array in (*self._keep, *arrays):
                if array.__class__ is not int and array.queue != there.queue:
                    array.hold()

    def _structures(self, addresses: Sequence[int], out: Array) -> list[tuple[bytes, ...]]:
        """The open parameters of all launches."""
        key = (*addresses, out.pointer)
        known, structures = self._last
        if key != known:
            if self._reduction:
                factors = [take(addresses) for take in self._factors]
                sinks = zip(self._numbers, self._sinks(out), strict=True)
                structures = [(*factors[number], sink) for number, sink in sinks]
            else:  # all launches have the same sink
                sink = sink_of(out, 0, self.setting.rank)
                each = [(*take(addresses), sink) for take in self._factors]
                structures = [each[number] for number in self._numbers]
            self._last = key, structures
        return structures

    def _sinks(self, out: Array) -> list[bytes]:
        """The kernel argument ``Sink``, where sums are written, for each launch; they have slots."""
        rank, partial = self.setting.rank, self._partial.pointer
        whole = sink_of(out, partial, rank)
        sinks = [whole] * len(self._clearing)
        for work in self._works:
            sinks += [sink_of(out, partial, rank)] * len(work.launches)
            partial += work.slot_rows.size * rank * self.setting.dtype.itemsize
        return sinks + [whole] * len(self._reduction)

    def _check(self, factors: Sequence[Array], out: Array) -> None:
        """Refuse factors and results that do not fit the plan."""
        setting = self.setting
        if len(factors) != len(self.shape):
            raise ShapeError(
                f"there are {len(factors)} factors\nthe tensor has {len(self.shape)} modes\n"
                "give one for each mode"
            )
        read = [(f"factors[{n}]", x, self.shape[n]) for n, x in enumerate(factors) if n != self.mode]
        for name, array, dimension in (*read, ("out", out, self.shape[self.mode])):
            if array.shape != (dimension, setting.rank):
                raise ShapeError(
                    f"{name} has shape {array.shape}\nthe plan is for {(dimension, setting.rank)}\n"
                    "make another plan"
                )
            if array.dtype != setting.dtype:
                raise DtypeError(f"{name} is {array.dtype}\nthe plan is for {setting.dtype}\nconvert it")
            if setting.vec > 1 and array.pointer % 16:
                raise ShapeError(
                    f"{name} is at address {array.pointer:#x}\nthe plan reads 16 bytes from multiples of 16\n"
                    "copy it, or pass vector=False to Plan"
                )


def _parts(tensor: Any, mode: int) -> Sequence[Any]:
    """The parts of a checked tensor that have kernels; the sum of their results is the tensor's."""
    if isinstance(tensor, PerMode):
        return _parts(tensor.tensors[mode], mode)
    entry = OF_TYPE[type(tensor)]
    if entry.is_for_one_mode and tensor.modes[0] != mode:
        raise FormatError(
            f"this {type(tensor).__name__} was made for mode {tensor.modes[0]}, not for mode {mode}\n"
            f"its modes are {tensor.modes}, and the result's mode must be the first\n"
            "build it for the other mode, or for all modes (PerMode)"
        )
    check_arrays(tensor)
    return tensor.parts or (for_kernels(tensor),)


def for_kernels(tensor: Any) -> Any:
    """The tensor, converted on the host if its format has no kernel."""
    turned = [x.for_kernels for kind, x in OF_TYPE.items() if isinstance(tensor, kind) and x.for_kernels]
    return turned[0](download(tensor)) if turned else tensor


def _work(part: Any, mode: int, setting: Setting) -> Work:
    """Plan the launches that compute one part of the tensor."""
    work = OF_TYPE[type(part)].work
    assert work is not None, f"{type(part).__name__} has no kernel"
    return work(part, mode, setting)
