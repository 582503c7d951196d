"""The case of out-of-core convolutions: each routine in pieces, on simulated machines or on a GPU.

The number of an input determines routine, layout and activation. Sizes, stride, padding, dilation, groups,
the machine, the budget of its device, the sizes of pieces, the options, the dtype, which arrays lie on the
device and pooling are drawn. The result's memory holds NaN before. An answer is right if it is within the
bound of its rounding errors (`reference.training.bounded`) and, on a simulated machine, where its sums are
not cut, has the bits of the answer in one piece, with pooling those of its definition on that answer.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

import gpu.outofcore
from gpu.cuda_machine import default_machine
from gpu.machine import Tile
from gpu.outofcore import AveragePool, DeviceTensor, MaxPool, Options, Pieces, Rates
from reference.conv_geometry import conv_geometry
from reference.errors import ShapeError
from reference.training import average_pool2d, bounded, max_pool2d
from simwarp.device.device import Device
from simwarp.machine import EVEREST, H200, MAKALU, H200x2, Machine
from simwarp.verify.case import Case
from simwarp.verify.draw import Draw

Array: TypeAlias = npt.NDArray[Any]
MACHINES = (H200, H200x2, EVEREST, MAKALU)
ROUTINES = ("conv2d", "conv2d_backward_data", "conv2d_backward_filter")
VARIANTS = tuple(
    (routine, layout, activation)
    for routine, layout, activation in product(ROUTINES, ("NCHW", "NHWC"), (None, "relu", "tanh", "sigmoid"))
    if routine == "conv2d" or activation is None
)
"""Every routine in every layout, and `conv2d` with every activation."""
RATES = Rates(3e-6, 5e10, 3e-6, 5e10, 1e-5, 3e13)
"""For the planner on a GPU."""
WHOLE = 1 << 30
"""More than any axis has."""


@dataclass(frozen=True)
class Input:
    """A convolution call with its arrays, and the machine and options with which it is computed.

    Attributes
    ----------
    options : dict
        Stride, padding, dilation, groups and layout.
    x, w, dy, bias : ndarray
        Without a bias None.
    pieces : Pieces, optional
        None for the planner's.
    times : int
        The budget, in units of the least one.
    parts : int
        Into how many parts sums are cut at most.
    on_device : tuple of str
        The arguments that lie on the device.
    pool : MaxPool or AveragePool, optional
    """

    routine: str
    activation: str | None
    options: dict[str, Any]
    x: Array
    w: Array
    dy: Array
    bias: Array | None
    machine: int
    seed: int
    jitter: float
    pieces: Pieces | None
    times: int
    switches: Options
    parts: int
    on_device: tuple[str, ...] = ()
    pool: MaxPool | AveragePool | None = None

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the routine, here and in the reference."""
        return {
            "conv2d": (self.x, self.w, self.bias),
            "conv2d_backward_data": (self.dy, self.w, self.x.shape),
            "conv2d_backward_filter": (self.x, self.dy, self.w.shape),
        }[self.routine]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays among the routine's arguments."""
        bias = ("bias",) if self.bias is not None else ()
        return {
            "conv2d": ("x", "w", *bias),
            "conv2d_backward_data": ("gradient", "w"),
            "conv2d_backward_filter": ("x", "gradient"),
        }[self.routine]

    @property
    def fused(self) -> dict[str, Any]:
        """The keyword arguments that only `conv2d` takes."""
        return {"activation": self.activation} if self.routine == "conv2d" else {}

    @property
    def output(self) -> Array:
        """An array with the shape and dtype of the result."""
        outputs = {"conv2d": self.dy, "conv2d_backward_data": self.x, "conv2d_backward_filter": self.w}
        found = outputs[self.routine]
        return self.pooled(found) if self.pool else found

    def pooled(self, y: Array, largest: bool | None = None) -> Array:
        """The pooling of results by its definition, rounded once; of their largest numbers if asked."""
        assert self.pool is not None
        is_largest = isinstance(self.pool, MaxPool) if largest is None else largest
        define = max_pool2d if is_largest else average_pool2d
        found = define(y, self.pool.window, stride=self.pool.stride, padding=self.pool.padding)
        return found.astype(y.dtype)

    @property
    def has_whole_sums(self) -> bool:
        """Whether no piece of the plan cuts the sum of an output element."""
        if self.pieces is None:
            return False
        groups, last = self.options["groups"], self.options["layout"] == "NHWC"
        return {
            "conv2d": self.pieces.channels >= self.x.shape[3 if last else 1] // groups,
            "conv2d_backward_data": self.pieces.filters >= self.w.shape[0] // groups,
            "conv2d_backward_filter": min(self.pieces.images, self.pieces.rows) == WHOLE,
        }[self.routine]


# --------------------------------------------------------------------------------------------------
# Inputs
# --------------------------------------------------------------------------------------------------


def _draw(draw: Draw) -> Input:
    """Draw a random convolution call."""
    routine, layout, activation = VARIANTS[draw.k % len(VARIANTS)]
    groups = draw.choice((1, 1, 1, 2, 3))
    channels, filters = groups * draw.integer(1, 5), groups * draw.integer(1, 5)
    images, options, outputs = _geometry(draw)
    options |= {"groups": groups, "layout": layout}
    window = options.pop("window")
    bias = _values(draw, (filters,)) if routine == "conv2d" and draw.integer(0, 1) else None
    drawn = Input(
        routine,
        activation,
        options,
        x=_placed(_values(draw, (images[0], channels, *images[1:])), layout),
        w=_placed(_values(draw, (filters, channels // groups, *window)), layout),
        dy=_placed(_values(draw, (images[0], filters, *outputs)), layout),
        bias=bias,
        machine=draw.integer(0, len(MACHINES) - 1),
        seed=draw.integer(0, 2**31),
        jitter=draw.choice((0.0, 0.5, 20.0)),
        pieces=_pieces(draw, images[0], images[1], channels, filters),
        times=draw.choice((1, 1, 2, 5, 100)),
        switches=Options(
            planner=draw.choice(("greedy", "greedy", "steepest", "exhaustive")),
            depth=draw.choice((1, 2, 3, 3, 5)),
            filters=draw.choice(("resident", "streamed")),
        ),
        parts={
            "conv2d": channels // groups,
            "conv2d_backward_data": filters // groups,
            "conv2d_backward_filter": images[0] * outputs[0],
        }[routine],
    )
    drawn = _in_dtype(drawn, draw.choice(("float32", "float32", "float16", "tf32")))
    drawn = replace(drawn, on_device=_places(draw, drawn))
    drawn = replace(drawn, pool=_pool(draw, drawn))
    reuse = draw.choice((True, True, True, False))
    return replace(drawn, switches=replace(drawn.switches, reuse=reuse))


def _places(draw: Draw, item: Input) -> tuple[str, ...]:
    """Draw which arguments lie on the device: in half of all inputs none."""
    if draw.integer(0, 1):
        return ()
    return tuple(name for name in (*item.names, "out") if draw.integer(0, 1))


def _pool(draw: Draw, item: Input) -> MaxPool | AveragePool | None:
    """Draw pooling that fits, in half of the inputs that may have it."""
    kind = draw.choice((None, None, MaxPool, AveragePool))
    may = item.routine == "conv2d" and item.options["layout"] == "NCHW" and item.x.dtype == np.float32
    if kind is None or not may:
        return None
    _, _, rows, columns = item.dy.shape
    window = draw.integer(1, min(rows, 3)), draw.integer(1, min(columns, 3))
    stride = draw.choice((None, None, 1, 2, (2, 3)))
    return kind(window, stride, draw.choice(("VALID", "VALID", "SAME")))


def _in_dtype(item: Input, dtype: str) -> Input:
    """The same call in another dtype, or with TF32 products."""
    if dtype == "tf32":
        return replace(item, switches=replace(item.switches, math="tf32"))
    arrays = {name: getattr(item, name) for name in ("x", "w", "dy", "bias")}
    return replace(item, **{name: x if x is None else x.astype(dtype) for name, x in arrays.items()})


def _geometry(draw: Draw) -> tuple[tuple[int, int, int], dict[str, Any], tuple[int, int]]:
    """Draw images, the options of windows that fit into them, and the output's rows and columns."""
    while True:
        images = draw.integer(1, 4), draw.integer(1, 12), draw.integer(1, 9)
        window = draw.integer(1, 4), draw.integer(1, 4)
        pads = tuple((draw.integer(0, 3), draw.integer(0, 3)) for _ in range(2))
        options: dict[str, Any] = {
            "stride": (draw.choice((1, 1, 2, 3, 5)), draw.choice((1, 1, 2, 3))),
            "padding": draw.choice(("SAME", "VALID", pads)),
            "dilation": (draw.choice((1, 1, 2)), draw.choice((1, 1, 2))),
        }
        try:
            g = conv_geometry((1, *images[1:], 1), (*window, 1, 1), **options)
        except ShapeError:
            continue
        return images, {**options, "window": window}, (g.out_height, g.out_width)


def _pieces(draw: Draw, *most: int) -> Pieces | None:
    """Draw sizes of pieces, often whole axes; None for the planner's sizes."""
    if draw.integer(0, 3) == 0:
        return None
    return Pieces(*(draw.choice((WHOLE, draw.integer(1, size), 1)) for size in most))


def _values(draw: Draw, shape: tuple[int, ...]) -> Array:
    """Draw an array of float32 numbers from -1 to 1."""
    words = draw.words(int(np.prod(shape)))
    return ((words >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1).astype(np.float32).reshape(shape)


def _placed(x: Array, layout: str) -> Array:
    """An array of (N, C, H, W) in the layout."""
    return x if layout == "NCHW" else np.ascontiguousarray(np.moveaxis(x, 1, -1))


# --------------------------------------------------------------------------------------------------
# Tiers
# --------------------------------------------------------------------------------------------------


def _bounded(item: Input) -> tuple[Array, Array]:
    """The answer of the reference, and how far others may be from it."""
    how = {"dtype": item.x.dtype, "tf32": item.switches.math == "tf32", "parts": item.parts}
    found, bound = bounded(item.routine, *item.arguments, **how, **item.fused, **item.options)
    if item.pool is None:
        return found, bound
    pooled = item.pooled(found)  # by no more than the largest error of a window, and a rounding of the mean
    return pooled, item.pooled(bound, largest=True) + np.finfo(np.float32).eps * np.abs(pooled)


def _by_reference(item: Input) -> Array:
    return _bounded(item)[0]


def _by_gpu(item: Input, device: Any) -> Array:
    """The answer of `gpu.outofcore` on the input's simulated machine; for a CUDA device on a GPU."""
    is_simulated, switches = isinstance(device, Device), item.switches
    if is_simulated:
        machine = Machine(MACHINES[item.machine], seed=item.seed, jitter=item.jitter)
    else:  # no rates are measured for layers of a few pixels
        machine, switches = default_machine(), replace(switches, rates=RATES)
    budget = _least_budget(item, machine, switches) * item.times
    result = _called(item, machine, item.pieces, switches, budget, item.on_device)
    left = len(machine.allocated(0))
    if left or machine.pinned():
        raise RuntimeError(f"{left} allocations and {machine.pinned()} pinned arrays are left")
    if is_simulated and item.has_whole_sums:
        options = Options(math=switches.math)
        bare = replace(item, pool=None)
        whole = _called(bare, Machine(), Pieces(WHOLE, WHOLE, WHOLE, WHOLE), options, None)
        whole = item.pooled(whole) if item.pool else whole
        if not np.array_equal(result, whole):
            raise RuntimeError(
                f"{(result != whole).sum()} numbers have not the bits of the call in one piece"
            )
    return result


def _called(
    item: Input,
    machine: Any,
    pieces: Pieces | None,
    switches: Options,
    budget: int | None,
    on_device: tuple[str, ...] = (),
) -> Array:
    """The result of a call, in memory that was NaN."""
    given = dict(zip(item.names, item.arguments, strict=False))
    given["out"] = np.full_like(item.output, np.nan)
    there = {name: _put(machine, given[name]) for name in on_device}
    out, *arrays = ((given | there)[name] for name in ("out", *item.names))
    result = getattr(gpu.outofcore, item.routine)(
        *arrays,
        *item.arguments[len(arrays) :],
        **item.fused,
        **({"pool": item.pool} if item.pool else {}),
        **item.options,
        device=machine,
        out=out,
        pieces=pieces,
        memory_budget=budget,
        options=switches,
    )
    for name, tensor in there.items():
        found = _moved(machine, tensor, np.empty_like(given[name]), "copy_out")
        machine.free(tensor.memory)
        if name == "out":
            result = found
        elif not np.array_equal(found, given[name]):
            raise RuntimeError(f"{name} on the device has changed")
    return result


def _put(machine: Any, x: Array) -> DeviceTensor:
    """A tensor on the machine's first device with the values of an array, not at the start of its memory."""
    tensor = DeviceTensor(machine.allocate(0, x.nbytes + 64), x.shape, x.dtype, offset=48)
    _moved(machine, tensor, x, "copy_in")
    return tensor


def _moved(machine: Any, tensor: DeviceTensor, host: Array, way: str) -> Array:
    """Copy a tensor to or from an array, which is returned."""
    column = host.reshape(-1, 1)
    tile = Tile(tensor.memory, tensor.offset, host.size, 1, host.size, host.dtype)
    machine.pin(host)
    getattr(machine, way)(machine.stream(0), *((column, tile) if way == "copy_in" else (tile, column)))
    machine.run([])
    machine.unpin(host)
    return host


def _least_budget(item: Input, machine: Any, switches: Options) -> int:
    """The least bytes for the input's pieces, or for the smallest ones."""
    plan = gpu.outofcore.explain(
        item.routine,
        item.x.shape,
        item.w.shape,
        device=machine,
        bias=item.bias is not None,
        pieces=item.pieces or Pieces(1, 1, 1, 1),
        options=replace(switches, depth=1, filters="streamed"),
        dtype=item.x.dtype,
        on_device=item.on_device,
        pool=item.pool,
        **item.fused,
        **item.options,
    )
    return plan.buffers.total


def differs(item: Input, expected: Array, got: Array) -> npt.NDArray[np.bool_]:
    """Mask of the result's elements whose error exceeds the rounding bound."""
    _, bound = _bounded(item)
    return ~(np.abs(got - expected) <= bound)


# --------------------------------------------------------------------------------------------------
# Description of inputs and mismatches
# --------------------------------------------------------------------------------------------------


def _describe(item: Input) -> str:
    options = ", ".join(f"{name} {value}" for name, value in item.options.items())
    switches = item.switches
    dtype = "tf32" if switches.math == "tf32" else item.x.dtype
    return (
        f"{item.routine}, x {item.x.shape}, w {item.w.shape}, {options}, bias {item.bias is not None},"
        f" activation {item.activation}, {_shown(item.pieces)},"
        f" {item.times} x the least budget, {switches.planner}, depth {switches.depth},"
        f" filters {switches.filters}{'' if switches.reuse else ', no reuse'}, {dtype},"
        f" {MACHINES[item.machine].name}"
        f"{', ' if item.pool else ''}{item.pool or ''}"
        f"{', on the device: ' if item.on_device else ''}{', '.join(item.on_device)}"
    )


def _shown(pieces: Pieces | None) -> str:
    """The sizes of the pieces as text for a report."""
    if pieces is None:
        return "pieces of the planner"
    sizes = {axis: "all" if size == WHOLE else size for axis, size in asdict(pieces).items()}
    return "pieces of " + ", ".join(f"{size} {axis}" for axis, size in sizes.items())


def _explain(item: Input, element: tuple[int, ...], _: int) -> str:
    first, *rest = element
    channel, row, column = rest if item.options["layout"] == "NCHW" else (rest[2], rest[0], rest[1])
    if item.routine == "conv2d_backward_filter":
        return f"filter {first}, channel {channel}, tap {row}, {column}"
    return f"image {first}, channel {channel}, row {row}, column {column}"


def _shape(item: Input) -> tuple[int, ...]:
    variant = VARIANTS.index((item.routine, item.options["layout"], item.activation))
    return (variant, *item.x.shape, *item.w.shape)


CASES = [
    Case(
        name="conv",
        draw=_draw,
        shape=_shape,
        describe=_describe,
        answers={"reference": _by_reference, "gpu": _by_gpu},
        outputs={"gpu": ""},
        explain=_explain,
        lead=lambda item, bits: 0,  # the answers are floats, which have no differing bits
        kernels=lambda arch: {},
        covering=len(VARIANTS),
        differs=differs,
    )
]
"""The cases of the harness."""
