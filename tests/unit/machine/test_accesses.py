"""Accesses in buckets against a list of all accesses, and how many of them a read meets."""

import random

import pytest

import simwarp
from simwarp.machine.accesses import Access, Accesses
from simwarp.machine.footprints import covers, footprint, overlap
from simwarp.machine.operations import Event, Operation, Stream
from simwarp.machine.order import Order


def nothing() -> None:
    """Move no values."""


class Listed:
    """The accesses of one bucket as one list in their order."""

    def __init__(self, order: Order) -> None:
        self.order, self.kept = order, list[Access]()

    def add(self, access: Access, before: dict[int, int]) -> Access | None:
        self.kept = [one for one in self.kept if not self.order.ended_for_host(one.operation)]
        ordered = [before.get(one.operation.stream.number, 0) >= one.operation.index for one in self.kept]
        conflicts = [
            one
            for one, is_ordered in zip(self.kept, ordered, strict=True)
            if not is_ordered and (access.writes or one.writes) and overlap(access.footprint, one.footprint)
        ]
        self.kept = [
            one
            for one, is_ordered in zip(self.kept, ordered, strict=True)
            if not (is_ordered and covers(access.footprint, one.footprint) and access.writes >= one.writes)
        ]
        self.kept.append(access)
        return conflicts[0] if conflicts else None

    def unfinished(self, start: int, end: int) -> Operation | None:
        return next(
            (
                one.operation
                for one in self.kept
                if one.footprint.start < end
                and start < one.footprint.end
                and not self.order.ended_for_host(one.operation)
            ),
            None,
        )


@pytest.mark.parametrize("seed", range(40))
def test_conflicts_are_those_of_a_list(seed: int) -> None:
    draw, machine = random.Random(seed), simwarp.Machine()
    order, streams = Order(), [Stream(machine, 0, number) for number in range(draw.randint(1, 6))]
    found, listed, events = Accesses(order, 1 << 20), Listed(order), list[Event]()
    for _ in range(80):
        stream, begin = draw.choice(streams), draw.randrange(0, 200, 8)
        before = order.before(stream)
        match draw.choice(["access"] * 8 + ["record", "wait", "saw", "epoch", "unfinished"]):
            case "access":
                stream.count += 1
                before[stream.number] = stream.count
                operation = Operation(stream, stream.count, order.epoch, "one", ("file", 1), nothing, nothing)
                for _ in range(draw.randint(1, 3)):
                    of = footprint(begin, 8 * draw.randint(1, 4), 32, draw.randint(1, 4))
                    access = Access(operation, of, draw.random() < 0.3)
                    assert found.add(access, before) is listed.add(access, before)
            case "record":
                events.append(Event(machine, stream, 0, dict(before), order.epoch))
            case "wait" if events:
                order.wait(stream, draw.choice(events))
            case "saw" if events:
                order.host_saw(draw.choice(events))
            case "epoch" if draw.random() < 0.3:
                order.next_epoch()
            case _:
                assert found.unfinished(begin, begin + 40) is listed.unfinished(begin, begin + 40)


def test_a_read_meets_no_read_of_another_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    met = 0
    ended = Order.ended_for_host

    def count(self: Order, operation: Operation) -> bool:
        nonlocal met
        met += 1
        return ended(self, operation)

    monkeypatch.setattr(Order, "ended_for_host", count)
    order, machine, streams = Order(), simwarp.Machine(), 100
    accesses = Accesses(order, 1 << 20)
    for number in range(streams):
        operation = Operation(Stream(machine, 0, number), 1, 0, "read", ("file", 1), nothing, nothing)
        assert accesses.add(Access(operation, footprint(0, 8, 8, 1), False), {number: 1}) is None
    assert met <= streams
