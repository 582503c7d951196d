"""Random programs: deterministic whatever the scheduling, and the same on every machine for a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from simwarp.ptx.rows import DTYPES, Form, Row
from simwarp.testing.fuzz.choices import Choices, region_of
from simwarp.testing.fuzz.memory import CELL, TALLIES, tally_of
from simwarp.testing.fuzz.plain import sources_of
from simwarp.testing.fuzz.program import (
    POOLS,
    SIDES,
    Atomic,
    Call,
    Chain,
    Compute,
    Exchange,
    Handover,
    Hint,
    If,
    Leave,
    Load,
    Locate,
    Loop,
    Operand,
    Place,
    Poll,
    Program,
    Statement,
    Store,
    Switch,
    Sync,
    Tally,
    Warp,
    register_class,
)
from simwarp.testing.fuzz.vocabulary import WITNESSES, Purpose, Vocabulary, all_rows, find
from simwarp.testing.fuzz.walk import Body, is_divergent, meets
from simwarp.verify.draw import Draw

VERSION = 1
"""Of the generator: a program is a function of it, the seed, the number and the vocabulary."""

_NEAR = {"cta", "cluster"}
"""Scopes in which atomic operations do not see those of other blocks."""


@dataclass(frozen=True)
class Scope:
    """What is known where a statement will stand.

    Attributes
    ----------
    depth : int
        How many more statements may be nested.
    block : bool
        Whether all threads of the block are sure to come here.
    flat : bool
        Only what may stand under a predicate.
    tally : str
        The opcode that updates the enclosing tally.
    top : bool
        Whether lanes may end here.
    """

    depth: int = 3
    block: bool = True
    flat: bool = False
    tally: str = ""
    top: bool = False

    def inside(self, **facts: Any) -> Scope:
        """One level deeper."""
        return replace(self, depth=self.depth - 1, top=False, **facts)


def _anywhere(scope: Scope) -> bool:
    return True


def _branched(scope: Scope) -> bool:
    return not scope.flat


def _nested(scope: Scope) -> bool:
    return not scope.flat and scope.depth > 0


def _together(scope: Scope) -> bool:
    return not scope.flat and scope.block


_KINDS: tuple[tuple[int, str, Purpose, Callable[[Scope], bool]], ...] = (
    (40, "compute", "compute", _anywhere),
    (4, "chain", "chain", _anywhere),
    (16, "warp", "warp", _anywhere),
    (6, "load", "load", _anywhere),
    (6, "store", "store", _anywhere),
    (6, "atomic", "atomic", _anywhere),
    (6, "exchange", "store", _branched),
    (3, "sync", "warp barrier", _branched),
    (1, "hint", "hint", _branched),
    (2, "locate", "locate", _branched),
    (2, "call", "call", _branched),
    (2, "poll", "poll", _together),
    (1, "handover", "arrive", _together),
    (3, "tally", "barrier", lambda scope: _nested(scope) and scope.block and not scope.tally),
    (12, "branch", "compute", _nested),
    (2, "switch", "switch", _nested),
    (8, "loop", "compute", _nested),
    (2, "dead", "trap", _nested),
    (1, "leave", "leave", lambda scope: scope.top),
)
"""The kinds of statement: how often, which method makes one, what it takes from the vocabulary, and where."""


def generate(seed: int, number: int, vocabulary: Vocabulary | None = None) -> Program:
    """Program ``number`` of a seed.

    Parameters
    ----------
    seed, number : int
    vocabulary : Vocabulary, optional
        None: all rows that programs can use.

    Examples
    --------
    >>> generate(0, 7) == generate(0, 7)
    True
    >>> generate(0, 7) == generate(0, 8)
    False
    """
    return Maker(Draw(seed, "fuzz", number), vocabulary or all_rows()).program(seed, number)


class Maker(Choices):
    """Draws statements, and whole programs."""

    def program(self, seed: int, number: int) -> Program:
        """The whole of it."""
        body = self.body(Scope(top=True), self.draw.integer(6, 18))
        ended = next((i for i, s in enumerate(body) if isinstance(s, Leave)), len(body))
        body = tuple(s for i, s in enumerate(body) if i <= ended or not meets(s))
        blocks, block = self.draw.choice((1, 2, 2)), self.draw.choice((32, 64, 64, 128))
        program = Program(seed, number, body, blocks, block)
        if not is_divergent(program) and self.chance(70):
            inside = Scope(depth=1, block=False)
            divergent = If(self.test("lane"), (self.warp(inside), *self.body(inside, 2)))
            program = replace(program, body=(divergent, *program.body))
        return program

    def body(self, scope: Scope, count: int) -> Body:
        """So many statements."""
        return tuple(self.statement(scope) for _ in range(count))

    def statement(self, scope: Scope) -> Statement:
        """One statement, of a kind that may stand in the scope."""
        kinds = [
            (weight, name) for weight, name, purpose, fits in _KINDS if self.can(purpose) and fits(scope)
        ]
        turn = self.draw.integer(1, sum(weight for weight, _ in kinds))
        for weight, name in kinds:
            turn -= weight
            if turn <= 0:
                return getattr(self, name)(scope)
        raise AssertionError(turn)

    def can(self, purpose: Purpose) -> bool:
        """Whether the vocabulary has opcodes for a purpose."""
        return purpose in self.vocabulary

    # ---- instructions --------------------------------------------------------------------------------

    def compute(self, scope: Scope) -> Statement:
        """A pure instruction, now and then ``mov`` between a word and its parts."""
        return self.parts() if self.chance(4) else self.pure(self.opcode("compute"))

    def pure(self, opcode: str) -> Compute:
        """A pure instruction with operands."""
        row, form = find(opcode)
        kinds = [form.resolve(s.kind) for s in row.destinations if s.kind != "carry"]
        if row.base == "setp" and self.chance(60):
            kinds = kinds[:1]
        targets: list[Operand] = []
        for kind in kinds:
            options = [r for r in POOLS[self.kind(kind, row)] if r not in targets]
            targets.append(self.draw.choice(options))
        sources = [
            self.draw.integer(0, 255)
            if spec.kind == "number"
            else self.operand(form.resolve(spec.kind), row, form)
            for spec in sources_of(row, form)
        ]
        return Compute(opcode, tuple(targets), tuple(sources))

    def parts(self) -> Compute:
        """``mov`` of two or four registers into a word, or back."""
        word, part, count = self.draw.choice((("b64", "b32", 2), ("b32", "b16", 2), ("b64", "b16", 4)))
        if self.chance(50):
            return Compute(f"mov.{word}", (self.registers(part, count),), (self.register(word),))
        sources = tuple(self.register(part) for _ in range(count))
        return Compute(f"mov.{word}", (self.register(word),), (sources,))

    def chain(self, scope: Scope) -> Statement:
        """A carry made, perhaps handed on, and used: all additions or all subtractions, of one width."""
        start = self.opcode("chain")
        family = start[:3] == "sub", start[-2:]

        def follow(purpose: Purpose) -> Compute:
            while True:
                opcode = self.opcode(purpose)
                if (opcode[:3] == "sub", opcode[-2:]) == family:
                    return self.pure(opcode)

        links = [follow("link") for _ in range(self.draw.integer(0, 2))]
        return Chain((self.pure(start), *links, follow("end")))

    def warp(self, scope: Scope) -> Statement:
        """A warp-wide instruction."""
        row, form = find(self.opcode("warp"))
        if row.base in WITNESSES:
            return Warp(form.opcode, (self.register("b32"),), ())
        targets = [self.register(register_class(form.resolve(s.kind))) for s in row.destinations]
        if row.base == "shfl":
            sources = (self.register("b32"), self.operand("u32", row, form), self.clamp())
            return Warp(form.opcode, tuple(targets[: self.draw.choice((1, 2, 2))]), sources)
        sources = [self.operand(form.resolve(s.kind), row, form) for s in row.sources[:-1]]
        return Warp(form.opcode, tuple(targets), tuple(sources))

    # ---- memory --------------------------------------------------------------------------------------

    def load(self, scope: Scope) -> Statement:
        """A read."""
        once = self.can("load once") and self.chance(8)
        row, form = find(self.opcode("load once" if once else "load"))
        if once or form.has("nc"):
            place = self.place(form, "inputs")
        elif region_of(form) == "global":
            place = self.place(form, "inputs", "global")
        else:
            place = self.own(form, "inputs", "global", "shared", "local", "table")
        return Load(form.opcode, self.registers(self.kind(form.T, row), form.vector), place)

    def store(self, scope: Scope) -> Statement:
        """A write to the thread's own memory."""
        row, form = find(self.opcode("store"))
        kind = self.kind(form.T, row)
        sources = tuple(self.register(kind) for _ in range(form.vector))
        return Store(form.opcode, self.own(form, "global", "shared", "local"), sources)

    def atomic(self, scope: Scope) -> Statement:
        """An atomic operation on the thread's own memory, or on a tally."""
        if scope.tally and self.chance(70):
            return self.update(*find(scope.tally), Place("tally", 0, self.register("b32")))
        row, form = find(self.opcode("atomic"))
        name, region = tally_of(form.opcode), region_of(form)
        if name and region in ("global", "") and not _NEAR & set(form.modifiers) and self.chance(50):
            place = Place("tallies", 8 * TALLIES.index(name), self.register("b32"), not region)
            return self.update(row, form, place)
        targets = self.registers(register_class(form.T), form.vector) if row.destinations else ()
        target: Operand = targets if len(targets) > 1 else "".join(targets)
        place = self.own(form, "global", *([] if form.vector > 1 else ["shared"]))
        return Atomic(form.opcode, target, place, self.operands_of_atomic(row, form))

    def update(self, row: Row, form: Form, place: Place) -> Atomic:
        """An atomic operation on a tally: what it returns depends on the scheduling, and is not wanted."""
        return Atomic(form.opcode, "_" * len(row.destinations), place, self.operands_of_atomic(row, form))

    def operands_of_atomic(self, row: Row, form: Form) -> tuple[Operand, ...]:
        """A register, or a vector of them, for each operand but the address."""
        sources: list[Operand] = []
        for spec in row.sources[1:]:
            kind = register_class(form.resolve(spec.kind))
            names = [self.register(kind) for _ in range(form.vector)]
            sources.append(tuple(names) if len(names) > 1 else names[0])
        return tuple(sources)

    def hint(self, scope: Scope) -> Statement:
        """A prefetch and the like: of the tallies, of the thread's own memory."""
        row, form = find(self.opcode("hint"))
        if row.base == "applypriority":
            place = Place("tallies", 128 * self.draw.integer(0, 3), generic=not region_of(form))
            return Hint(form.opcode, place)
        region: Any = region_of(form) or self.draw.choice(("global", "local"))
        return Hint(form.opcode, Place(region, generic=not region_of(form)))

    def locate(self, scope: Scope) -> Statement:
        """A question about an address."""
        row, form = find(self.opcode("locate"))
        asks = row.base == "isspacep"
        region: Any = self.draw.choice(("global", "shared", "local") if asks else ("shared",))
        return Locate(form.opcode, self.register("pred" if asks else "b32"), region)

    def call(self, scope: Scope) -> Statement:
        """A call."""
        return Call(self.opcode("call"), self.register("b32"), (self.register("b32"), self.register("b32")))

    # ---- together ------------------------------------------------------------------------------------

    def exchange(self, scope: Scope) -> Statement:
        """A write to shared memory and a read of what another thread wrote."""

        def shared(purpose: Purpose, most: int) -> tuple[Form, str]:
            while True:
                row, form = find(self.opcode(purpose))
                if region_of(form) == "shared" and DTYPES[form.T].itemsize * form.vector <= most:
                    return form, self.kind(form.T, row)

        store, kind = shared("store", CELL)
        load, target = shared("load", DTYPES[store.T].itemsize * store.vector)
        sources = tuple(self.register(kind) for _ in range(store.vector))
        whole = scope.block and self.can("barrier") and self.chance(70)
        barrier = self.opcode("barrier") if whole else ""
        targets = self.registers(target, load.vector)
        return Exchange(store.opcode, load.opcode, sources, targets, self.register("b32"), barrier)

    def sync(self, scope: Scope) -> Statement:
        """A barrier or a fence."""
        kinds = ["warp barrier", "fence", *(("barrier", "cluster") if scope.block else ())]
        kind = self.draw.choice([kind for kind in kinds if self.can(kind)])
        if kind != "cluster":
            return Sync((self.opcode(kind),))

        def part(word: str) -> str:
            while True:
                opcode = self.opcode("cluster")
                if word in opcode.split("."):
                    return opcode

        return Sync((part("arrive"), part("wait")))

    def poll(self, scope: Scope) -> Statement:
        """A vote or a count of the block."""
        row, form = find(self.opcode("poll"))
        target = self.register(register_class(form.resolve(row.destinations[0].kind)))
        return Poll(form.opcode, target, f"{'!' * self.chance(30)}{self.register('pred')}")

    def handover(self, scope: Scope) -> Statement:
        """A barrier at which some warps do not wait."""
        test = self.test("warp", "block")
        return Handover(self.opcode("arrive"), self.opcode("barrier"), test, self.opcode("barrier"))

    def tally(self, scope: Scope) -> Statement:
        """A tally in shared memory."""
        while True:
            opcode = self.opcode("atomic")
            _, form = find(opcode)
            if region_of(form) == "shared" and tally_of(opcode):
                break
        inside = scope.inside(block=False, tally=opcode)
        body = (self.atomic(inside), *self.body(inside, self.draw.integer(1, 3)))
        return Tally(
            opcode, self.bits(64), self.register(register_class(form.T)), body, self.opcode("barrier")
        )

    # ---- control -------------------------------------------------------------------------------------

    def branch(self, scope: Scope) -> Statement:
        """Two sides, or one; of short ones many without branches."""
        test = self.test()
        if self.chance(30):
            return If(
                test, self.body(scope.inside(block=False, flat=True), self.draw.integer(1, 3)), (), True
            )
        inside = scope.inside(block=scope.block and test.uniform == "block")
        then = self.body(inside, self.draw.integer(1, 4))
        return If(test, then, self.body(inside, self.draw.integer(1, 3)) if self.chance(50) else ())

    def switch(self, scope: Scope) -> Statement:
        """Four sides, some of them empty."""
        inside = scope.inside(block=False)
        sides = {side: self.body(inside, self.draw.integer(0, 2)) for side in SIDES}
        return Switch(self.opcode("switch"), self.register("b32"), **sides)

    def loop(self, scope: Scope) -> Statement:
        """Some rounds, as many for each lane or not."""
        trips = self.draw.integer(1, 3) if self.chance(30) else self.register("b32")
        inside = scope.inside(block=scope.block and isinstance(trips, int))
        return Loop(trips, self.body(inside, self.draw.integer(1, 4)))

    def dead(self, scope: Scope) -> If:
        """A side that no lane takes; some end in a trap."""
        trap = (Sync((self.opcode("trap"),)),) if self.can("trap") and self.chance(50) else ()
        body = self.body(scope.inside(block=False), self.draw.integer(1, 2))
        return If(replace(self.test("never"), negated=False), (*body, *trap))

    def leave(self, scope: Scope) -> Statement:
        """Some lanes end."""
        return Leave(self.test("data", "lane"), self.opcode("leave"))
