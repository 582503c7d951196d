"""Statements of several threads: barriers, fences, and communication through shared memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simwarp.lab.fuzz.maker import Maker, Scope, region_of
from simwarp.lab.fuzz.memory import CELL, tally_of
from simwarp.lab.fuzz.program import Body, Condition, Group, Statement
from simwarp.lab.fuzz.registers import register_class
from simwarp.lab.fuzz.statements.instruction import Instruction
from simwarp.lab.fuzz.statements.memory import Atomic
from simwarp.lab.fuzz.vocabulary import find, size_of
from simwarp.lab.fuzz.writer import FULL, Writer, literal, vector


@dataclass(frozen=True)
class Exchange(Statement):
    """Each thread writes a cell of shared memory, all wait, and each reads another thread's cell."""

    store: str
    load: str
    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    index: str  # the register with the other thread's number
    barrier: str = ""  # the opcode of the block's barrier; "": a warp barrier
    weight, purpose = 6, "store"

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """Draw a store to shared memory, and a load of at most as many bytes."""

        def in_shared(opcode: str, most: int) -> bool:
            _, form = find(opcode)
            return region_of(form) == "shared" and size_of(form) <= most

        row, store = find(maker.opcode("store", lambda opcode: in_shared(opcode, CELL)))
        kind = maker.kind(store.T, row)
        row, load = find(maker.opcode("load", lambda opcode: in_shared(opcode, size_of(store))))
        target = maker.kind(load.T, row)
        sources = maker.vector(kind, store.vector)
        whole = scope.block and "barrier" in maker.vocabulary and maker.chance(70)
        barrier = maker.opcode("barrier") if whole else ""
        targets = maker.registers(target, load.vector)
        return cls(store.opcode, load.opcode, sources, targets, maker.register("b32"), barrier)

    @property
    def waits(self) -> Group:
        """The threads that must meet at the exchange's barrier."""
        return "block" if self.barrier else "warp"

    def write(self, writer: Writer, mask: str) -> None:
        """Write an exchange as PTX: store, wait, load another thread's cell, wait."""
        cell = writer.result("mad.lo.u32", "%here", CELL, "%cells")
        writer.write(f"{self.store} [{cell}], {vector(self.sources)}")
        writer.sync(self.barrier or "bar.warp.sync", mask)
        if self.barrier:
            other = writer.result("and.b32", self.index, writer.program.block - 1)
        else:
            lane = writer.result("and.b32", self.index, 31)
            if mask != FULL:
                lane = writer.result("selp.b32", lane, "%lane", writer.is_member(lane, mask))
            other = writer.result("or.b32", writer.result("and.b32", "%here", 0xFFFFFFE0), lane)
        cell = writer.result("mad.lo.u32", other, CELL, "%cells")
        writer.write(f"{self.load} {vector(self.destinations)}, [{cell}]")
        writer.sync(self.barrier or "bar.warp.sync", mask)


@dataclass(frozen=True)
class Sync(Statement):
    """Instructions without a result: a barrier, a fence, a trap, or the two halves of a cluster barrier."""

    opcodes: tuple[str, ...]
    weight, purpose = 3, "warp barrier"

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """Draw a barrier, a fence or both halves of a cluster barrier."""
        kinds = ["warp barrier", "fence", *(("barrier", "cluster") if scope.block else ())]
        kind = maker.draw.choice([kind for kind in kinds if kind in maker.vocabulary])
        words = ("arrive", "wait") if kind == "cluster" else ("",)
        opcodes = (maker.opcode(kind, lambda o, word=word: word in ("", *o.split("."))) for word in words)
        return cls(tuple(opcodes))

    @property
    def waits(self) -> Group:
        """The threads that must meet at the barrier."""
        kind = find(self.opcodes[0])[0].kind
        return "warp" if kind.together == "warp" else "block" if kind.together else ""

    def write(self, writer: Writer, mask: str) -> None:
        """Write the barriers, fence or trap as PTX."""
        for opcode in self.opcodes:
            writer.sync(opcode, mask)


class BarrierVote(Instruction):
    """A barrier with a reduction of a predicate over the block: a vote or a count."""

    weight, purpose, group = 2, "poll", "block"

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """Draw the opcode, destination and predicate of a barrier reduction."""
        row, form = find(maker.opcode("poll"))
        target = maker.register(register_class(form.resolve(row.destinations[0].kind)))
        return cls(form.opcode, (target,), (0, maker.predicate()))


@dataclass(frozen=True)
class ArriveAndSync(Statement):
    """Some warps only arrive at a barrier and the others wait at it; then all wait at a second barrier."""

    arrive: str
    sync: str
    test: Condition
    barrier: str
    weight, purpose, group = 1, "arrive", "block"

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """Draw the opcodes of the barriers, and the condition for the warps that only arrive."""
        test = maker.condition("warp", "block")
        return cls(maker.opcode("arrive"), maker.opcode("barrier"), test, maker.opcode("barrier"))

    def write(self, writer: Writer, mask: str) -> None:
        """Write an arrival or wait at barrier 1, then a wait at barrier 0, so that no warp arrives twice."""
        holds = writer.condition(self.test)
        other, join = writer.label(), writer.label()
        writer.write(f"@!{holds} bra.uni {other}")
        writer.write(f"{self.arrive} 1, {writer.program.block}")
        writer.write(f"bra.uni {join}")
        writer.mark(other)
        writer.write(f"{self.sync} 1, {writer.program.block}")
        writer.mark(join)
        writer.sync(self.barrier, mask)


@dataclass(frozen=True)
class Tally(Statement):
    """Threads of a block update words of shared memory by one operation, between barriers, and read them."""

    opcode: str
    initial: int
    destinations: tuple[str]
    body: Body
    barrier: str = "bar.sync"
    weight, purpose, group, inside = 3, "barrier", "block", ("body",)

    @classmethod
    def fits(cls, scope: Scope) -> bool:
        """True if a scope allows a tally: tallies are not nested."""
        return super().fits(scope) and not scope.tally

    @classmethod
    def draw(cls, maker: Maker, scope: Scope) -> Statement:
        """Draw the operation of a tally, and a body with at least one update."""
        opcode = maker.opcode(
            "atomic", lambda opcode: region_of(find(opcode)[1]) == "shared" and bool(tally_of(opcode))
        )
        inside = scope.inside(block=False, tally=opcode)
        body = (Atomic.draw(maker, inside), *maker.body(inside, maker.draw.integer(1, 3)))
        initial, register = maker.bits(64), maker.register(register_class(find(opcode)[1].T))
        return cls(opcode, initial, (register,), body, maker.opcode("barrier"))

    def write(self, writer: Writer, mask: str) -> None:
        """Write a tally as PTX: set four words, wait, run the body, wait, read one word, wait."""
        word = writer.result("mad.lo.u32", writer.result("and.b32", "%here", 3), 8, "%tally")
        first = writer.result("setp.lt.u32", "%here", 4)
        writer.write(f"@{first} st.shared.b64 [{word}], {literal('b64', self.initial)}")
        writer.sync(self.barrier, mask)
        writer.body(self.body, mask)
        writer.sync(self.barrier, mask)
        _, form = find(self.opcode)
        writer.write(f"ld.shared.{register_class(form.T)} {self.destinations[0]}, [{word}]")
        writer.sync(self.barrier, mask)

    def opened(self) -> list[Body]:
        """The body of a tally without its updates, for shrinking."""
        return [_without_updates(self.body)]


def _without_updates(body: Body) -> Body:
    """A body without the atomic operations on a tally."""
    kept = [s for s in body if not (isinstance(s, Atomic) and s.address.region == "tally")]
    return tuple(
        replace(s, **{field: _without_updates(getattr(s, field)) for field in s.inside}) for s in kept
    )
