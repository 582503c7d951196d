"""Random programs on barriers in shared memory, whose results no interleaving of threads can change.

A program's blocks have 1 to 4 warps. Between two ``bar.sync`` a barrier is used by one thread, or by threads
that all do the same, or, where each thread has a barrier of its own, by all at once. A model of the barrier,
`barrier_model`, keeps the program legal, and knows most of what it stores.

>>> program = generate(0, 3)
>>> program.threads, program.slots, len(program.known)
(128, 15, 15)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simwarp.lab.subjects.barrier_model import MOST, Barrier
from simwarp.verify.draw import Draw

DATA_WORDS = 1024
"""The words of a block's input."""
_TILE = 2048
_SPINS = 1 << 14


@dataclass(frozen=True)
class Program:
    """A kernel ``program(data, results)``; each thread has one word of results in each slot."""

    number: int
    threads: int
    slots: int
    body: str
    known: list[tuple[int, npt.NDArray[np.bool_], int]]
    """By slot: the threads that store a word there, and the word."""


def module(programs: Sequence[Program]) -> str:
    """PTX with one kernel ``program<number>`` for each program."""
    kernels = [
        f".visible .entry program{one.number}(.param .u64 data, .param .u64 results) {{\n{one.body}\n}}"
        for one in programs
    ]
    return "\n".join([".version 8.7\n.target sm_90\n.address_size 64", *kernels, ""])


def generate(seed: int, number: int) -> Program:
    """Generate random mbarrier program ``number`` of a seed."""
    return _Writer(Draw(seed, "mbarriers", number)).program()


@dataclass
class _Barrier(Barrier):
    """An mbarrier of a program: one for the block, or one for each thread of a group."""

    number: int
    group: str  # predicate of the barrier's threads; "" for a barrier of the whole block
    members: npt.NDArray[np.bool_]
    owner: int = 0  # the thread whose registers hold the barrier's states

    @property
    def base(self) -> str:
        """The register that holds the barrier's address in shared memory."""
        return f"%bar{self.number}"


class _Writer:
    """Writes the PTX of one random mbarrier program, line by line."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._threads = 32 * draw.integer(1, 4)
        self._lines: list[str] = []
        self._slots = self._labels = self._states = 0
        self._known: list[tuple[int, npt.NDArray[np.bool_], int]] = []
        self._guard = ""
        self._actors = np.ones(self._threads, np.bool_)
        self._barriers = [self._barrier(number) for number in range(draw.integer(1, 3))]

    def program(self) -> Program:
        """Write the whole program: initialise the barriers, operate on them, and store the results."""
        for barrier in self._barriers:
            self._alone(barrier, lambda barrier=barrier: self._init(barrier))
        self._line("fence.proxy.async;", "bar.sync 0;")
        for _ in range(self._draw.integer(3, 7)):
            for barrier in self._barriers:
                acts = (self._operations, self._operations, self._crowd, self._copies, self._copies)
                self._draw.choice(acts)(barrier)
            self._line("bar.sync 0;")
        for barrier in self._barriers:
            self._alone(barrier, lambda barrier=barrier: self._close(barrier))
        setup = self._setup()
        body = "\n".join([*setup, *self._lines, "ret;"])
        return Program(self._draw.k, self._threads, self._slots, body, self._known)

    def _setup(self) -> list[str]:
        """The PTX lines of declarations, addresses, and initial data in shared memory."""
        threads = self._threads
        lines = [
            f".reg .b64 %far, %out, %global, %source, %generic, %own, %s<{self._states + 1}>;",
            f".reg .b64 %bar<{len(self._barriers)}>, %tile<{len(self._barriers)}>;",
            ".reg .b32 %thread, %block, %r, %spin; .reg .pred %p, %one, %group<3>;",
            f".shared .align 16 .b8 source[{_TILE}];",
            "mov.u32 %thread, %tid.x; mov.u32 %block, %ctaid.x;",
            f"ld.param.u64 %global, [data]; mad.wide.u32 %global, %block, {4 * DATA_WORDS}, %global;",
            f"ld.param.u64 %out, [results]; mul.lo.u32 %r, %block, {self._slots * threads};",
            "add.u32 %r, %r, %thread; mad.wide.u32 %out, %r, 4, %out;",
            "mov.u64 %source, source; mad.wide.u32 %own, %thread, 16, %source;",
            "mad.wide.u32 %far, %thread, 16, %global;",
        ]
        for word in range(4):
            lines.append(f"ld.global.b32 %r, [%far+{4 * word}]; st.shared.b32 [%own+{4 * word}], %r;")
        for barrier in self._barriers:
            k, many = barrier.number, threads if barrier.group else 1
            lines += [
                f".shared .align 8 .b64 barriers{k}[{many}]; .shared .align 16 .b8 tiles{k}[{_TILE}];",
                f"mov.u64 %bar{k}, barriers{k}; mov.u64 %tile{k}, tiles{k};",
            ]
            if barrier.group:
                mask, value = _MASKS[k]
                lines += [
                    f"mad.wide.u32 %bar{k}, %thread, 8, %bar{k}; and.b32 %r, %thread, {mask};",
                    f"setp.eq.u32 %group{k}, %r, {value}; mad.wide.u32 %tile{k}, %thread, 16, %tile{k};",
                ]
        return [*lines, "bar.sync 0;"]

    def _barrier(self, number: int) -> _Barrier:
        thread = np.arange(self._threads)
        if self._draw.integer(0, 2):
            return _Barrier(number, "", thread >= 0)
        mask, value = _MASKS[number]
        return _Barrier(number, f"%group{number}", thread & mask == value)

    # ---- lines and results ---------------------------------------------------------------------------

    def _line(self, *lines: str) -> None:
        self._lines += [self._guard + line for line in lines]

    def _alone(self, barrier: _Barrier, act: Callable[[], None]) -> None:
        """Write PTX that one thread executes, or each member of a group with its own barrier."""
        predicate = barrier.group
        self._actors = barrier.members
        if not predicate:
            thread, predicate = self._draw.integer(0, self._threads - 1), "%one"
            if self._draw.integer(0, 1):
                thread = barrier.owner
            if thread != barrier.owner:
                barrier.owner = thread
                barrier.states.clear()
            self._actors = np.arange(self._threads) == thread
            self._line(f"setp.eq.u32 %one, %thread, {thread};")
        self._under(predicate, act)
        self._actors = np.ones(self._threads, np.bool_)

    def _under(self, predicate: str, act: Callable[[], None]) -> None:
        """Write lines for some threads: behind a branch, or each with a guard."""
        if self._draw.integer(0, 1):
            self._labels += 1
            label = f"BEHIND{self._labels}"
            self._line(f"@!{predicate} bra {label};")
            act()
            self._lines.append(f"{label}:")
            return
        self._guard = f"@{predicate} "
        act()
        self._guard = ""

    def _give(self, value: int | None = None) -> None:
        """Store %r in the next slot; ``value`` is the expected result if the model knows it."""
        self._line(f"st.global.b32 [%out+{4 * self._threads * self._slots}], %r;")
        if value is not None:
            self._known.append((self._slots, self._actors, value))
        self._slots += 1

    def _give_predicate(self, value: bool | None) -> None:
        self._line("selp.b32 %r, 1, 0, %p;")
        self._give(None if value is None else int(value))

    def _at(self, barrier: _Barrier) -> tuple[str, str]:
        """A modifier of the state space, and the address in that space."""
        space = self._draw.choice((".shared", ".shared::cta", ""))
        if not space:
            self._line(f"cvta.shared.u64 %generic, {barrier.base};")
            return "", "[%generic]"
        return space, f"[{barrier.base}]"

    def _order(self, *names: str) -> str:
        """A random memory order with a scope, such as ".release.cta", or "" for the default."""
        if self._draw.integer(0, 1):
            return ""
        return f".{self._draw.choice(names)}.{self._draw.choice(('cta', 'cluster'))}"

    # ---- operations of one thread --------------------------------------------------------------------

    def _init(self, barrier: _Barrier) -> None:
        most = 6 if barrier.group else 3 * self._threads
        count = self._draw.choice((1, 2, self._draw.integer(1, most), most // 3, MOST))
        space, at = self._at(barrier)
        self._line(f"mbarrier.init{space}.b64 {at}, {count};")
        barrier.make(count)

    def _operations(self, barrier: _Barrier) -> None:
        """Write random operations on a barrier by one thread, one after another."""

        def act() -> None:
            for _ in range(self._draw.integer(1, 7)):
                self._operate(barrier)

        self._alone(barrier, act)

    def _operate(self, barrier: _Barrier) -> None:
        kinds = [self._arrive] * 4 + [self._test] * 3 + [self._expect, self._complete, self._settle]
        if not self._draw.integer(0, 15):
            self._again(barrier)
            return
        self._draw.choice(kinds)(barrier)

    def _close(self, barrier: _Barrier) -> None:
        """Complete the last phase of the barrier, and test it."""
        self._arrive(barrier)
        self._test(barrier)

    def _again(self, barrier: _Barrier) -> None:
        """Invalidate the barrier, and initialise another one at its address."""
        space, at = self._at(barrier)
        self._line(f"mbarrier.inval{space}.b64 {at};")
        self._init(barrier)

    def _arrive(self, barrier: _Barrier) -> None:
        """Write an arrival of any kind that is legal now; keep its state, and store its pending count."""
        if barrier.room < 1:
            self._settle(barrier)
            return
        drops = barrier.expected > 1 and self._draw.integer(0, 3) == 0
        word, most = (
            ("arrive_drop", min(barrier.room, barrier.expected - 1)) if drops else ("arrive", barrier.room)
        )
        kind = self._draw.integer(0, 3)
        counts, order = self._count(most), self._order("release", "relaxed")
        if kind == 0 and most > 1:
            self._line_of_arrival(
                barrier, f"{word}.noComplete", self._count(most - 1, barrier.pending - 1), True
            )
        elif kind == 1 and barrier.bytes >= 0:
            given = self._draw.choice((0, 1, 16, 4096, self._draw.integer(0, 9999)))
            self._line_of_arrival(barrier, f"{word}.expect_tx{order}", 1, True, given)
        else:
            self._line_of_arrival(
                barrier, f"{word}{order}", counts, counts != 1 or bool(self._draw.integer(0, 1))
            )

    def _count(self, most: int, limit: int = MOST) -> int:
        most = min(most, limit)
        return self._draw.choice((1, most, self._draw.integer(1, most)))

    def _line_of_arrival(
        self, barrier: _Barrier, words: str, count: int, written: bool, given: int | None = None
    ) -> None:
        """Write an arrival and follow it in the model."""
        state = f"%s{self._states}"
        self._states += 1
        space, at = self._at(barrier)
        operand = given if given is not None else count
        self._line(f"mbarrier.{words}{space}.b64 {state}, {at}{f', {operand}' if written else ''};")
        self._line(f"mbarrier.pending_count.b64 %r, {state};")
        drops = words.startswith("arrive_drop")
        self._give(barrier.arrive(count, state, drops=drops, expects=given or 0))

    def _test(self, barrier: _Barrier) -> None:
        """Write a test of a kept state, or of a parity."""
        word = self._draw.choice(("test_wait", "try_wait"))
        order = self._order("acquire", "relaxed")
        kept = barrier.testable
        if kept and self._draw.integer(0, 1):
            what, which = "", self._draw.choice(kept)
            complete = barrier.passed(which)
        else:
            parity = self._draw.integer(0, 1)
            what, which = ".parity", str(parity)
            complete = barrier.passed_parity(parity)
        if not complete:
            word = "test_wait"  # try_wait may block for a long time here
        space, at = self._at(barrier)
        self._line(f"mbarrier.{word}{what}{order}{space}.b64 %p, {at}, {which};")
        self._give_predicate(complete)

    def _expect(self, barrier: _Barrier) -> None:
        """Write an ``mbarrier.expect_tx`` of a random number of bytes."""
        self._transact(barrier, "expect_tx", self._draw.choice((1, 16, 512, self._draw.integer(1, 5000))))

    def _complete(self, barrier: _Barrier) -> None:
        """Write a ``complete_tx`` of some expected bytes, or of bytes that are expected later."""
        if barrier.bytes > 0:
            self._transact(barrier, "complete_tx", self._draw.integer(1, barrier.bytes))
        elif barrier.pending:
            self._transact(barrier, "complete_tx", self._draw.integer(1, 100))

    def _settle(self, barrier: _Barrier) -> None:
        """Write the transaction that makes the barrier's pending bytes 0."""
        if barrier.bytes:
            word = "complete_tx" if barrier.bytes > 0 else "expect_tx"
            self._transact(barrier, word, abs(barrier.bytes))

    def _transact(self, barrier: _Barrier, word: str, count: int) -> None:
        change = count if word == "expect_tx" else -count
        if abs(barrier.bytes + change) > MOST // 2:
            return
        space, at = self._at(barrier)
        self._line(f"mbarrier.{word}{self._order('relaxed')}{space}.b64 {at}, {count};")
        barrier.transact(change)

    # ---- many threads ---------------------------------------------------------------------------------

    def _crowd(self, barrier: _Barrier) -> None:
        """Write arrivals of all threads or of one warp; if they complete the phase, all threads wait."""
        warp = self._draw.integer(-1, self._threads // 32 - 1)
        many = self._threads if warp < 0 else 32
        most = barrier.room // many
        if barrier.group or most < 1:
            self._operations(barrier)
            return
        each, phase = self._count(most), barrier.phase
        drops = many * each < barrier.expected and self._draw.integer(0, 3) == 0
        word = "arrive_drop" if drops else "arrive"
        state = f"%s{self._states}"
        self._states += 1
        first = barrier.pending

        def act() -> None:
            space, at = self._at(barrier)
            self._line(f"mbarrier.{word}{self._order('release')}{space}.b64 {state}, {at}, {each};")
            self._line(f"mbarrier.pending_count.b64 %r, {state};")

        # Threads of a converged warp get the same state. After a wait of some threads, ptxas may drop
        # bar.warp.sync.
        self._line("bar.sync 0;", "mov.b32 %r, 0;")
        if warp < 0:
            act()
        else:
            self._line(f"shr.u32 %spin, %thread, 5; setp.eq.u32 %p, %spin, {warp};")
            self._under("%p", act)
        # the values are the same in all lanes of a warp
        self._sum(sum(first - each * (i - i % 32) for i in range(many)))
        barrier.arrive(many * each, drops=drops)
        if barrier.phase > phase:
            self._wait(barrier, phase)

    def _sum(self, value: int) -> None:
        """Write an addition of all threads' %r into the first word of a slot."""
        self._line("mul.wide.u32 %far, %thread, 4; sub.u64 %far, %out, %far;")
        self._line(f"red.global.add.u32 [%far+{4 * self._threads * self._slots}], %r;")
        first = np.arange(self._threads) == 0
        self._known.append((self._slots, first, value & 0xFFFF_FFFF))
        self._slots += 1

    def _wait(self, barrier: _Barrier, phase: int) -> None:
        """Write a wait of each thread for a phase; the result is 0 if the wait gives up."""
        self._labels += 1
        again, done = f"AGAIN{self._labels}", f"DONE{self._labels}"
        # ptxas breaks a suspend-time hint where only some threads of a warp wait (docs/silicon.md).
        hints = ["", ", 64"] if not barrier.group else [""]
        word, hint = self._draw.choice([("test_wait", ""), *(("try_wait", hint) for hint in hints)])
        space, at = self._at(barrier)
        order = self._order("acquire")
        self._line("mov.u32 %spin, 0;")
        self._lines.append(f"{again}:")
        self._line(
            f"mbarrier.{word}.parity{order}{space}.b64 %p, {at}, {phase & 1}{hint};",
            f"@%p bra {done};",
            "add.u32 %spin, %spin, 1;",
            f"setp.lt.u32 %p, %spin, {_SPINS};",
            f"@%p bra {again};",
            "setp.ne.u32 %p, 0, 0;",
        )
        self._lines.append(f"{done}:")
        self._give_predicate(True)

    # ---- copies ----------------------------------------------------------------------------------------

    def _copies(self, barrier: _Barrier) -> None:
        """Write bulk copies that complete the phase; the threads that wait for it read the copied bytes."""
        if barrier.bytes or barrier.room < 1:
            self._operations(barrier)
            return
        phase, own = barrier.phase, bool(barrier.group)
        sizes = [16] if own else [16 * self._draw.integer(1, 32) for _ in range(self._draw.integer(1, 3))]

        def act() -> None:
            turns: list[Callable[[], None]] = [lambda: self._issue(barrier, sizes)]
            expects = [lambda: self._transact(barrier, "expect_tx", sum(sizes))]
            turns = [*turns, *expects] if self._draw.integer(0, 1) else [*expects, *turns]
            for turn in turns:
                turn()
            order = self._order("release")
            self._line_of_arrival(barrier, f"arrive{order}", barrier.pending, True)

        self._alone(barrier, act)
        barrier.transact(-barrier.bytes)
        assert barrier.phase > phase
        if own:
            self._actors = barrier.members
            self._labels += 1
            label = f"BEHIND{self._labels}"
            self._line(f"@!{barrier.group} bra {label};")
            self._wait(barrier, phase)
            self._read(barrier, 16, own)
            self._lines.append(f"{label}:")
            self._actors = np.ones(self._threads, np.bool_)
        else:
            self._wait(barrier, phase)
            self._read(barrier, sum(sizes), own)

    def _issue(self, barrier: _Barrier, sizes: list[int]) -> None:
        """Copies to neighbouring parts of the barrier's tile, from global memory or from shared memory."""
        done = 0
        for size in sizes:
            own, k = bool(barrier.group), barrier.number
            place = 0 if own else 16 * self._draw.integer(0, (_TILE - size) // 16)
            if self._draw.integer(0, 2):
                words, base, place = (
                    "shared::cluster.global",
                    "%global",
                    place + 16 * self._draw.integer(0, 99),
                )
            else:
                words, base = "shared::cluster.shared::cta", "%source"
                place = 0 if own else 16 * self._draw.integer(0, (self._threads * 16 - size) // 16)
            if own:
                self._line(f"mad.wide.u32 %own, %thread, 16, {base};")
                base = "%own"
            self._line(
                f"cp.async.bulk.{words}.mbarrier::complete_tx::bytes "
                f"[%tile{k}+{done}], [{base}+{place}], {size}, [{barrier.base}];"
            )
            done += size

    def _read(self, barrier: _Barrier, size: int, own: bool) -> None:
        """Write a store of one word of a tile per thread."""
        if own:
            self._line(f"ld.shared.b32 %r, [%tile{barrier.number}+{4 * self._draw.integer(0, 3)}];")
        else:
            self._line(f"mul.lo.u32 %r, %thread, {4 * self._draw.choice((1, 3, 7))}; rem.u32 %r, %r, {size};")
            self._line(f"cvt.u64.u32 %far, %r; add.u64 %far, %far, %tile{barrier.number};")
            self._line("ld.shared.b32 %r, [%far];")
        self._give()


_MASKS = ((1, 1), (0, 0), (12, 4))
"""By barrier: the mask and the value of the numbers of threads that may have a barrier each."""
