"""Convolutions by cuDNN's graph API: the engines that compute one, and their execution."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from gpu.cuda_machine.cublas import RoutineError
from gpu.cuda_machine.cudnn import (
    DATA_TYPE,
    DESCRIPTOR,
    FLOAT,
    HANDLE,
    HEURISTIC,
    INT64,
    MODE,
    NOTE,
    POINTER,
    Cudnn,
    Descriptors,
)

Four: TypeAlias = tuple[int, int, int, int]
Two: TypeAlias = tuple[int, int]
Addresses: TypeAlias = Mapping[str, int]
"""Addresses of the first elements of x, w and y."""

DATA_TYPES = {"float32": 0, "float16": 2, "bfloat16": 9}
_CONVOLUTION, _ENGINE, _CONFIG, _HEURISTICS, _PLAN, _GRAPH, _PACK, _TENSOR = 1, 2, 3, 4, 5, 15, 16, 17
_OPERATION = {"conv2d": 10, "conv2d_backward_filter": 11, "conv2d_backward_data": 12}
_ATTRIBUTES = {
    "conv2d": {"alpha": 700, "beta": 701, "convolution": 702, "w": 703, "x": 704, "y": 705},
    "conv2d_backward_data": {"alpha": 706, "beta": 707, "convolution": 708, "w": 709, "x": 710, "y": 711},
    "conv2d_backward_filter": {"alpha": 712, "beta": 713, "convolution": 714, "w": 715, "x": 716, "y": 717},
}
_CROSS_CORRELATION = 1
_HEURISTIC_A, _FALLBACK = 3, 2
_UIDS = {"x": 1, "w": 2, "y": 3}
_PACKS = 64
"""Packs of addresses that an engine caches, as buffers are used in turn."""
_MOST, _NOTES = 128, 16
"""The most configurations of a list that are read for a convolution, and the most notes of an engine."""
TENSOR_CORE, DOWN_CONVERTS, REDUCED_SUMS, FFT, NONDETERMINISTIC, WINOGRAD, STRICT_NAN = 0, 1, 2, 3, 4, 5, 9
"""Notes on engines, as cudnn_graph.h numbers them."""
_WITHOUT_NOTE = {("conv2d_backward_filter", 17): WINOGRAD}
"""Engines of cuDNN 9.19, by number, that use Winograd's transforms without a note on it."""
_LARGEST_OF_WINOGRAD = 3
"""Most rows and columns of filters: larger ones have tiles of 13 x 13, which amplify roundings too much."""


@dataclass(frozen=True)
class View:
    """Sizes, strides and alignment of a tensor in device memory."""

    sizes: Four  # (N, C, H, W), filters (O, I, R, S)
    strides: Four  # in elements
    alignment: int = 16  # of the first element's address, in bytes

    @property
    def form(self) -> tuple[int, int, bool, bool]:
        """Equal for tensors that differ in images and rows alone: channels, columns, layout and gaps."""
        is_dense = self.strides[0] == math.prod(self.sizes[1:])
        return self.sizes[1], self.sizes[3], self.strides[1] == 1, is_dense


@dataclass(frozen=True)
class Convolution:
    """A convolution or one of its gradients, with sums in float32.

    The number of groups is the channels of x divided by those of w.
    """

    routine: str  # conv2d, conv2d_backward_data or conv2d_backward_filter
    dtype: str  # float32, float16 or bfloat16
    tf32: bool  # float32 may be rounded to TF32
    x: View
    w: View
    y: View
    before: Two  # padding above and left of the images
    after: Two  # padding below and right of them
    stride: Two
    dilation: Two
    updates: bool  # the result is added to what its memory holds
    transforms: bool = False  # Winograd's and Fourier transforms may be used

    @property
    def is_plain(self) -> bool:
        """True if the convolution is in float32 without TF32."""
        return self.dtype == "float32" and not self.tf32

    @property
    def alike(self) -> tuple[Hashable, ...]:
        """A key that is equal for convolutions that differ in images and rows alone."""
        across = self.before[1], self.after[1], self.stride, self.dilation
        how = self.dtype, self.tf32, self.updates, self.transforms
        return self.routine, self.x.form, self.w, self.y.form, across, how

    @property
    def refused(self) -> frozenset[int]:
        """The numerical notes of engines that must not be used.

        FFT and Winograd have no error bound for each element; nondeterministic results have one, which no
        test can check, as they differ from run to run.
        """
        notes = {REDUCED_SUMS, NONDETERMINISTIC}
        if self.is_plain:
            notes |= {TENSOR_CORE, DOWN_CONVERTS}
        if not self.transforms:
            notes |= {FFT, WINOGRAD}
        elif max(self.w.sizes[2:]) > _LARGEST_OF_WINOGRAD:
            notes |= {WINOGRAD}
        return frozenset(notes)


class Engine:
    """An engine of cuDNN for one convolution: its number in the routine, its workspace in bytes."""

    def __init__(self, cudnn: Cudnn, handle: int, config: int, number: int) -> None:
        self.number, self._cudnn, self._owned = number, cudnn, Descriptors(cudnn)
        self._packs, self._by_address = Descriptors(cudnn), dict[tuple[int, ...], int]()
        try:
            self._plan = self._owned.make(_PLAN, {400: (HANDLE, [handle]), 401: (DESCRIPTOR, [config])})
            self.workspace = int(self._owned.values(self._plan, 402, INT64, 1)[0])
        except BaseException:
            self.close()
            raise

    def queue(self, handle: int, device: int, addresses: Addresses, workspace: int) -> None:
        """Queue the engine's convolution in the handle's stream."""
        key = *addresses.values(), workspace
        if key not in self._by_address:
            if len(self._by_address) == _PACKS:
                self._forget()
            uids, places = [_UIDS[name] for name in addresses], list(addresses.values())
            values = {1000: (INT64, uids), 1001: (POINTER, places), 1003: (POINTER, [workspace])}
            self._by_address[key] = self._packs.make(_PACK, values)
        self._cudnn.call("cudnnBackendExecute", handle, self._plan, self._by_address[key], device=device)

    def _forget(self) -> None:
        """Destroy the cached cuDNN variant packs of addresses."""
        self._by_address.clear()
        self._packs.close()

    def close(self) -> None:
        """Destroy the engine's cuDNN descriptors."""
        self._forget()
        self._owned.close()


class Engines:
    """Engines for a convolution with at most ``workspace`` bytes; first those that cuDNN takes for fastest.

    For float32 without TF32, cuDNN's heuristic for an H100 (9.19) has either no engine that is exact or one
    that takes up to twice as long as those of the fallback, and Winograd's transforms only for gradients of
    filters. So the engines of both are listed, and if transforms may be used, those of all numbers.
    """

    def __init__(self, cudnn: Cudnn, handle: int, of: Convolution, workspace: int) -> None:
        self._cudnn, self._handle, self._of, self._workspace = cudnn, handle, of, workspace
        self._owned, self._made = Descriptors(cudnn), list[Engine]()
        try:
            self._graph = _graph(handle, of, self._owned)
        except RoutineError:  # cuDNN finds out here as well that it has no engine
            self._graph = 0
        except BaseException:
            self._owned.close()
            raise

    def found(self, without: Collection[int] = ()) -> Iterator[Engine]:
        """Yield the engines that round as required; naive engines, 20 times slower, only where no other does.

        Engines whose numbers are in ``without`` are left out.
        """
        naive, is_any = list[tuple[int, int]](), False
        for configs in self._sources() if self._graph else ():
            for config in configs:
                number, notes = self._facts(config)
                if notes & self._of.refused or number in without:
                    continue
                if STRICT_NAN in notes:
                    naive.append((config, number))
                elif engine := self._engine(config, number):
                    is_any = True
                    yield engine
            if is_any and not self._of.is_plain:
                return
        for config, number in naive if not is_any else ():
            if engine := self._engine(config, number):
                yield engine

    def _sources(self) -> Iterator[Iterable[int]]:
        """Lists of cuDNN engine configurations, those of its heuristic first."""
        for mode in (_HEURISTIC_A, _FALLBACK):
            values = {201: (DESCRIPTOR, [self._graph]), 200: (HEURISTIC, [mode])}
            with suppress(RoutineError):  # it knows no engine
                heuristic = self._owned.make(_HEURISTICS, values)
                yield self._owned.descriptors(heuristic, 202, _CONFIG, _MOST)
        if self._of.transforms:
            yield self._by_number()

    def _by_number(self) -> Iterator[int]:
        """Configurations of all cuDNN engines, in order of the engines' numbers."""
        (count,) = self._owned.values(self._graph, 802, INT64, 1)
        for number in range(count):
            values = {1300: (DESCRIPTOR, [self._graph]), 1301: (INT64, [number])}
            with suppress(RoutineError):  # it does not support this convolution
                engine = self._owned.make(_ENGINE, values)
                yield self._owned.make(_CONFIG, {300: (DESCRIPTOR, [engine])})

    def _engine(self, config: int, number: int) -> Engine | None:
        """The engine of a configuration; None if it does not support the convolution in the workspace."""
        try:
            engine = Engine(self._cudnn, self._handle, config, number)
        except RoutineError:
            return None
        self._made.append(engine)
        return engine if engine.workspace <= self._workspace else None

    def _facts(self, config: int) -> tuple[int, set[int]]:
        """The number of a configuration's engine, and the notes on it."""
        (engine,) = self._owned.descriptors(config, 300, _ENGINE, 1)
        notes = set(self._owned.values(engine, 1303, NOTE, _NOTES))
        (number,) = self._owned.values(engine, 1301, INT64, 1)
        return number, notes | {
            _WITHOUT_NOTE[at] for at in [(self._of.routine, number)] if at in _WITHOUT_NOTE
        }

    def keep(self, one: Engine) -> None:
        """Destroy all engines except ``one``."""
        for engine in self._made:
            if engine is not one:
                engine.close()
        self._made = [one]

    def close(self) -> None:
        """Destroy all engines and cuDNN descriptors."""
        while self._made:
            self._made.pop().close()
        self._owned.close()


def _graph(handle: int, of: Convolution, owned: Descriptors) -> int:
    """Build cuDNN's operation graph of one convolution; return its descriptor."""
    numbers = _ATTRIBUTES[of.routine]
    convolution = owned.make(
        _CONVOLUTION,
        {
            100: (DATA_TYPE, [DATA_TYPES["float32"]]),
            101: (MODE, [_CROSS_CORRELATION]),
            102: (INT64, of.dilation),
            103: (INT64, of.stride),
            104: (INT64, of.after),
            105: (INT64, of.before),
            106: (INT64, [2]),
        },
    )
    tensors = {name: _tensor(getattr(of, name), name, of.dtype, owned) for name in _UIDS}
    operation = owned.make(
        _OPERATION[of.routine],
        {
            **{numbers[name]: (DESCRIPTOR, [tensor]) for name, tensor in tensors.items()},
            numbers["convolution"]: (DESCRIPTOR, [convolution]),
            numbers["alpha"]: (FLOAT, [1.0]),
            numbers["beta"]: (FLOAT, [float(of.updates)]),
        },
    )
    return owned.make(_GRAPH, {800: (HANDLE, [handle]), 801: (DESCRIPTOR, [operation])})


def _tensor(view: View, name: str, dtype: str, owned: Descriptors) -> int:
    """Build cuDNN's descriptor of a tensor."""
    return owned.make(
        _TENSOR,
        {
            901: (DATA_TYPE, [DATA_TYPES[dtype]]),
            902: (INT64, view.sizes),
            903: (INT64, view.strides),
            906: (INT64, [_UIDS[name]]),
            900: (INT64, [view.alignment]),
        },
    )
