"""The operations of a whole network in one kernel: one or more for each step of the plan, with constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from gpu.bconv.geometry import ConvShape
from gpu.bnn.plan import IMAGES, Step, Values
from gpu.bnn.stages import STAGES, pairs, view_of
from gpu.bnn.tiles import (
    FILTERS_OF_TILE,
    SHORTS,
    UNIT,
    border_of,
    geometry_of,
    units_of_bits,
    units_of_shorts,
)
from gpu.bnn.weights import packed_filters
from reference.errors import SchemeError
from reference.types.layers import Clip, Conv, Dense, Flatten, Pool, Residual, Threshold
from reference.types.network import BitPlanes, Pixels, Reals, Signs
from reference.types.network_values import INT16_MAX, INT16_MIN, INT32_MAX, Value

Constants: TypeAlias = Mapping[str, npt.NDArray[Any]]

ELEMENTS, WORDS_OF_WARP, ROWS_OF_WARP = "threads", "words", "warps"
"""What a task of an operation has, unless tiles of products: an element of each thread, eight words or a row
of each warp."""

KINDS = (
    *(
        "products_of_bits",
        "products_of_numbers",
        "numbers_of_numbers",
        "bits_of_numbers",
        "shorts_of_numbers",
    ),
    *("bits_of_planes", "bits_flattened", "bits_pooled", "last_answer"),
)
SOURCES = ("integers", "bytes", "reals", "ordered_bytes", "ordered_floats")
JOINS = ("", "or", "and", "max", "sum")
"""The names of step.cuh, in its order."""


@dataclass(frozen=True, eq=False)
class Operation:
    """Work of the kernel's blocks between two barriers; operations of one level run side by side.

    Attributes
    ----------
    kind : str
    reads, writes : dict of str to str
        The names of values, by the field of the step.
    count : int
        Elements, words, rows or pixels of one image.
    of_task : str
        What a task has of them.
    fields : dict
        Numbers of the step, by its fields.
    constants : dict
        Arrays of the step, by its fields.
    """

    kind: str
    reads: dict[str, str]
    writes: dict[str, str]
    count: int
    of_task: str = ELEMENTS
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    constants: Constants = field(default_factory=dict[str, Any])


class Lowering:
    """Converts steps to operations, one after another.

    Attributes
    ----------
    operations : list of Operation
    sizes : dict of str to int
        Bytes of each value, for one image.
    """

    unit: ClassVar = UNIT
    """Bits to whose multiples a row of bits is padded."""

    def __init__(self, values: Values, steps: Iterable[Step], schemes: Mapping[str, str]) -> None:
        self.schemes = schemes
        """The schemes that the caller chose, by the path of a layer."""
        self.operations: list[Operation] = []
        self.sizes: dict[str, int] = {}
        self._values, self._same = dict(values), dict[str, str]()
        for step in steps:
            self._add_step(step)

    def name(self, path: str) -> str:
        """The name of a value; flattened integers have the name of the value before."""
        return self._same.get(path, path)

    def words(self, value: Value) -> int:
        """The number of words of one image's bits; rows are whole units."""
        return prod(value.shape[:-1]) * self.unit // 32 * -(-value.shape[-1] // self.unit)

    def _add_step(self, step: Step) -> None:
        add = OPERATIONS.get(type(step.layers[0]))
        if add is None:
            raise SchemeError(
                f'way="whole" has no operation for layer {step.paths[0]} ({type(step.layers[0]).__name__})\n'
                'one kernel computes all layers\nuse way="layers"'
            )
        add(self, step)

    def add_images(self, step: Step) -> None:
        """Add the conversion of images to integers, with the products that follow if joined."""
        images: Any = step.layers[0]
        layers, source = step.layers, _source_of(images)
        if len(layers) == 1:
            self._numbers(step, source, ())
            return
        given = self._values["input"]
        self._products(step, layers[1:], self._shorts(IMAGES, given, source), given)

    def add_products(self, step: Step) -> None:
        """Add the operation of a convolution or a dense layer."""
        given, x = self._values[step.reads[0]], self.name(step.reads[0])
        if given.kind == "bits" and getattr(step.layers[0], "groups", 1) > 1:
            x, given = self._numbers_of_bits(x, given)
        x = self._shorts(x, given, {}) if given.kind == "integers" else x
        self._products(step, step.layers, x, given)

    def add_signs(self, step: Step) -> None:
        """Add the operation that packs the signs of float images as bits."""
        images: Any = step.layers[0]
        value, ordered = self._values[step.writes[-1]], _in_order(images.thresholds)
        rule = Threshold(np.tile(ordered, value.shape[-1] // len(ordered)), 0)
        self._numbers(step, _source_of(images), (rule,))

    def add_planes(self, step: Step) -> None:
        """Add the operation that splits the bytes of images into planes of bits."""
        value = self._values[step.writes[-1]]
        fields = {"seen_channels": value.shape[-1] // 8}
        self._add("bits_of_planes", step, {}, value, self.words(value), fields=fields)

    def add_chain(self, step: Step) -> None:
        """Add layers on integers, or a pool of bits word by word."""
        value = self._values[step.writes[-1]]
        if isinstance(pool := step.layers[0], Pool) and pool.kind in ("or", "and"):
            words = self.words(value) // prod(value.shape[:2])
            fields = {**_windows(pool, self._values[step.reads[0]], value), "seen_channels": words}
            count = prod(value.shape[:2]) * words
            self._add("bits_pooled", step, {"x": step.reads[0]}, value, count, fields=fields)
        else:
            self._numbers(step, {}, step.layers)

    def _add(
        self,
        kind: str,
        step: Step,
        reads: dict[str, str],
        value: Value,
        count: int,
        of_task: str = ELEMENTS,
        fields: Mapping[str, Any] | None = None,
        constants: Constants | None = None,
    ) -> None:
        """Add an operation that writes a step's values: integers first, bits last."""
        integers = value.kind == "integers"
        writes = {"numbers" if integers else "lines": step.writes[-1]}
        if len(step.writes) == 2:
            writes["numbers"] = step.writes[0]
        for at, name in writes.items():
            self.sizes[name] = 4 * (prod(value.shape) if at == "numbers" else self.words(value))
        reads = {at: self.name(path) for at, path in reads.items()}
        rows = value.shape[:2] if len(value.shape) == 3 else (1, 1)
        sizes = {"out_height": rows[0], "out_width": rows[1], "out_channels": value.shape[-1]}
        self.operations.append(
            Operation(kind, reads, writes, count, of_task, sizes | dict(fields or {}), constants or {})
        )

    # ----------------------------------------------------------------------------------------------
    # Products
    # ----------------------------------------------------------------------------------------------

    def _shorts(self, name: str, given: Value, source: Mapping[str, Any]) -> str:
        """Add an operation that converts integers to shorts, once; return the result's name."""
        made = f"{name} as shorts"
        if made in self.sizes:
            return made
        planes = 1 + (given.low < INT16_MIN or given.high > INT16_MAX)
        pixels, channels = prod(given.shape[:-1]), given.shape[-1]
        units = pixels * -(-channels // SHORTS)
        self.sizes[made] = 8 * units * planes
        fields, constants = _parted(source)
        fields |= {"planes": planes, "seen_channels": channels, "out_channels": channels}
        fields |= {"out_height": 1, "out_width": pixels, "plane": units}
        reads = {} if name == IMAGES else {"x": name}
        self.operations.append(
            Operation("shorts_of_numbers", reads, {"lines": made}, units, ELEMENTS, fields, constants)
        )
        return made

    def _numbers_of_bits(self, name: str, given: Value) -> tuple[str, Value]:
        """Convert bits to the numbers ±1, once per value; filters in groups need zeros, which bits lack.

        The sum of two products is 2 x[c]: one adds all channels, the other takes those other than c away.
        """
        made, channels = f"{name} as numbers", given.shape[-1]
        self._values |= {
            f"{made}, all": replace(given, kind="integers", low=-channels, high=channels),
            f"{made}, twice": replace(given, kind="integers", low=-2, high=2),
            made: replace(given, kind="integers"),
        }
        if made not in self.sizes:
            filters = np.stack([np.ones((channels, channels)), np.eye(channels)]).astype(np.uint8)
            every, one = (Conv(packed_filters(bits[None, None])) for bits in filters)
            ends = f"{made}, all", f"{made}, twice"
            self._add_step(Step((every,), ends[:1], (name,), ends[:1]))
            self._add_step(Step((one, Residual(())), ends[1:], (name, ends[0]), ends[1:]))
            self._add_step(Step((Clip(-1, 1),), (made,), ends[1:], (made,)))
        return made, self._values[made]

    def _products(self, step: Step, layers: Sequence[Any], x: str, given: Value) -> None:
        """A convolution or dense layer, with a sum, a threshold and a pool."""
        layer, rest, value = layers[0], layers[1:], self._values[step.writes[-1]]
        shape, signs = geometry_of(layer, given)
        pool = next((each.kind for each in rest if isinstance(each, Pool) and each.kind in ("or", "and")), "")
        fields = {
            **{name: getattr(shape, name) for name in _GEOMETRY},
            "pool": JOINS.index(pool),
            "tiles_of_columns": self.words(value) // prod(value.shape[:-1])
            if value.kind == "bits"
            else -(-value.shape[-1] // FILTERS_OF_TILE),
        }
        if given.kind == "integers":
            channels = -(-shape.channels // SHORTS)
            fields |= {"units": channels, "plane": shape.height * shape.width * channels}
            fields["planes"] = 1 + (given.low < INT16_MIN or given.high > INT16_MAX)
            kind, of_kind, constants = self.of_numbers(signs, shape)
        else:
            path = next(path for each, path in zip(step.layers, step.paths, strict=True) if each is layer)
            kind, of_kind, constants = self.of_bits(path, layer, (signs > 0).astype(np.uint8), shape)
        reads = {"x": x}
        if len(step.reads) == 2:
            reads["addend"] = step.reads[1]
            fields |= self._view(step, rest, value)
        of_rest, of_stages = _parted(_stages(rest))
        fields, constants = {**fields, **of_kind, **of_rest}, {**constants, **of_stages}
        pixels = prod(value.shape[:-1]) * (4 if pool else 1)
        self._add(kind, step, reads, value, pixels, "tiles", fields, constants)

    def of_bits(
        self, path: str, layer: Conv | Dense, bits: npt.NDArray[np.uint8], shape: ConvShape
    ) -> tuple[str, dict[str, Any], Constants]:
        """The kind of an operation that is products of bits, its own fields, and its constants."""
        weights, taps = units_of_bits(bits, shape)
        fields = {"units": -(-shape.channels // UNIT), "planes": 1, "steps_of_k": weights.shape[1]}
        return "products_of_bits", fields, {"weights": weights, "taps": taps, **border_of(bits, shape)}

    def of_numbers(
        self, signs: npt.NDArray[np.int8], shape: ConvShape
    ) -> tuple[str, dict[str, Any], Constants]:
        """The same of products of integers."""
        weights, taps = units_of_shorts(signs, shape)
        return "products_of_numbers", {"steps_of_k": weights.shape[1]}, {"weights": weights, "taps": taps}

    # ----------------------------------------------------------------------------------------------
    # Everything else
    # ----------------------------------------------------------------------------------------------

    def _numbers(self, step: Step, source: Mapping[str, Any], layers: Sequence[Any]) -> None:
        """The table entry of layers on integers or images; their output is bits if they have a threshold."""
        value = self._values[step.writes[-1]]
        fields, constants = _parted({**source, **_stages(layers)})
        reads: dict[str, str] = dict(zip(("x", "addend"), step.reads, strict=False))
        if reads["x"] == IMAGES:
            reads, fields["seen_channels"] = {}, value.shape[-1]
        else:
            fields |= self._view(step, layers, value)
        if value.kind == "bits":
            self._add(
                "bits_of_numbers", step, reads, value, self.words(value), WORDS_OF_WARP, fields, constants
            )
        else:
            self._add(
                "numbers_of_numbers", step, reads, value, prod(value.shape), ELEMENTS, fields, constants
            )

    def _view(self, step: Step, layers: Sequence[Any], value: Value) -> dict[str, Any]:
        """The kernel's fields for a step's last input: pooling windows and channels of zeros before it."""
        given = self._values[step.reads[-1]]
        pool, before = view_of(layers)
        windows = _windows(pool, given, value) if pool else {}
        return {"seen_channels": given.shape[-1], "before": before, **windows}

    def is_flat(self, given: Value) -> bool:
        """True if an image's bits lie as those of a vector do."""
        return given.shape[-1] % UNIT == 0 or prod(given.shape[:-1]) == 1

    def add_flatten(self, step: Step) -> None:
        """Add a flattening; without gaps between pixels it needs no operation."""
        given, value = (self._values[path] for path in (step.reads[0], step.writes[-1]))
        if value.kind == "integers" or self.is_flat(given):
            self._same[step.writes[0]] = self.name(step.reads[0])
            return
        fields: dict[str, Any] = dict(
            zip(("seen_height", "seen_width", "seen_channels"), given.shape, strict=True)
        )
        reads = {"x": step.reads[0]}
        self._add("bits_flattened", step, reads, value, self.words(value), fields=fields)


_GEOMETRY = ("height", "width", "pad_top", "pad_left", "stride_h", "stride_w")


def _source_of(images: Pixels | Reals | Signs) -> dict[str, Any]:
    """The fields and constants of a step that reads images."""
    if isinstance(images, Pixels):
        return {"source": SOURCES.index("bytes"), "affine": pairs(images.scale, images.offset)}
    if isinstance(images, Reals):
        return {"source": SOURCES.index("reals"), "unit": 2.0**images.fraction}
    return {"source": SOURCES.index("ordered_floats")}


def _stages(layers: Sequence[Any]) -> dict[str, Any]:
    """The kernel's fields and constant arrays for layers on integers."""
    parts = [STAGES[type(layer)].fields(layer) for layer in layers]
    return {name: value for part in parts for name, value in part.items()}


def _windows(pool: Pool, given: Value, value: Value) -> dict[str, int]:
    """The kernel's fields for pooling windows: input size, window, stride, padding and operation."""
    (above, _), (beside, _) = pool.padding
    strides = [step if size > 1 else 1 for step, size in zip(pool.stride, value.shape[:2], strict=True)]
    return {
        **dict(zip(("seen_height", "seen_width"), given.shape[:2], strict=True)),
        **dict(zip(("window_h", "window_w"), pool.window, strict=True)),
        **dict(zip(("step_h", "step_w"), strides, strict=True)),
        **{"above": above, "beside": beside, "join": JOINS.index(pool.kind)},
    }


def _parted(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a dictionary into scalar fields and constant arrays."""
    constants: dict[str, Any] = {
        name: value for name, value in given.items() if isinstance(value, np.ndarray)
    }
    return {name: value for name, value in given.items() if name not in constants}, constants


def _in_order(floats: Any) -> npt.NDArray[np.int32]:
    """Integers in the order of floats, and 0 for both zeros: in_order of elements.cuh."""
    bits = (np.asarray(floats, np.float32) + np.float32(0)).view(np.int32)
    return np.where(bits < 0, bits ^ np.int32(INT32_MAX), bits)


OPERATIONS: dict[type, Callable[[Lowering, Step], None]] = {
    Pixels: Lowering.add_images,
    Reals: Lowering.add_images,
    Signs: Lowering.add_signs,
    BitPlanes: Lowering.add_planes,
    Conv: Lowering.add_products,
    Dense: Lowering.add_products,
    Flatten: Lowering.add_flatten,
    **dict.fromkeys(STAGES, Lowering.add_chain),
}
"""What adds the operations of a step, by its first layer."""
