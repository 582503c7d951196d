"""Traces in memory: rows in a NumPy array, and records made of them.

A row is one event of one warp. Rows are ordered by launch, block and warp, so that a recording does not
depend on the order in which the executor ran the warps.

>>> block_number((1, 2, 0), grid=(4, 3, 1)), lanes_of(0x80000003)
(9, [0, 1, 31])
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import SimwarpError
from reference.values import shortened
from simwarp.lanes import WARP_SIZE
from simwarp.observe.line_counts import listed
from simwarp.observe.trace.text import in_hex, table
from simwarp.ptx.rows import storage

Block: TypeAlias = "int | tuple[int, int, int]"
Rows: TypeAlias = npt.NDArray[np.void]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Integers: TypeAlias = npt.NDArray[np.int64]
Key: TypeAlias = "tuple[int, int, int]"
"""The numbers of a launch, a block and a warp."""

KINDS = ("step", "load", "store", "atomic", "reduction", "barrier", "fault")
SPACES = ("", "global", "shared", "local", "const", "param")
ROW = np.dtype(
    [
        ("launch", "<u4"),
        ("block", "<i8"),
        ("warp", "<i4"),
        ("step", "<i4"),
        ("mask", "<u4"),
        ("kind", "u1"),
        ("space", "u1"),
        ("width", "u1"),
        ("item", "u1"),
    ]
)
"""The dtype of a row.

``step`` is the number of the step in its kernel, the index of a fault's message, or -1 for a barrier. Each
lane of ``mask`` has ``item`` bytes of data, in lane order: the words written, or the address of an access
of ``width`` bytes.
"""
COLUMNS: tuple[str, ...] = ROW.names or ()
ADDRESS_BYTES = 8
_AT_ONCE = 1 << 12
"""The number of rows whose data is gathered at a time."""
_LISTED = 8
"""The most warps that an error lists."""


class TraceError(SimwarpError, ValueError):
    """A trace cannot be recorded, read or compared as requested."""


@dataclass(frozen=True)
class TracedInstruction:
    """An instruction of a traced kernel: its lines, and the (name, type) of each register it writes."""

    line: int
    opcode: str
    text: str
    source_file: str = ""
    source_line: int = 0
    registers: tuple[tuple[str, str], ...] = ()

    @property
    def file(self) -> str:
        """The name of the source file, without its folder."""
        return self.source_file.rpartition("/")[2]

    @property
    def source(self) -> str:
        """The source line, "mm.cu:42"; "" if unknown."""
        return f"{self.file}:{self.source_line}" if self.source_file else ""

    @property
    def layout(self) -> np.dtype[Any]:
        """The dtype of one lane's data: a packed structure with one word for each register."""
        widths = [storage(kind).itemsize for _, kind in self.registers]
        return np.dtype([(f"word{i}", f"<u{width}") for i, width in enumerate(widths)])

    def stands_at(self, line: str | int) -> bool:
        """True if the instruction is on a line: "mm.cu:42", "src/mm.cu:42", or 17 or "ptx:17" of the PTX."""
        file, _, number = str(line).rpartition(":")
        if file in ("", "ptx"):
            return number == str(self.line)
        same_file = f"/{self.source_file}".endswith(f"/{file.lstrip('/')}")
        return same_file and number == str(self.source_line)


_NO_INSTRUCTION = TracedInstruction(0, "", "")
"""The instruction in the records of barriers and faults."""


@dataclass(frozen=True)
class TracedLaunch:
    """One launch of a kernel; ``code`` is the kernel's index in `Recording.codes`."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    code: int


@shortened
@dataclass(frozen=True)
class Written:
    """The values of a register that a step wrote, or that a store or reduction stored.

    Attributes
    ----------
    name, type : str
    words : (n,) unsigned
        The bits in each lane that executed the step, in lane order.

    Examples
    --------
    >>> Written("%r1", "u32", np.array([7, 9], np.uint32)).words.tolist()
    [7, 9]
    """

    name: str
    type: str
    words: npt.NDArray[Any]


@shortened
@dataclass(frozen=True)
class Access:
    """A memory access of some lanes of a warp.

    Attributes
    ----------
    kind, space : str
        As in `simwarp.observe.AccessEvent`.
    mask : int
        The lanes.
    width : int
        Bytes per lane.
    addresses : (n,) uint64
        The address of each lane of the mask, in lane order.

    Examples
    --------
    >>> Access("load", "shared", 0b11, 4, np.array([16, 20], np.uint64)).addresses.tolist()
    [16, 20]
    """

    kind: str
    space: str
    mask: int
    width: int
    addresses: npt.NDArray[np.uint64]


@shortened
@dataclass(frozen=True)
class Record:
    """One record of a trace: a step of a warp, a barrier that it passed, or a fault.

    Attributes
    ----------
    kind : str
        "step", "barrier" or "fault"; "stopped" for a step that a fault stopped after its memory access.
    number : int
        The steps that the warp executed before.
    instruction : TracedInstruction
        The instruction of a step.
    mask : int
        The lanes.
    written : list of Written
    accesses : list of Access
        Those of lanes, without those of bulk copies and products that they issue.
    message : str
        The message of a fault.

    Examples
    --------
    >>> from simwarp.observe.trace import Record, Written
    >>> add = TracedInstruction(9, "add.u32", "add.u32 %r1, %r1, 2;")
    >>> record = Record("step", 4, add, 0b101, [Written("%r1", "u32", np.array([7, 9], np.uint32))])
    >>> record.lanes, record.value("%r1", lane=2)
    ([0, 2], 9)
    """

    kind: str
    number: int
    instruction: TracedInstruction
    mask: int
    written: list[Written] = field(default_factory=list[Written])
    accesses: list[Access] = field(default_factory=list[Access])
    message: str = ""

    @property
    def lanes(self) -> list[int]:
        """The numbers of the lanes in the record's mask, ascending."""
        return lanes_of(self.mask)

    def value(self, register: str, lane: int) -> int:
        """The bits that this step wrote to a register in one lane.

        Raises
        ------
        TraceError
            If the step did not write the register in that lane.
        """
        for written in self.written:
            if written.name == register and lane in self.lanes:
                return int(written.words[self.lanes.index(lane)])
        names = ", ".join(written.name for written in self.written) or "nothing"
        raise TraceError(
            f"step {self.number} did not write {register} in lane {lane}: `{self.instruction.text}`\n"
            f"it wrote {names}, in lanes {self.mask:#010x}\nask for one of these registers and lanes"
        )

    def to_json(self) -> dict[str, Any]:
        """The record as plain data, with words in hex."""
        it = self.instruction
        return {
            "kind": self.kind,
            "number": self.number,
            "line": it.line,
            "source": it.source,
            "text": it.text,
            "mask": self.mask,
            "written": [
                {**vars(w), "words": [in_hex(word, w.type) for word in w.words.tolist()]}
                for w in self.written
            ],
            "accesses": [{**vars(a), "addresses": a.addresses.tolist()} for a in self.accesses],
            "message": self.message,
        }


@shortened
@dataclass(frozen=True, eq=False)
class Recording:
    """The events of a trace by launch, block and warp; the events of a warp are in program order.

    Attributes
    ----------
    rows : (rows,) array
        One row for each event, see `simwarp.observe.trace.model.ROW`.
    data : (bytes,) uint8
        The data of the rows, in the order of the rows.
    launches : list of TracedLaunch
    codes : list of list of TracedInstruction
        The instructions of each kernel.
    faults : list of str
        The message of each fault.
    selection : dict
        The arguments of `Trace`, as plain data.

    Examples
    --------
    >>> from simwarp.observe.trace import Trace
    >>> Trace(warps=[0]).recording().selection["warps"]
    [0]
    >>> Trace().recording().warp(0, 0)
    Traceback (most recent call last):
    ...
    simwarp.observe.trace.model.TraceError: nothing was recorded of launch 0, block 0, warp 0
    no launch was traced
    """

    rows: Rows
    data: Bytes
    launches: list[TracedLaunch]
    codes: list[list[TracedInstruction]]
    faults: list[str]
    selection: dict[str, Any]

    def warp(self, block: Block, warp: int, launch: int = 0) -> list[Record]:
        """The records of a warp, in program order.

        Parameters
        ----------
        block : int or (x, y, z)
        warp : int
            The warp in its block.
        launch : int
            The index of the launch among the traced ones.

        Raises
        ------
        TraceError
            If nothing was recorded of the warp.
        """
        return list(self.records(self.find(block, warp, launch)))

    def to_text(
        self,
        block: Block = 0,
        warp: int = 0,
        launch: int = 0,
        *,
        lanes: tuple[int, ...] = (),
        lines: tuple[str | int, ...] = (),
    ) -> str:
        """The records of a warp as a table.

        Parameters
        ----------
        block, warp, launch
            See `warp`.
        lanes : sequence of int
            The lanes whose values are shown; by default the first three that executed a step.
        lines : sequence of str or int
            Show only steps of these lines, given as for `Trace`.
        """
        key = self.find(block, warp, launch)
        kernel = self.launches[launch].kernel
        title = f"kernel {kernel}, launch {launch}, block {self.block_of(launch, key[1])}, warp {warp}"
        return table(title, self.records(key), lanes, lines)

    # ---- warps ---------------------------------------------------------------------------------------

    @cached_property
    def warps(self) -> dict[Key, slice]:
        """The rows of each warp, as a slice of `rows`."""
        names = ["launch", "block", "warp"]
        changed = np.any([np.diff(self.rows[name]) != 0 for name in names], axis=0)
        first = np.flatnonzero(np.append(True, changed)[: self.rows.size])
        ends = [*first.tolist(), self.rows.size][1:]
        return dict(zip(self.rows[names][first].tolist(), map(slice, first.tolist(), ends), strict=True))

    def by_launch(self) -> list[slice]:
        """The rows of each launch, as a slice of `rows`."""
        ends = np.searchsorted(self.rows["launch"], np.arange(len(self.launches) + 1)).tolist()
        return list(map(slice, ends[:-1], ends[1:]))

    def rows_of(self, key: Key) -> Integers:
        """The indices of a warp's rows; empty if the warp was not recorded."""
        place = self.warps.get(key, slice(0, 0))
        return np.arange(place.start, place.stop, dtype=np.int64)

    def steps_before(self, key: Key, i: int) -> int:
        """The number of steps that a warp executed before row ``i``."""
        return int(np.count_nonzero(self.rows["kind"][self.warps[key].start : i] == KINDS.index("step")))

    def block_of(self, launch: int, number: int) -> tuple[int, int, int]:
        """The index (x, y, z) of the block with a number."""
        x, y, _ = self.launches[launch].grid
        return number % x, number // x % y, number // (x * y)

    def find(self, block: Block, warp: int, launch: int = 0) -> Key:
        """The key of a recorded warp; raises TraceError if it was not recorded."""
        if 0 <= launch < len(self.launches):
            key = launch, block_number(block, self.launches[launch].grid), warp
            if key in self.warps:
                return key
        recorded = [f"warp {w} of block {b}" for at, b, w in self.warps if at == launch]
        count = len(self.launches)
        known = f"{count} launches were traced, from 0 on" if count else "no launch was traced"
        if recorded:
            known = f"this launch has records of {listed(recorded, _LISTED)}"
        raise TraceError(f"nothing was recorded of launch {launch}, block {block}, warp {warp}\n{known}")

    def records(self, key: Key) -> Iterator[Record]:
        """Yield the records of a warp, in program order."""
        number, accesses, instruction = 0, list[Access](), _NO_INSTRUCTION
        for i in range(self.warps[key].start, self.warps[key].stop):
            kind, mask, it = self.kind(i), int(self.rows["mask"][i]), self.instruction(i)
            if it is None:
                yield Record(kind, number, _NO_INSTRUCTION, mask, message=self.message(i))
                continue
            instruction = it
            if kind == "step":
                yield Record(kind, number, it, mask, self.written(i, it), accesses)
                number, accesses = number + 1, []
            else:
                space, width = SPACES[int(self.rows["space"][i])], int(self.rows["width"][i])
                accesses.append(Access(kind, space, mask, width, self.row_data(i).view("<u8")))
        if accesses:
            yield Record("stopped", number, instruction, accesses[0].mask, [], accesses)

    # ---- rows ----------------------------------------------------------------------------------------

    @cached_property
    def starts(self) -> Integers:
        """The offset of each row's data, and the end of the data: (rows + 1,)."""
        return np.append(0, np.cumsum(lengths(self.rows)))

    def row_data(self, i: int) -> Bytes:
        """The bytes of register data that are stored for row ``i``."""
        return self.data[self.starts[i] : self.starts[i + 1]]

    def kind(self, i: int) -> str:
        """The kind of row ``i``, such as "step" or "barrier"."""
        return KINDS[int(self.rows["kind"][i])]

    def instruction(self, i: int) -> TracedInstruction | None:
        """The instruction of a row; None for a barrier or fault."""
        if self.kind(i) in ("barrier", "fault"):
            return None
        return self.codes[self.launches[int(self.rows["launch"][i])].code][int(self.rows["step"][i])]

    def message(self, i: int) -> str:
        """The message of a fault's row; "" for other rows."""
        return self.faults[int(self.rows["step"][i])] if self.kind(i) == "fault" else ""

    def written(self, i: int, instruction: TracedInstruction) -> list[Written]:
        """The registers in a step's row, with the layout of ``instruction``."""
        if not self.rows["item"][i]:
            return []
        words = self.row_data(i).view(instruction.layout)
        fields = zip(instruction.registers, words.dtype.names or (), strict=True)
        return [Written(name, kind, words[field]) for (name, kind), field in fields]

    def words(self, rows: Integers, lane: int | None = None) -> Bytes:
        """The concatenated register data of rows, or of one lane, which must be in each row's mask."""
        begins, sizes = self.starts[rows], self.starts[rows + 1] - self.starts[rows]
        if lane is not None:
            sizes = self.rows["item"][rows].astype(np.int64)
            begins = begins + sizes * np.bitwise_count(self.rows["mask"][rows] & np.uint32((1 << lane) - 1))
        return gather(self.data, begins, sizes)


def lanes_of(mask: int) -> list[int]:
    """The numbers of the lanes in a 32-bit mask, ascending."""
    return [lane for lane in range(WARP_SIZE) if mask >> lane & 1]


def block_number(block: Block | list[int], grid: tuple[int, int, int]) -> int:
    """The number of a block in its grid, with x fastest; -1 for an index outside the grid."""
    if not isinstance(block, tuple | list):
        return int(block)
    inside = all(0 <= at < size for at, size in zip(block, grid, strict=True))
    return block[0] + grid[0] * (block[1] + grid[1] * block[2]) if inside else -1


def lengths(rows: Rows) -> Integers:
    """The number of bytes of register data of each row."""
    return np.bitwise_count(rows["mask"]).astype(np.int64) * rows["item"]


def gather(data: Bytes, begins: Integers, sizes: Integers) -> Bytes:
    """Concatenate the slices of the data that begin at ``begins`` and have ``sizes`` bytes."""
    if not sizes.size:
        return data[:0]
    if (begins[1:] == begins[:-1] + sizes[:-1]).all():
        return data[begins[0] : begins[-1] + sizes[-1]]
    pieces = list[Bytes]()
    for at in range(0, sizes.size, _AT_ONCE):
        size = sizes[at : at + _AT_ONCE]
        ends = np.cumsum(size)
        pieces.append(data[np.repeat(begins[at : at + _AT_ONCE] - ends + size, size) + np.arange(ends[-1])])
    return np.concatenate(pieces)
