"""cuDNN on a `FakeDriver`: descriptors, engines and convolutions by their definitions.

Each convolution has four engines. The first one uses TF32, and so is for nobody who did not ask for it; the
second needs a workspace, and the third none. The last one uses Winograd's transforms, and is off by a part of
the largest number everywhere; no heuristic finds it, as in cuDNN 9.19. As there, the gradient of filters has
another such engine without a note. Nobody may ask for unequal padding, which some engines there take for
equal.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from reference.training import conv2d, conv2d_backward_data, conv2d_backward_filter
from support.fake_cublas import Function
from support.fake_driver import FakeDriver, Work, demand

TYPES = {0: "p", 1: "i", 3: "l", 4: "f", 6: "p", 7: "i", 8: "i", 11: "i", 15: "p"}
SIZES = {"p": 8, "i": 4, "l": 8, "f": 4}
OPERATIONS = {10: ("conv2d", 700), 12: ("conv2d_backward_data", 706), 11: ("conv2d_backward_filter", 712)}
NOTES = {5: [0], 6: [], 7: [9], 8: [5], 17: []}
FOUND = (17, 5, 6, 7)
ACTIVATION = {0: "sigmoid", 1: "relu", 2: "tanh"}
NOT_SUPPORTED = 3000


@dataclass
class Descriptor:
    kind: Any
    values: dict[int, list[Any]] = field(default_factory=dict[int, list[Any]])
    is_final: bool = False


class FakeCudnn:
    """The library; ``refuses`` are the engines that do not support anything."""

    def __init__(self, driver: FakeDriver, refuses: Sequence[int] = ()) -> None:
        self.driver, self.refuses = driver, refuses
        self.handles: dict[int, list[int]] = {}
        self.descriptors: dict[int, Descriptor] = {}
        self.executed: list[tuple[int, int]] = []
        self._functions: dict[str, Function] = {}
        self._numbers = 9000

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cudnn"):
            raise AttributeError(name)
        own: Callable[..., Any] = object.__getattribute__(self, "_" + name)
        return self._functions.setdefault(name, Function(own))

    def _number(self, target: Any) -> int:
        self._numbers += 1
        ctypes.cast(target, ctypes.POINTER(ctypes.c_void_p))[0] = self._numbers
        return self._numbers

    # ---- handles

    def _cudnnGetVersion(self) -> int:  # noqa: N802
        return 91900

    def _cudnnGetErrorString(self, status: int) -> bytes:  # noqa: N802
        return f"status {status}".encode()

    def _cudnnCreate(self, target: Any) -> int:  # noqa: N802
        self.handles[self._number(target)] = [self.driver.current(), 0]
        return 0

    def _cudnnDestroy(self, handle: int) -> int:  # noqa: N802
        demand(self.handles[handle][0] == self.driver.current(), "destroyed in another context")
        del self.handles[handle]
        return 0

    def _cudnnSetStream(self, handle: int, stream: int) -> int:  # noqa: N802
        self.driver.stream(stream)
        self.handles[handle][1] = stream
        return 0

    # ---- descriptors of the graph API

    def _cudnnBackendCreateDescriptor(self, kind: int, target: Any) -> int:  # noqa: N802
        self.descriptors[self._number(target)] = Descriptor(kind)
        return 0

    def _cudnnBackendDestroyDescriptor(self, number: int) -> int:  # noqa: N802
        del self.descriptors[number]
        return 0

    def _cudnnBackendSetAttribute(self, of: int, name: int, kind: int, n: int, values: Any):  # noqa: N802
        demand(not self.descriptors[of].is_final, "an attribute of a final descriptor is set")
        demand(ctypes.sizeof(values) == n * SIZES[TYPES[kind]], "an attribute of another size than its type")
        self.descriptors[of].values[name] = [value or 0 for value in values]
        return 0

    def _cudnnBackendFinalize(self, number: int) -> int:  # noqa: N802
        found = self.descriptors[number]
        found.is_final = True
        if found.kind == 15:
            self._check(*self._operation(found))
        if found.kind == 2:
            (number,) = found.values[1301]
            if number not in NOTES:
                return NOT_SUPPORTED
            found.values |= {-1: [number], 201: found.values[1300]}
        if found.kind == 3:
            found.values |= self.descriptors[found.values[300][0]].values
        if found.kind == 5:
            engine, routine = self._engine(found), self._operation(self._graph(found))[0]
            is_other = engine == 17 and routine != "conv2d_backward_filter"
            return NOT_SUPPORTED if engine in self.refuses or is_other else 0
        return 0

    def _cudnnBackendGetAttribute(self, of: int, name: int, kind: int, n: int, count: Any, to: Any):  # noqa: N802
        found = self._attribute(self.descriptors[of], name, [*to])
        for place, value in enumerate(found[:n]):
            to[place] = value
        ctypes.cast(count, ctypes.POINTER(ctypes.c_int64))[0] = len(found)
        return 0

    def _attribute(self, of: Descriptor, name: int, given: list[Any]) -> list[Any]:
        if name == 202:  # the configurations of engines that a heuristic finds
            for engine, blank in zip(FOUND, given, strict=False):
                demand(self.descriptors[blank].kind == 3, "a blank of another kind")
                self.descriptors[blank] = Descriptor(3, {-1: [engine], **of.values}, True)
            return given[: len(FOUND)]
        if name == 802:
            return [max(NOTES) + 2]
        if name == 1301:
            return of.values[-1]
        if name == 300:
            self.descriptors[given[0]] = Descriptor(2, of.values, True)
            return given[:1]
        if name == 1303:
            return NOTES[of.values[-1][0]]
        demand(name == 402, "another attribute")
        return [self._needs(of)]

    def _engine(self, plan: Descriptor) -> int:
        return self.descriptors[plan.values[401][0]].values[-1][0]

    def _graph(self, plan: Descriptor) -> Descriptor:
        return self.descriptors[self.descriptors[plan.values[401][0]].values[201][0]]

    def _needs(self, plan: Descriptor) -> int:
        """The bytes of an engine's workspace."""
        return 1000 if self._engine(plan) == 6 else 0

    def _operation(self, graph: Descriptor) -> tuple[str, dict[str, Descriptor], Descriptor, float]:
        """A routine, its tensors, its convolution and beta."""
        operation = self.descriptors[graph.values[801][0]]
        name, first = OPERATIONS[operation.kind]
        beta, convolution, w, x, y = (operation.values[first + place][0] for place in range(1, 6))
        demand(operation.values[first] == [1.0], "another alpha")
        return (
            name,
            {"x": self.descriptors[x], "w": self.descriptors[w], "y": self.descriptors[y]},
            (self.descriptors[convolution]),
            beta,
        )

    def _check(self, name: str, of: dict[str, Descriptor], convolution: Descriptor, beta: float) -> None:
        x, w, y = (one.values[902] for one in of.values())
        numbers = convolution.values
        demand(numbers[100] == [0] and numbers[101] == [1] and numbers[106] == [2], "another convolution")
        demand(beta in (0, 1) and min(*numbers[104], *numbers[105]) >= 0, "padding below 0")
        demand(numbers[104] == numbers[105], "unequal padding, which some engines take for equal")
        demand(y[:2] == [x[0], w[0]] and w[0] % (x[1] // w[1]) == 0, "sizes do not fit")
        for axis in (0, 1):
            span = (w[axis + 2] - 1) * numbers[102][axis] + 1
            free = x[axis + 2] + numbers[105][axis] + numbers[104][axis] - span
            demand(free // numbers[103][axis] + 1 == y[axis + 2] and free >= 0, "the result has other sizes")

    # ---- execution

    def _cudnnBackendExecute(self, handle: int, plan: int, pack: int) -> int:  # noqa: N802
        own, values = self.descriptors[plan], self.descriptors[pack].values
        demand(own.values[400] == [handle], "a plan of another handle")
        name, of, convolution, beta = self._operation(self._graph(own))
        at = dict(zip(values[1000], values[1001], strict=True))
        used: list[Any] = []
        arrays = {tensor: self._array(at[one.values[906][0]], one.values, used) for tensor, one in of.items()}
        if needs := self._needs(own):
            used.append(self.driver.view(values[1003][0], needs, needs, 1)[0])
        self.executed.append((self._engine(own), handle))
        engine = self._engine(own)
        self._queue(handle, used, partial(computed, name, arrays, convolution.values, beta, engine))
        return 0

    def _array(self, address: int, values: dict[int, list[Any]], used: list[Any]) -> Any:
        demand(address % values[900][0] == 0, "an address that is less aligned than it says")
        return self._strided(address, values[901][0], values[902], values[903], used)

    def _strided(self, address: int, kind: int, sizes: Any, strides: Any, used: list[Any]) -> Any:
        dtype = np.dtype({0: np.float32, 2: np.float16}[kind])
        last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        found, _ = self.driver.view(address, 1, (last + 1) * dtype.itemsize, 1)
        used.append(found)
        steps = [stride * dtype.itemsize for stride in strides]
        return np.ndarray(sizes, dtype, found.data, address - found.start, steps)

    def _queue(self, handle: int, used: list[Any], run: Callable[[], None]) -> None:
        context, stream = self.handles[handle]
        demand(context == self.driver.current(), "another context is current than that of the handle")
        for one in used:
            demand(one.context == context, "memory of another device than that of the handle")
        self.driver.stream(stream).work.append(Work(run, tuple(used)))


def computed(name: str, of: dict[str, Any], numbers: dict[int, list[int]], beta: float, engine: int) -> None:
    """Compute a convolution or a gradient into its output."""
    before, after = numbers[105], numbers[104]
    x, w, y = of["x"], of["w"], of["y"]
    options: dict[str, Any] = {
        "stride": tuple(numbers[103]),
        "dilation": tuple(numbers[102]),
        "padding": tuple(zip(before, after, strict=True)),
        "groups": x.shape[1] // w.shape[1],
    }
    if name == "conv2d":
        output, found = y, conv2d(x, w, **options)
    elif name == "conv2d_backward_data":
        output, found = x, conv2d_backward_data(y, w, x.shape, **options)
    else:
        whole = conv2d(x, np.zeros_like(w), **options).shape
        padded = np.zeros(whole)
        padded[:, :, : y.shape[2], : y.shape[3]] = y[:, :, : whole[2], : whole[3]]
        output, found = w, conv2d_backward_filter(x, padded, w.shape, **options)
    if engine == 5:
        found = found * (1 + 2**-12)
    elif engine in (8, 17):
        found = found + 2**-13 * np.abs(found).max()
    output[...] = found + output if beta else found
