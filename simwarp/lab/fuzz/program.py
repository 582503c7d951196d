"""The syntax tree of a generated program: statements on a fixed set of registers.

All registers are initialised, so that removing or moving a statement keeps the others legal. The final
values of the registers are the program's output.

A barrier in one side of a divergent branch, and one after the branch:

>>> from simwarp.lab.fuzz.statements import If, Sync
>>> inner = Sync(("bar.warp.sync",))
>>> program = Program(0, 0, (If(Condition("lane", 0), (inner,)), inner))
>>> [converged for _, converged in walk(program.body)]
[True, False, True]
>>> [len(body) for body, _ in bodies(program)]
[2, 1, 0]
>>> [len(put(()).body) for _, put in statements(program)]
[1, 1, 2]
>>> is_divergent(program), needs_mask(program.body), needs_block(program.body)
(False, True, False)
>>> names("!%p0"), names(3), names(("%r0", "%r1"))
(('%p0',), (), ('%r0', '%r1'))
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from simwarp.lab.fuzz.registers import REGISTERS

if TYPE_CHECKING:
    from simwarp.lab.fuzz.maker import Maker, Scope
    from simwarp.lab.fuzz.writer import Writer

Operand: TypeAlias = "str | int | tuple[str, ...]"
"""A register (``!%p0``, ``%laneid``), the bits of a literal, or a vector of registers."""


def names(operand: Operand) -> tuple[str, ...]:
    """The registers in an operand."""
    if isinstance(operand, tuple):
        return operand
    return (operand.lstrip("!"),) if isinstance(operand, str) and operand else ()


Group: TypeAlias = Literal["", "warp", "block"]


@dataclass(frozen=True)
class Condition:
    """The condition of a branch or loop; lanes may diverge on it."""

    # data: a predicate register holds; lane, warp, block: a bit of its number is 1; never: false, computed
    # from a 32-bit register so that a compiler cannot easily prove it.
    kind: Literal["data", "lane", "warp", "block", "never"]
    what: str | int  # the predicate register, or the bit's position
    negated: bool = False

    @property
    def splits(self) -> bool:
        """True if the condition may differ between lanes of a warp."""
        return self.kind not in ("warp", "block")


@dataclass(frozen=True)
class Address:
    """An address in one of the memories of a program."""

    # inputs: those of all threads, read only; numbers: a parameter; table: constants; global, shared, local:
    # the thread's own memory; tallies: global words that all threads update; tally: words in shared memory
    # that the block updates; "": no address.
    region: Literal["", "inputs", "numbers", "table", "global", "shared", "local", "tallies", "tally"] = ""
    offset: int = 0  # in bytes
    index: str = ""  # a 32-bit register that chooses among the region's records; "": the thread's own
    generic: bool = False


NOWHERE = Address()
"""The address of an instruction without an address operand."""


@dataclass(frozen=True)
class Statement(ABC):
    """A statement of a program; a subclass draws, writes and shrinks one kind of statement."""

    weight: ClassVar[int]  # how often the statement is drawn, relative to others
    purpose: ClassVar[str]  # the purpose that the vocabulary must have opcodes for
    flat: ClassVar[bool] = False  # whether the statement may be predicated, and swapped with a neighbour
    group: ClassVar[Group] = ""  # the threads that must always execute the statement together
    inside: ClassVar[tuple[str, ...]] = ()  # the fields that hold other statements
    # how the statement accesses memory, if it is flat
    accesses: ClassVar[Literal["", "reads", "writes"]] = ""

    @classmethod
    def fits(cls, scope: Scope) -> bool:
        """True if a scope allows this kind of statement."""
        if (cls.group == "block" and not scope.block) or (cls.inside and not scope.depth):
            return False
        return cls.flat or not scope.flat

    @classmethod
    @abstractmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """Draw a random statement of this kind."""

    @abstractmethod
    def write(self, writer: Writer, mask: str) -> str | None:
        """Write the statement as PTX for the lanes of a mask; return the mask after it if that differs."""

    @property
    def waits(self) -> Group:
        """The threads that must execute this statement together."""
        return self.group

    @property
    def splits(self) -> bool:
        """True if lanes of a warp may diverge at this statement."""
        return False

    def opened(self) -> list[Body]:
        """The nested bodies that may replace this statement when shrinking."""
        return [getattr(self, field) for field in self.inside]

    def simpler(self) -> Iterator[Statement]:
        """Yield simpler variants of the statement, to try when shrinking."""
        return iter(())

    def touched(self) -> tuple[set[str], set[str]]:
        """The registers that the statement reads, and those that it writes, without nested statements."""
        return set(), {name for operand in getattr(self, "destinations", ()) for name in names(operand)}


Body: TypeAlias = tuple[Statement, ...]
"""A sequence of statements."""
Put: TypeAlias = Callable[[Body], "Program"]
"""A function that returns the program with one part replaced by other statements."""


@dataclass(frozen=True)
class Program:
    """A generated kernel, its grid, and the seed of its inputs."""

    seed: int
    number: int
    body: Body
    blocks: int = 2
    block: int = 64  # threads: whole warps, a power of two
    outputs: tuple[str, ...] = REGISTERS
    names: int = 0  # the seed of the registers' names; 0: default names
    # Whether each result is hidden from the compiler, so that it can neither fold results nor merge
    # instructions: the hardware executes the instructions as written.
    veiled: bool = True

    @property
    def threads(self) -> int:
        """The number of threads in all blocks of the program's launch."""
        return self.blocks * self.block


def walk(body: Sequence[Statement], converged: bool = True) -> Iterator[tuple[Statement, bool]]:
    """Every statement, and whether all lanes of the warp certainly execute it together."""
    for statement in body:
        yield statement, converged
        for field in statement.inside:
            yield from walk(getattr(statement, field), converged and not statement.splits)
        if statement.splits and not statement.inside:  # some lanes have exited
            converged = False


def needs_mask(body: Sequence[Statement]) -> bool:
    """True if a body has a statement that needs the mask of the executing lanes."""
    return any(statement.waits == "warp" for statement, _ in walk(body))


def needs_block(body: Sequence[Statement]) -> bool:
    """True if a body has a statement that all threads of the block must execute."""
    return any(statement.waits == "block" for statement, _ in walk(body))


def is_divergent(program: Program) -> bool:
    """True if lanes of a warp exchange values while other lanes may have diverged."""
    return any(
        statement.waits == "warp" and bool(statement.touched()[1]) and not converged
        for statement, converged in walk(program.body)
    )


def bodies(program: Program, *, predicated: bool = True) -> Iterator[tuple[Body, Put]]:
    """Every body of a program, outermost first, with its `Put`; ``predicated`` includes predicated bodies."""
    return _bodies(program.body, lambda body: replace(program, body=body), predicated)


def _bodies(body: Body, put: Put, predicated: bool) -> Iterator[tuple[Body, Put]]:
    yield body, put
    for i, statement in enumerate(body):
        for field in statement.inside if predicated or not getattr(statement, "predicated", False) else ():
            inner = getattr(statement, field)
            yield from _bodies(inner, partial(_put_inside, body, i, field, put), predicated)


def _put_inside(body: Body, i: int, field: str, put: Put, inner: Body) -> Program:
    return put((*body[:i], replace(body[i], **{field: inner}), *body[i + 1 :]))


def statements(program: Program) -> Iterator[tuple[Statement, Put]]:
    """Yield every statement of a program, with the `Put` that replaces it."""
    for body, put in bodies(program):
        for i, statement in enumerate(body):
            yield statement, partial(splice, body, i, i + 1, put)


def splice(body: Body, start: int, end: int, put: Put, new: Body) -> Program:
    """The program with the statements from ``start`` to ``end`` of a body replaced."""
    return put((*body[:start], *new, *body[end:]))
