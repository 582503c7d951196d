"""The tree of a generated program: statements that work on a fixed set of registers.

Every register has a value from the start, so that a statement can be dropped or moved without making
the others illegal; what they hold in the end is the program's output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from simwarp.ptx.rows import storage

POOLS: dict[str, tuple[str, ...]] = {
    "b64": ("%d0", "%d1", "%d2", "%d3"),
    "b32": ("%r0", "%r1", "%r2", "%r3", "%r4", "%r5"),
    "b16": ("%h0", "%h1", "%h2", "%h3"),
    "pred": ("%p0", "%p1", "%p2", "%p3"),
}
"""The registers of each class."""
REGISTERS: tuple[str, ...] = tuple(name for pool in POOLS.values() for name in pool)
CLASS: dict[str, str] = {name: kind for kind, pool in POOLS.items() for name in pool}

Operand: TypeAlias = "str | int | tuple[str, ...]"
"""A register (``!%p0``, ``%laneid``), an integer literal's bits, or several registers as one word."""

Uniform: TypeAlias = Literal["lane", "warp", "block"]
"""What is sure to decide alike: each lane for itself, all lanes of a warp, all threads of a block."""


def register_class(type_name: str) -> str:
    """The class of the registers that hold a PTX type.

    Examples
    --------
    >>> register_class("f32"), register_class("s8"), register_class("pred")
    ('b32', 'b16', 'pred')
    """
    word = storage(type_name)
    return "pred" if type_name == "pred" else f"b{max(16, word.itemsize * 8)}"


@dataclass(frozen=True)
class Compute:
    """An instruction that only computes on registers."""

    opcode: str
    destinations: tuple[Operand, ...]
    sources: tuple[Operand, ...]


@dataclass(frozen=True)
class Chain:
    """Instructions that hand a carry on, one directly behind the other."""

    parts: tuple[Compute, ...]


@dataclass(frozen=True)
class Question:
    """What an `If` asks.

    Attributes
    ----------
    kind : str
        "data": the predicate register ``what`` holds. "lane", "warp", "block": bit ``what`` of the
        number of the lane, the warp or the block is 1. "never": does not hold, which a compiler
        cannot easily see; ``what`` is a 32-bit register.
    negated : bool
    """

    kind: Literal["data", "lane", "warp", "block", "never"]
    what: str | int
    negated: bool = False

    @property
    def uniform(self) -> Uniform:
        """Who is sure to take the same side."""
        return self.kind if self.kind in ("warp", "block") else "lane"


@dataclass(frozen=True)
class Warp:
    """An instruction of the executing lanes of a warp together; its member mask is not written here."""

    opcode: str
    destinations: tuple[Operand, ...]
    sources: tuple[Operand, ...]


@dataclass(frozen=True)
class Place:
    """An address in one of the memories that a thread may use.

    Attributes
    ----------
    region : str
        "inputs" (of any thread, read only), "numbers" (a parameter), "table" (constant), and what is
        the thread's own: "global", "shared", "local"; "tallies": global words that all threads update.
    offset : int
        In bytes.
    index : str
        A 32-bit register that chooses among the region's records; "" is the thread's own or only one.
    generic : bool
        Through an address that names no state space.
    """

    region: Literal["inputs", "numbers", "table", "global", "shared", "local", "tallies", "tally"]
    offset: int = 0
    index: str = ""
    generic: bool = False


@dataclass(frozen=True)
class Load:
    """A read of memory into registers."""

    opcode: str
    destinations: tuple[str, ...]
    place: Place


@dataclass(frozen=True)
class Store:
    """A write of registers to the thread's own memory."""

    opcode: str
    place: Place
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Atomic:
    """An atomic operation: on the thread's own memory, or on a tally, where nothing is returned."""

    opcode: str
    destination: Operand
    place: Place
    sources: tuple[Operand, ...]


@dataclass(frozen=True)
class Exchange:
    """Each thread writes a cell of shared memory, all wait, and each reads the cell of another.

    Attributes
    ----------
    index : str
        The register that says whose cell.
    barrier : str
        What the threads of the block wait at; "" if the lanes of the warp wait for each other.
    """

    store: str
    load: str
    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    index: str
    barrier: str = ""


@dataclass(frozen=True)
class Tally:
    """A word of shared memory that the threads of a block update in ``body``, by one operation.

    All wait before and after; then each reads it.
    """

    opcode: str
    initial: int
    destination: str
    body: tuple[Statement, ...]
    barrier: str = "bar.sync"


@dataclass(frozen=True)
class Sync:
    """Instructions that give nothing back: a barrier, a fence, a hint, a trap; some come in pairs."""

    opcodes: tuple[str, ...]


@dataclass(frozen=True)
class Poll:
    """A barrier at which the threads of the block also vote, or count."""

    opcode: str
    destination: str
    source: str


@dataclass(frozen=True)
class Handover:
    """Some warps of the block only arrive at a barrier, the others wait there for all; then all wait."""

    arrive: str
    sync: str
    test: Question
    barrier: str


@dataclass(frozen=True)
class Hint:
    """An instruction that names a place in memory and does nothing to it."""

    opcode: str
    place: Place


@dataclass(frozen=True)
class Locate:
    """A question about the address of the thread's own memory in a region."""

    opcode: str
    destination: str
    region: Literal["global", "shared", "local"]


@dataclass(frozen=True)
class Call:
    """A call of the device function ``mix``, of two words and with one."""

    opcode: str
    destination: str
    sources: tuple[str, str]


@dataclass(frozen=True)
class If:
    """Two sides, one of which may be empty.

    Attributes
    ----------
    predicated : bool
        Without branches: each instruction of ``then`` under a predicate. ``otherwise`` is empty.
    """

    test: Question
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()
    predicated: bool = False


@dataclass(frozen=True)
class Switch:
    """One of four sides, by the two lowest bits of a 32-bit register."""

    opcode: str
    index: str
    zero: tuple[Statement, ...]
    one: tuple[Statement, ...]
    two: tuple[Statement, ...]
    three: tuple[Statement, ...]


@dataclass(frozen=True)
class Loop:
    """``body`` several times.

    Attributes
    ----------
    trips : int, or str
        How often; of a 32-bit register, the number in its two lowest bits, which lanes may differ in.
    peeled : int
        How many rounds are written before the loop.
    """

    trips: int | str
    body: tuple[Statement, ...]
    peeled: int = 0


@dataclass(frozen=True)
class Leave:
    """The lanes for which ``test`` holds write their outputs and end here."""

    test: Question
    opcode: str = "ret"


Flat: TypeAlias = Compute | Chain | Warp | Load | Store | Atomic
"""What may stand under a predicate, and what may change places."""
Statement: TypeAlias = (
    Flat | Exchange | Tally | Sync | Poll | Handover | Hint | Locate | Call | If | Switch | Loop | Leave
)


@dataclass(frozen=True)
class Program:
    """A kernel: what it is given, what it does, and which registers it writes out in the end.

    Attributes
    ----------
    seed, number : int
        What its inputs are drawn from.
    blocks, block : int
        The grid, and the threads of a block: whole warps, a power of two.
    names : int
        0, or what the names of the registers are drawn from.
    veiled : bool
        Whether each result is hidden from the compiler, which so can neither compute it beforehand nor
        take two instructions for one. What runs is then what is written.
    """

    seed: int
    number: int
    body: tuple[Statement, ...]
    blocks: int = 2
    block: int = 64
    outputs: tuple[str, ...] = REGISTERS
    names: int = 0
    veiled: bool = True


SIDES = ("zero", "one", "two", "three")
"""The sides of a `Switch`."""
