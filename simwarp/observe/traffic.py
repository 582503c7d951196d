"""Memory traffic and arithmetic of a run: the input of a roofline."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simwarp.engine.events import UNITS, AccessEvent
from simwarp.observe.line_counts import CountingObserver
from simwarp.ptx.rows import DTYPES, Row

if TYPE_CHECKING:
    from simwarp.engine.events import Chunk, Launch, Mask
    from simwarp.memory import Allocation
    from simwarp.program.program import Step

Addresses = npt.NDArray[np.uint64]


class Bytes:
    """Counts bytes and atomic operations by state space: "global", "shared", "local", "const", "param"."""

    def __init__(self) -> None:
        self.loaded: Counter[str] = Counter()
        self.stored: Counter[str] = Counter()
        self.atomics: Counter[str] = Counter()
        self.atomic_bytes: Counter[str] = Counter()

    def count(self, event: AccessEvent) -> None:
        """Add the bytes of a memory access to the counts."""
        size = event.lanes.size * event.width
        if event.kind == "load":
            self.loaded[event.space] += size
        elif event.kind == "store":
            self.stored[event.space] += size
        else:
            self.atomics[event.space] += event.lanes.size
            self.atomic_bytes[event.space] += size

    def by_space(self) -> dict[str, dict[str, int]]:
        """The counters of each state space that was accessed, as plain data."""
        spaces = sorted({*self.loaded, *self.stored, *self.atomics})
        columns = ("loaded", "stored", "atomics", "atomic_bytes")
        return {space: {name: getattr(self, name)[space] for name in columns} for space in spaces}


class Traffic(Bytes, CountingObserver):
    """Counts bytes per state space, atomic operations, and arithmetic operations by type.

    ``loaded`` and ``stored`` are the bytes that lanes, and the copies and products that they issue,
    requested; reads of parameters by name do not count. ``atomics`` and ``atomic_bytes`` are of lanes and of
    the elements of copies. ``units`` has the same by who accesses memory: "lanes", "remote stores"
    (``st.async``, ``red.async``), "bulk copies", "tensor copies", "products" (the tiles of ``wgmma``).
    ``operations`` counts by type, see `operations`. ``compulsory_read`` and ``compulsory_written`` are the
    distinct bytes of global memory that a launch reads before it writes them, and that it writes, summed over
    launches: the traffic of a perfect cache.

    Every lane reads one word twice, adds, and writes the sum to the same address:

    >>> import numpy as np, simwarp
    >>> device = simwarp.Device(observe="traffic", checks={"races": "off"})
    >>> kernel = device.load('''
    ... .version 9.0 .target sm_90 .address_size 64
    ... .visible .entry sum(.param .u64 x) {
    ...     .reg .b32 %i, %u<3>; .reg .b64 %a, %x;
    ...     ld.param.u64 %x, [x]; mov.u32 %i, %tid.x; mul.wide.u32 %a, %i, 4; add.u64 %a, %a, %x;
    ...     ld.global.u32 %u0, [%a]; ld.global.u32 %u1, [%a]; add.u32 %u2, %u0, %u1;
    ...     st.global.u32 [%x], %u2; ret; }
    ... ''').kernel("sum")
    >>> kernel((1, 1, 1), (8, 1, 1), device.upload(np.ones(8, np.uint32)))
    >>> traffic = device.report.traffic
    >>> traffic.loaded["global"], traffic.compulsory_read
    (64, 32)
    >>> traffic.stored["global"], traffic.compulsory_written
    (32, 4)
    >>> traffic.operations["i32"], traffic.operations["i64"]
    (16, 8)
    """

    def __init__(self) -> None:
        super().__init__()
        self.units = {unit: Bytes() for unit in UNITS}
        self.operations: Counter[str] = Counter()
        self._earlier = np.zeros(2, np.int64)
        self._touched: dict[int, _Touched] = {}

    def on_launch(self, launch: Launch) -> None:
        """Reset the record of distinct bytes, at the start of a launch."""
        self._earlier = self._distinct()
        self._touched.clear()

    def on_step(self, chunk: Chunk, step: Step, mask: Mask) -> None:
        """Count the arithmetic operations that the lanes of ``mask`` executed in a step."""
        found = operations(step.row, step.form.T)
        if found is not None:
            self.operations[found.type] += found.number * int(np.count_nonzero(mask))

    def on_access(self, event: AccessEvent) -> None:
        """Count the bytes of a memory access, by state space and direction."""
        self.count(event)
        self.units[event.unit].count(event)
        if event.space == "global":
            for allocation, addresses in _by_allocation(event):
                touched = self._touched.setdefault(allocation.base, _Touched(allocation))
                if event.kind != "store":
                    touched.read(addresses, event.width)
                if event.kind != "load":
                    touched.write(addresses, event.width)

    def _distinct(self) -> npt.NDArray[np.int64]:
        """The distinct bytes read, and written, in all launches so far."""
        here = [touched.counts() for touched in self._touched.values()]
        return self._earlier + np.array(here, np.int64).reshape(-1, 2).sum(axis=0)

    @property
    def compulsory_read(self) -> int:
        """Distinct bytes of global memory read before they were written."""
        return int(self._distinct()[0])

    @property
    def compulsory_written(self) -> int:
        """The number of distinct bytes of global memory that launches wrote."""
        return int(self._distinct()[1])

    @property
    def compulsory(self) -> int:
        """The bytes that device memory must move even with a perfect cache."""
        return int(self._distinct().sum())

    @property
    def requested(self) -> int:
        """Requested bytes of global memory; an atomic operation both reads and writes."""
        return self.loaded["global"] + self.stored["global"] + 2 * self.atomic_bytes["global"]

    def to_json(self) -> dict[str, Any]:
        """Bytes by state space and by unit, operations by type, and distinct bytes, as plain data."""
        return {
            "spaces": self.by_space(),
            "units": {unit: spaces for unit, one in self.units.items() if (spaces := one.by_space())},
            "requested": self.requested,
            "compulsory_read": self.compulsory_read,
            "compulsory_written": self.compulsory_written,
            "operations": dict(sorted(self.operations.items())),
        }


_READ, _WRITTEN = 1, 2


class _Touched:
    """The state of each byte of an allocation: read before it was written, written, or both."""

    def __init__(self, allocation: Allocation) -> None:
        self.base = allocation.base
        self.state = np.zeros(-(-allocation.size // 16) * 16, np.uint8)

    def read(self, addresses: Addresses, width: int) -> None:
        """Record reads; bytes that this launch wrote earlier do not count."""
        state, index, unit = self._units(addresses, width)
        found = state[index]
        fresh = ~(found >> state.dtype.type(1)) & unit  # 1 in each byte that was not written
        state[index] = found | fresh

    def write(self, addresses: Addresses, width: int) -> None:
        """Mark the written bytes, ``width`` at each address."""
        state, index, unit = self._units(addresses, width)
        state[index] |= unit * state.dtype.type(_WRITTEN)

    def _units(self, addresses: Addresses, width: int) -> tuple[Any, Any, Any]:
        """The state as words of the access's width, the indices accessed, and a word with 1 in each byte."""
        word = min(width, 8)
        index = ((addresses - np.uint64(self.base)) // np.uint64(word)).astype(np.int64)
        if width > word:
            index = (index[:, None] + np.arange(width // word)).reshape(-1)
        state = self.state.view(f"u{word}")
        return state, index, state.dtype.type(int.from_bytes(b"\x01" * word, "little"))

    def counts(self) -> tuple[int, int]:
        """The numbers of bytes read and of bytes written."""
        return int(np.count_nonzero(self.state & _READ)), int(np.count_nonzero(self.state & _WRITTEN))


def _by_allocation(event: AccessEvent) -> list[tuple[Allocation, Addresses]]:
    """The addresses of an access by allocation, without those outside every allocation, which faulted."""
    rest, found = event.addresses, list[tuple["Allocation", Addresses]]()
    while rest.size:
        allocation = event.chunk.launch.memory.find(int(rest[0]))
        inside = rest == rest[0]
        if allocation is not None:
            end = allocation.base + allocation.size - event.width
            inside |= (rest >= np.uint64(allocation.base)) & (rest <= np.uint64(max(end, 0)))
            found.append((allocation, rest[inside]))
        rest = rest[~inside]
    return found


# ---- arithmetic operations -----------------------------------------------------------------------


class Operations(NamedTuple):
    """The arithmetic operations of an instruction in one lane."""

    type: str  # one of "f16", "bf16", "f32", "f64", "i16", "i32", "i64"; "approximate" with an error bound
    number: int


_INTEGER, _FLOAT, _VIDEO = ("9.7.1.", "9.7.2.", "9.7.8."), ("9.7.3.", "9.7.4."), ("9.7.18.",)


@cache
def operations(row: Row, type_name: str) -> Operations | None:
    """The arithmetic operations of an instruction of type ``type_name`` in one lane; None if it has none.

    A fused multiply-add counts as two operations, an instruction on pairs of halves as two of its kind, a dot
    product of four bytes as four multiplications and four additions. Moves, conversions, comparisons and
    selections count as none, and so do floating-point ``abs``, ``neg``, ``copysign`` and ``testp``, which
    usually cost nothing.

    >>> from simwarp.ptx.instructions import ROWS
    >>> operations(ROWS["fma.f16"], "f16x2"), operations(ROWS["mul.wide"], "u32")
    (Operations(type='f16', number=4), Operations(type='i32', number=1))
    >>> operations(ROWS["mov"], "b32") is None
    True
    """
    if row.section.startswith(_VIDEO):
        return Operations("i32", row.operations)
    pair = 2 if type_name.endswith("x2") else 1
    number, single = row.operations * pair, type_name.removesuffix("x2")
    if row.section.startswith(_FLOAT) and number:
        return Operations("approximate" if row.fidelity == "bounded" else single, number)
    if row.section.startswith(_INTEGER) and type_name != "pred":
        bits = 8 * DTYPES[single].itemsize if single else 32
        return Operations(f"i{bits}", number)
    return None
