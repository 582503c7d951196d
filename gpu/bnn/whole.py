"""A whole binarized network in one cooperative launch (BSTC, section 6; BTC, section 6.1 and figure 15)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from gpu.bnn.forms import KINDS_OF_LAYERS, PLACES, Form, Geometry
from gpu.bnn.operations import ELEMENTS, ROWS_OF_WARP, SOURCES, WORDS_OF_WARP, Operation
from gpu.bnn.plan import IMAGES, Launched, Step, Values, fused, steps_of
from gpu.compile import compile_file
from gpu.device import Array, LaunchPlan, launch, planned
from reference.types.network import Answer, Network
from reference.types.network_values import INT32_MAX, INT32_MIN, Value

_WORDS = 8
_PLACE = 16
"""Bytes by which places are counted."""
_NOWHERE = 2**32 - 1
Residuals: TypeAlias = Literal["both", "save", "fetch"]
"""Of the integers of residuals: saved and fetched, or one of these alone (BTC, figure 26)."""
_FIELDS_OF_RESIDUALS = {"save": "numbers", "fetch": "addend"}
_MOST_TABLES = 16
"""Tables of steps, for sizes of batches, that are kept."""


@dataclass(frozen=True, eq=False)
class _Table:
    """The steps for a number of images.

    Attributes
    ----------
    steps : device array
    arrivals : device array of one uint32
        Counts arrivals at barriers; 0 between launches.
    blocks : int
    arena : int
        Bytes of all values.
    places : dict of str to int
        Where each value is.
    stale : device array, optional
        Memory of all values, for runs that read what no step wrote.
    """

    steps: Array
    arrivals: Array
    blocks: int
    arena: int
    places: dict[str, int]
    stale: Array | None


class Whole:
    """A network that one persistent kernel computes, step by step."""

    def __init__(self, network: Network, values: Values, form: Form, geometry: Geometry, flag: Array) -> None:
        self.form, self.geometry = form, geometry
        self._device, self._values, self._flag = device, values, flag = form.device, values, flag
        self._steps = fused(steps_of(network, values))
        self._lowering = lowering = form.lower(values, self._steps)
        self._classes = len(network.scale)
        self._sums = lowering.name(self._steps[-1].writes[-1])
        answer = Operation(
            "last_answer",
            {"x": self._sums},
            {},
            1,
            ROWS_OF_WARP,
            {"out_channels": self._classes},
            {"weights": np.asarray(network.scale), "rule": np.asarray(network.offset)},
        )
        self._levels = _levels([*lowering.operations, answer])
        self._constants_at, constants = _joined([each for level in self._levels for each in level])
        self._constants = device.upload(constants, "constants")
        self._macros = form.macros(geometry.threads, lowering.operations)
        self._key = "bnn whole", form.source, *self._macros.items()
        self._tables: dict[Any, _Table] = {}

    @property
    def barriers(self) -> int:
        """The number of grid-wide barriers in one launch."""
        return len(self._levels) - 1

    def run(self, images: Array, *, waits: bool = True, residuals: Residuals = "both") -> Answer:
        """The answer for images on the device.

        Without waiting, or with residuals that are only saved or only fetched, it is wrong: such runs time
        barriers and residuals.
        """
        answer, _, _ = self._launched(images, keep=False, waits=waits, residuals=residuals)
        return answer

    def blocks(self, images: Array) -> int:
        """The number of blocks of a launch for these images: at most the tasks of its largest step."""
        return self._table_of(images, keep=False, waits=True, residuals="both").blocks

    def residual_bytes(self, residuals: Residuals = "both") -> int:
        """Bytes of integers per image that products save for a residual or fetch from one."""
        moved = [
            path
            for operation in self._lowering.operations
            for field, path in self._of_residuals(operation).items()
            if residuals == "both" or field == _FIELDS_OF_RESIDUALS[residuals]
        ]
        return sum(self._lowering.sizes[path] for path in moved)

    def values(self, images: Array) -> Iterator[tuple[str, Any]]:
        """Yield each step's path and output value, in arrays that share no memory."""
        _, table, arena = self._launched(images, keep=True)
        memory = arena.download()
        for path in (path for step in self._steps for path in step.writes):
            first = table.places[self._lowering.name(path)]
            yield path, self._value(memory[first:], self._values[path], images.shape[0])

    def launches(self, images: Array) -> list[Launched]:
        """The one launch, as a step."""
        return [Launched(Step((), ("whole",), (IMAGES,), ("answer",)), self.run, (images,))]

    def _value(self, memory: npt.NDArray[np.uint8], value: Value, batch: int) -> Any:
        """A value of the arena, in the format of `reference.bnn.values`."""
        if value.kind == "bits":
            return self.form.bits(memory, value, batch)
        shape = (batch, *value.shape)
        return memory[: 4 * prod(shape)].view(np.int32).reshape(shape)

    def _of_residuals(self, operation: Operation) -> dict[str, str]:
        """The integers that products fetch to add, and those that they save beside bits only to be added."""
        if "taps" not in operation.constants:
            return {}
        found = {"addend": operation.reads["addend"]} if "addend" in operation.reads else {}
        made = operation.writes.get("numbers", "")
        others = [
            (each, at) for each in self._lowering.operations for at in each.reads if each.reads[at] == made
        ]
        if "lines" in operation.writes and all(at == "addend" and "taps" in e.constants for e, at in others):
            found |= {"numbers": made} if made else {}
        return found

    def _table_of(self, images: Array, *, keep: bool, waits: bool, residuals: Residuals) -> _Table:
        """The steps for images, made once for their number and dtype."""
        of_table = images.shape[0], np.dtype(images.dtype).name, keep, waits, residuals
        return planned(self._tables, of_table, lambda: self._table(*of_table), _MOST_TABLES)

    def _launched(
        self, images: Array, *, keep: bool, waits: bool = True, residuals: Residuals = "both"
    ) -> tuple[Answer, _Table, Array]:
        """Launch the kernel; return the answer, the table of steps and the memory of all values."""
        device, batch = self._device, images.shape[0]
        table = self._table_of(images, keep=keep, waits=waits, residuals=residuals)
        arena = table.stale or device.allocate((table.arena,), np.uint8, "values")
        answer = Answer(
            device.allocate((batch, self._classes), np.int32, "sums"),
            device.allocate((batch, self._classes), np.float32, "logits"),
            device.allocate((batch,), np.int64, "classes"),
        )
        count, arrays = table.steps.shape[0], (images, arena, self._constants, table.steps)

        def plan() -> LaunchPlan:
            name = self.form.source
            ptx = compile_file(f"bnn/{name}.cu", self._macros, device.compute_capability).text
            args = (None, None, None, None, count, *([None] * 5))
            shape = (table.blocks, 1, 1), (self.geometry.threads, 1, 1)
            return LaunchPlan(ptx, name, *shape, args, cooperative=True)

        key = *self._key, table.blocks, count
        launch(device, key, plan, *arrays, table.arrivals, self._flag, *answer)
        return answer, table, arena

    def _table(
        self, batch: int, dtype: str, keep: bool, waits: bool, residuals: Residuals = "both"
    ) -> _Table:
        """The steps for a number of images of a dtype."""
        unit = self.form.batch_unit
        padded = -(-batch // unit) * unit
        places, arena = _arranged(self._levels, self._lowering.sizes, padded, keep=keep)
        shapes = [[self._tasks(each, batch) for each in level] for level in self._levels]
        blocks = min(self.geometry.blocks, max(sum(shape["tasks"] for shape in level) for level in shapes))
        rows: list[Any] = []
        for level, of_level in zip(self._levels, shapes, strict=True):
            before = 0
            for i, (operation, shape) in enumerate(zip(level, of_level, strict=True)):
                row = self._row(operation, shape, places, batch, dtype)
                if residuals != "both":
                    for other in self._of_residuals(operation).keys() - {_FIELDS_OF_RESIDUALS[residuals]}:
                        row[other] = _NOWHERE
                row["waits"], row["first_block"] = waits and bool(rows) and i == 0, before % blocks
                before += shape["tasks"]
                rows.append(row)
        steps = self._device.upload(
            np.array(rows, self.form.step).view(np.uint32).reshape(len(rows), -1), "steps"
        )
        arrivals = self._device.upload(np.zeros(1, np.uint32), "arrivals")
        stale = None if residuals == "both" else self._device.upload(np.zeros(arena, np.uint8), "values")
        return _Table(steps, arrivals, blocks, arena, places, stale)

    def _row(
        self, operation: Operation, shape: dict[str, int], places: dict[str, int], batch: int, dtype: str
    ) -> Any:
        """One step as a row of the kernel's table of operations."""
        row: Any = np.zeros((), self.form.step)
        for name in PLACES:
            row[name] = _NOWHERE
        row["low"], row["high"], row["batch"] = INT32_MIN, INT32_MAX, batch
        row["kind"] = KINDS_OF_LAYERS.index(operation.kind)
        for name, value in (operation.fields | shape).items():
            row[name] = value
        row["plane"] *= batch
        if row["source"] == SOURCES.index("ordered_floats") and dtype == "uint8":
            row["source"] = SOURCES.index("ordered_bytes")
        for name, value in (operation.reads | operation.writes).items():
            row[name] = places[value] // _PLACE
        for name, at in self._constants_at[operation].items():
            row[name] = at // _PLACE
        if "taps" in operation.constants:  # products
            row["bytes_of_weights"] = operation.constants["weights"].nbytes
        return row

    def _tasks(self, operation: Operation, batch: int) -> dict[str, int]:
        """The number of tasks of an operation; if there are few tiles, warps may split a tile's k."""
        threads, warps, count = self.geometry.threads, self.geometry.threads // 32, batch * operation.count
        of_task = {ELEMENTS: threads, WORDS_OF_WARP: warps * _WORDS, ROWS_OF_WARP: warps}
        if operation.of_task in of_task:
            return {"tasks": -(-count // of_task[operation.of_task])}
        tiles, parts = self.form.tiles(operation, batch), 1
        if not self.form.splits:
            return {"tasks": -(-tiles // warps), "tiles": tiles}
        steps, most = operation.fields["steps_of_k"], self.geometry.blocks * warps
        while 2 * parts <= min(warps, steps) and 2 * parts * tiles <= most:
            parts *= 2
        return {"tasks": -(-tiles * parts // warps), "tiles": tiles, "parts_of_k": parts}


def _levels(operations: Sequence[Operation]) -> list[list[Operation]]:
    """Operations by level: those of a level do not depend on one another, only on earlier levels."""
    levels: list[list[Operation]] = []
    made: dict[str, int] = {}
    for operation in operations:
        level = max((made[name] + 1 for name in operation.reads.values()), default=0)
        made |= dict.fromkeys(operation.writes.values(), level)
        levels += [[]] * (level == len(levels))
        levels[level] = [*levels[level], operation]
    return levels


def _joined(operations: Sequence[Operation]) -> tuple[dict[Operation, dict[str, int]], Any]:
    """All constants joined into one array of bytes, and the offset of each."""
    parts: list[npt.NDArray[np.uint8]] = []
    found: dict[Operation, dict[str, int]] = {}
    end = 0
    for operation in operations:
        places = found[operation] = {}
        for name, constant in operation.constants.items():
            places[name] = end
            raw = np.ascontiguousarray(constant).reshape(-1).view(np.uint8)
            parts.append(np.pad(raw, (0, -len(raw) % _PLACE)))
            end += len(parts[-1])
    return found, np.concatenate(parts)


def _arranged(
    levels: Sequence[Sequence[Operation]], sizes: Mapping[str, int], batch: int, *, keep: bool
) -> tuple[dict[str, int], int]:
    """The offset of each value in one buffer and the buffer's bytes; memory is reused after the last read."""
    spans: dict[str, list[int]] = {}
    for level, operations in enumerate(levels):
        for operation in operations:
            for name in operation.writes.values():
                spans[name] = [level, len(levels) if keep else level]
            for name in operation.reads.values():
                spans[name][1] = max(spans[name][1], level)
    # (first byte, end, first level, last level) of each array that has memory
    placed: list[tuple[int, int, int, int]] = []
    places: dict[str, int] = {}
    for name, (first, last) in spans.items():
        size, at = -(-sizes[name] * batch // _PLACE) * _PLACE, 0
        for start, end, since, until in sorted(placed):
            if since <= last and until >= first and start < at + size and end > at:
                at = end
        placed.append((at, at + size, first, last))
        places[name] = at
    return places, max(end for _, end, _, _ in placed)
