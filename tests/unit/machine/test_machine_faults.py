"""Faults on `simwarp.Machine`: races, unwritten tiles, deadlocks, wrong arguments, injected faults."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import simwarp
from reference.errors import DtypeError, LaunchError, SchemeError, ShapeError
from simwarp.machine import (
    AllocationFails,
    CopyError,
    CopyFails,
    DeviceLost,
    DeviceLostError,
    DeviceMemoryError,
    FreedMemoryError,
    Link,
    MemoryInUseError,
    TileBoundsError,
    TileRaceError,
    UnpinnedError,
    UnwrittenTileError,
    WorkerDeadlockError,
)
from support.machines import GPU, PEERS, Function, add_one, column, pinned, small, spans, tile


def test_a_tile_that_is_read_too_early_is_reported_and_wrong() -> None:
    machine = simwarp.Machine(small(), checks="report")
    a, b = pinned(machine, column(), column(value=0.0))
    x = tile(machine)
    first, second = machine.stream(0), machine.stream(0)
    machine.copy_in(first, a, x)
    machine.copy_out(second, x, b)  # waits for no event
    machine.run([])
    (fault,) = machine.faults
    line = fault.other_caller[1]
    assert fault.caller == (__file__, line + 1)
    assert isinstance(fault, TileRaceError)
    assert (fault.device, fault.stream, fault.operation, fault.access) == (0, 1, "copy out", "read")
    assert (fault.other_stream, fault.other, fault.other_access) == (0, "copy in", "write")
    assert (fault.start, fault.other_start, fault.other_end) == (0, 0, None)
    assert np.isnan(b).all()
    assert str(fault).splitlines() == [
        "copy out of device 0, stream 1 reads tile 8 × 1 float64 at byte 0 of memory 0 of device 0, "
        "which copy in of device 0, stream 0 writes",
        f"it starts at 0.0 s, queued by test_machine_faults.py:{line + 1}; "
        f"the other has run since 0.0 s, queued by test_machine_faults.py:{line}",
        "no event orders them: record one behind the other operation, and let this stream wait for it",
    ]


def test_the_target_of_a_running_copy_is_poison_not_its_old_values() -> None:
    machine = simwarp.Machine(small(), checks="report")
    a, b = pinned(machine, column(), column(value=0.0))
    x = tile(machine)
    machine.copy_in(machine.stream(0), a, x)
    machine.run([])
    machine.copy_in(machine.stream(0), a, x)
    machine.copy_out(machine.stream(0), x, b)
    machine.run([])
    assert len(machine.faults) == 1
    assert np.isnan(b).all()


def test_a_race_stops_the_run() -> None:
    machine = simwarp.Machine(small())
    a, b = pinned(machine, column(), column(value=0.0))
    x = tile(machine)
    machine.copy_in(machine.stream(0), a, x)
    machine.copy_out(machine.stream(0), x, b)
    with pytest.raises(TileRaceError):
        machine.run([])
    assert not b.any()  # it has not started
    assert spans(machine) == [("in", 0, 5)]  # it ran, and ended
    assert machine.queued() == 0


def test_a_race_is_found_although_the_operations_do_not_overlap_in_this_run() -> None:
    machine = simwarp.Machine(small(2, peers=PEERS))
    a, b = pinned(machine, column(), column(value=0.0))
    x, y = tile(machine), tile(machine)
    machine.copy_in(machine.stream(0), a[:1], x.memory.tile(1, 1, np.float64))
    late = machine.stream(0)
    machine.copy_in(late, a, y)
    machine.copy_out(late, x.memory.tile(1, 1, np.float64), b[:1])
    with pytest.raises(TileRaceError) as error:
        machine.run([])
    assert (error.value.other_start, error.value.other_end) == (0, 1.5)
    assert error.value.start == 6.5


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(
    "case", ["write after read", "write after write", "host in after out", "host out after in"]
)
def test_unordered_conflicts_of_every_kind_are_races(case: str, ordered: bool) -> None:
    machine = simwarp.Machine(small())
    a, b = pinned(machine, column(), column())
    x, y = tile(machine), tile(machine)
    first, second = machine.stream(0), machine.stream(0)

    def worker():
        machine.copy_in(first, a, x)
        machine.copy_in(first, a, y)
        yield machine.record(first)
        {
            "write after read": lambda: machine.copy_out(first, x, b),
            "write after write": lambda: machine.copy_in(first, a, x),
            "host in after out": lambda: machine.copy_out(first, x, b),
            "host out after in": lambda: machine.copy_in(first, b, x),
        }[case]()
        if ordered:
            machine.wait(second, machine.record(first))
        {
            "write after read": lambda: machine.copy_in(second, a, x),
            "write after write": lambda: machine.copy_in(second, a, x),
            "host in after out": lambda: machine.copy_in(second, b, y),
            "host out after in": lambda: machine.copy_out(second, y, b),
        }[case]()

    if ordered:
        machine.run([worker()])
    else:
        with pytest.raises(TileRaceError) as error:
            machine.run([worker()])
        assert ("host matrix" in error.value.tile) == case.startswith("host")


def test_reads_of_one_tile_by_two_streams_are_not_a_race() -> None:
    machine = simwarp.Machine(small())
    a, b, c = pinned(machine, column(), column(), column())
    x, first, second = tile(machine), machine.stream(0), machine.stream(0)
    machine.copy_in(first, a, x)
    machine.wait(second, machine.record(first))
    machine.copy_out(first, x, b)
    machine.copy_out(second, x, c)
    machine.run([])
    assert (b == c).all()


def test_neighbouring_tiles_of_one_memory_and_one_matrix_are_not_a_race() -> None:
    machine = simwarp.Machine(small())
    a = pinned(machine, np.zeros((8, 8), order="F"))
    memory = machine.allocate(0, 512)
    for row in (0, 4):
        for col in (0, 4):
            x = memory.tile(4, 4, np.float64, offset=8 * (row + 8 * col), stride=8)
            stream = machine.stream(0)
            machine.copy_in(stream, a[row : row + 4, col : col + 4], x)
            machine.copy_out(stream, x, a[row : row + 4, col : col + 4])
    machine.run([])


def test_one_common_element_is_a_race() -> None:
    machine = simwarp.Machine(small())
    a = pinned(machine, np.zeros((8, 8), order="F"))
    memory = machine.allocate(0, 512)
    machine.copy_in(machine.stream(0), a[:4, :4], memory.tile(4, 4, np.float64, stride=8))
    machine.copy_in(machine.stream(0), a[3:7, 3:7], memory.tile(4, 4, np.float64, offset=8 * 27, stride=8))
    with pytest.raises(TileRaceError):
        machine.run([])


def test_an_event_orders_only_what_was_queued_before_it() -> None:
    machine = simwarp.Machine(small())
    a, b = pinned(machine, column(), column())
    x, first, second = tile(machine), machine.stream(0), machine.stream(0)
    event = machine.record(first)
    machine.copy_in(first, a, x)
    machine.wait(second, event)
    machine.copy_out(second, x, b)
    with pytest.raises(TileRaceError):
        machine.run([])


def test_order_goes_through_several_streams() -> None:
    machine = simwarp.Machine(small(), seed=1)
    a, b = pinned(machine, column(), column(value=0.0))
    x, streams = tile(machine), [machine.stream(0) for _ in range(4)]
    machine.copy_in(streams[0], a, x)
    for before, after in pairwise(streams):
        machine.wait(after, machine.record(before))
    machine.copy_out(streams[3], x, b)
    machine.run([])
    assert (a == b).all()


def test_what_the_host_has_seen_comes_before_what_it_queues() -> None:
    machine = simwarp.Machine(small())
    a, b = pinned(machine, column(), column(value=0.0))
    x, first = tile(machine), machine.stream(0)
    machine.copy_in(first, a, x)
    event = machine.record(first)
    machine.run([])
    machine.copy_out(machine.stream(0), x, b)
    machine.run([])
    assert event.done
    assert (a == b).all()


@pytest.mark.parametrize("written", ["nothing", "a part"])
def test_reads_of_unwritten_bytes_are_reported(written: str) -> None:
    machine = simwarp.Machine(small())
    a, b = pinned(machine, column(), column())
    x, stream = tile(machine), machine.stream(0)
    if written == "a part":
        machine.copy_in(stream, a[:7], x.memory.tile(7, 1, np.float64))
    machine.copy_out(stream, x, b)
    with pytest.raises(UnwrittenTileError, match="no operation before it writes all of these bytes") as error:
        machine.run([])
    assert error.value.tile == "tile 8 × 1 float64 at byte 0 of memory 0 of device 0"


def test_a_routine_that_reads_what_it_only_writes_computes_poison() -> None:
    machine = simwarp.Machine(small())
    b = pinned(machine, column())
    x, stream = tile(machine), machine.stream(0)

    def compute(reads, writes) -> None:
        writes[0][:4] = 1

    machine.launch(stream, Function(compute, (), (x,)))
    machine.copy_out(stream, x, b)
    machine.run([])
    assert (b[:4] == 1).all()
    assert np.isnan(b[4:]).all()


def test_unchecked_faults_are_neither_raised_nor_kept() -> None:
    machine = simwarp.Machine(small(), checks="off")
    b = pinned(machine, column())
    machine.copy_out(machine.stream(0), tile(machine), b)
    machine.run([])
    assert np.isnan(b).all()
    assert machine.faults == []


# ------------------------------------------------------------------------------------- hardware that fails


def test_a_failing_copy_stops_the_run_at_its_end() -> None:
    machine = simwarp.Machine(small(2), injections=[CopyFails("in", 1, after=1)])
    a = pinned(machine, column())
    resumed = []

    def worker(device):
        stream = machine.stream(device)
        for _ in range(3):
            machine.copy_in(stream, a[: 8 - device], tile(machine, device, 8 - device))
            yield machine.record(stream)
            resumed.append(device)

    with pytest.raises(CopyError) as error:
        machine.run([worker(0), worker(1)])
    assert (error.value.device, error.value.kind, error.value.seconds) == (1, "in", 9)
    assert str(error.value).splitlines()[1] == "it ran from 4.5 s to 9.0 s on the link in of device 1"
    assert resumed == [1, 0]
    assert spans(machine) == [("in", 0, 4.5), ("in", 0, 5), ("in", 5, 10)]  # the last one ran, and ended
    assert machine.queued() == 0
    assert machine.pinned() == 1
    assert [len(machine.allocated(device)) for device in (0, 1)] == [2, 2]
    for device in (0, 1):
        for memory in machine.allocated(device):
            machine.free(memory)
    machine.unpin(a)
    assert machine.pinned() == 0


def test_nothing_that_is_queued_starts_after_a_failure() -> None:
    machine = simwarp.Machine(small(), injections=[CopyFails("in", 0)])
    a, b = pinned(machine, column(), column(value=7.0))
    x, stream = tile(machine), machine.stream(0)
    machine.copy_in(stream, a, x)
    machine.copy_out(stream, x, b)
    event = machine.record(stream)
    machine.copy_in(machine.stream(0), a, tile(machine))  # waits for the link, not in its stream
    with pytest.raises(CopyError):
        machine.run([])
    assert machine.queued() == 0
    machine.run([])
    assert (b == 7).all()
    assert not event.done
    assert spans(machine) == []
    machine.copy_in(stream, a, x)  # the next copy succeeds
    machine.run([])
    assert spans(machine) == [("in", 5, 10)]


def test_a_lost_device_stops_the_run_at_that_time() -> None:
    machine = simwarp.Machine(small(2), injections=[DeviceLost(1, 3.5)])
    a = pinned(machine, column())
    for device in (0, 1):
        machine.copy_in(machine.stream(device), a, tile(machine, device))
    with pytest.raises(DeviceLostError) as error:
        machine.run([])
    assert (error.value.device, error.value.seconds) == (1, 3.5)
    assert "while it ran copy in of device 1, stream 1" in str(error.value)
    assert [one.device for one in machine.timeline] == [0]
    with pytest.raises(DeviceLostError):
        machine.stream(1)
    with pytest.raises(DeviceLostError):
        machine.allocate(1, 8)
    machine.free(machine.allocated(1)[0])
    machine.copy_in(machine.stream(0), a, tile(machine))
    machine.run([])


def test_a_device_that_is_lost_later_than_all_work_changes_nothing() -> None:
    machine = simwarp.Machine(small(), injections=[DeviceLost(0, 5.5)])
    machine.copy_in(machine.stream(0), pinned(machine, column()), tile(machine))
    machine.run([])
    assert machine.seconds() == 5


def test_memory_that_runs_out_is_an_error_of_the_allocation() -> None:
    machine = simwarp.Machine(small(), injections=[AllocationFails(0, after=1)])
    machine.allocate(0, 8)
    with pytest.raises(DeviceMemoryError, match="0 bytes are free"):
        machine.allocate(0, 8)
    machine.allocate(0, GPU.memory_bytes - 8)
    with pytest.raises(MemoryError) as error:  # the built-in one, too
        machine.allocate(0, 1)
    assert isinstance(error.value, DeviceMemoryError)
    assert (error.value.asked, error.value.budget) == (1, 0)


def test_an_error_of_a_worker_or_a_routine_is_raised_as_it_is() -> None:
    machine = simwarp.Machine(small())
    a = pinned(machine, column())

    def worker():
        machine.copy_in(machine.stream(0), a, tile(machine))
        yield machine.record(machine.stream(0))
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        machine.run([worker()])
    x = tile(machine)
    machine.launch(machine.stream(0), Function(lambda reads, writes: 1 / 0, (), (x,)))
    with pytest.raises(ZeroDivisionError) as error:
        machine.run([])
    assert error.value.__notes__ == ["in function of device 0, stream 2, which started at 0.0 s"]
    assert machine.queued() == 0


# ----------------------------------------------------------------------------------------------- deadlocks


def test_a_wait_for_a_dropped_event_is_a_deadlock() -> None:
    machine = simwarp.Machine(small(), injections=[CopyFails("in", 0)])
    a = pinned(machine, column())
    stream = machine.stream(0)
    machine.copy_in(stream, a, tile(machine))
    event = machine.record(stream)
    with pytest.raises(CopyError):
        machine.run([])

    def worker():
        machine.wait(machine.stream(0), event)
        yield event

    with pytest.raises(WorkerDeadlockError) as error:
        machine.run([worker()])
    dropped = "event 0 of device 0, stream 0, which a failure dropped"
    assert error.value.waiting == (f"worker 0 for {dropped}", f"stream 1 of device 0 for {dropped}")


def test_workers_that_poll_for_one_another_are_a_deadlock() -> None:
    machine = simwarp.Machine(small())
    happened = machine.record(machine.stream(0))

    def worker():
        while True:
            yield happened

    with pytest.raises(WorkerDeadlockError, match="polls an event that has happened") as error:
        machine.run([worker(), worker()])
    assert [text.partition(" for")[0] for text in error.value.waiting] == ["worker 0", "worker 1"]


# ------------------------------------------------------------------------------------------ wrong arguments


def test_devices_streams_and_events_of_other_machines_are_refused() -> None:
    machine, other = simwarp.Machine(small()), simwarp.Machine(small())
    stream, foreign = machine.stream(0), other.stream(0)
    for call in (machine.stream, machine.budget, machine.allocated, lambda d: machine.allocate(d, 1)):
        for device in (-1, 1):
            with pytest.raises(LaunchError, match=f"device {device}\n1 small has devices 0 to 0"):
                call(device)
    with pytest.raises(LaunchError, match="the stream belongs to another machine"):
        machine.record(foreign)
    with pytest.raises(LaunchError, match="the event is of another machine"):
        machine.wait(stream, other.record(foreign))
    with pytest.raises(LaunchError, match="the event is of another machine"):
        machine.run([iter([other.record(foreign)])])
    with pytest.raises(DtypeError, match="worker 0 yielded a int"):
        machine.run([iter([1])])
    with pytest.raises(DtypeError, match="the memory is of another machine"):
        machine.copy_in(stream, pinned(machine, column()), tile(other))
    with pytest.raises(DtypeError, match="wait for a int"):
        machine.wait(stream, 3)
    with pytest.raises(DtypeError, match="the stream is a NoneType"):
        machine.record(None)
    with pytest.raises(SchemeError):
        simwarp.Machine(checks="always")
    with pytest.raises(LaunchError, match="device 1"):
        simwarp.Machine(injections=[DeviceLost(1, 0.0)])
    with pytest.raises(LaunchError, match="jitter"):
        simwarp.Machine(jitter=-1)


@pytest.mark.parametrize(
    ("offset", "rows", "columns", "stride", "error"),
    [
        (-8, 2, 2, 2, TileBoundsError),
        (40, 2, 2, 2, TileBoundsError),
        (0, 2, 3, 4, TileBoundsError),
        (4, 2, 2, 2, TileBoundsError),
        (0, 2, 2, 1, TileBoundsError),
        (0, 0, 2, 2, ShapeError),
        (0, 2, 0, 2, ShapeError),
    ],
)
def test_tiles_that_do_not_lie_in_their_memory_are_refused(offset, rows, columns, stride, error) -> None:
    machine = simwarp.Machine(small())
    memory = machine.allocate(0, 64)
    x = memory.tile(rows, columns, np.float64, offset, stride)
    with pytest.raises(error, match="the target is tile"):
        machine.copy_in(machine.stream(0), np.zeros((rows, columns), order="F"), x)
    assert machine.queued() == 0


def test_host_matrices_that_do_not_fit_are_refused() -> None:
    machine = simwarp.Machine(small(2))
    a = pinned(machine, np.zeros((4, 4), order="F"))
    x, stream = tile(machine, 0, 4, 4), machine.stream(0)
    with pytest.raises(ShapeError, match=r"shape \(4, 3\)"):
        machine.copy_in(stream, a[:, :3], x)
    with pytest.raises(ShapeError, match="float32"):
        machine.copy_in(stream, a.astype(np.float32), x)
    with pytest.raises(ShapeError, match="a copy moves whole columns"):
        machine.copy_in(stream, a.T, x)
    with pytest.raises(ShapeError, match="a copy moves whole columns"):
        machine.copy_in(stream, a[:, ::-1], x)
    with pytest.raises(DtypeError, match="the source is a list"):
        machine.copy_in(stream, [[0.0]], x)
    with pytest.raises(UnpinnedError, match="none of the 1 pinned arrays"):
        machine.copy_in(stream, a.copy(order="F"), x)
    frozen = a[:]
    frozen.flags.writeable = False
    with pytest.raises(ShapeError, match="read-only"):
        machine.copy_out(stream, x, frozen)
    with pytest.raises(LaunchError, match="the stream is of device 1"):
        machine.copy_in(machine.stream(1), a, x)
    assert machine.queued() == 0


def test_peer_copies_without_a_link_or_of_other_shapes_are_refused() -> None:
    machine = simwarp.Machine(small(2, peers=PEERS))
    x, y = tile(machine, 0), tile(machine, 1)
    with pytest.raises(LaunchError, match="has no link between them"):
        machine.copy_peer(machine.stream(0), y, x)
    with pytest.raises(LaunchError, match="has no link between them"):
        machine.copy_peer(machine.stream(0), x, tile(machine, 0))
    with pytest.raises(ShapeError, match="tiles of one shape"):
        machine.copy_peer(machine.stream(1), x, tile(machine, 1, 4))


def test_routines_without_a_result_or_a_rate_are_refused() -> None:
    machine = simwarp.Machine(small())
    x = tile(machine)
    with pytest.raises(LaunchError, match="writes no tile"):
        machine.launch(machine.stream(0), Function(lambda reads, writes: None, (x,), ()))
    with pytest.raises(LaunchError, match="no rate for int8\nit has rates for float64, float32"):
        machine.launch(machine.stream(0), add_one(x, tile(machine, dtype=np.int8)))


def test_routines_whose_tiles_overlap_in_part_are_refused() -> None:
    machine = simwarp.Machine(small())
    memory = machine.allocate(0, 256)
    low, high, other = (memory.tile(8, 1, np.float64, offset) for offset in (0, 56, 128))

    def routine(reads, writes) -> Function:
        return Function(lambda reads, writes: None, reads, writes)

    with pytest.raises(LaunchError, match=r"writes\[0\] of function is .*, which overlaps reads\[0\]"):
        machine.launch(machine.stream(0), routine((low,), (high,)))
    with pytest.raises(LaunchError, match=r"writes\[1\] of function is .*, which overlaps writes\[0\]"):
        machine.launch(machine.stream(0), routine((), (low, low)))
    stream = machine.stream(0)
    machine.launch(stream, routine((), (low, other)))
    machine.launch(stream, routine((low, low), (low, other)))
    machine.run([])


def test_memory_is_freed_once_and_not_in_use() -> None:
    machine = simwarp.Machine(small())
    a, x = pinned(machine, column()), tile(machine)

    def worker():
        stream = machine.stream(0)
        machine.copy_in(stream, a, x)
        event = machine.record(stream)
        with pytest.raises(MemoryInUseError, match="which copy in of device 0, stream 0 uses"):
            machine.free(x.memory)
        with pytest.raises(MemoryInUseError, match="unpin of array 0"):
            machine.unpin(a)
        yield event
        machine.free(x.memory)
        machine.unpin(a)

    machine.run([worker()])
    assert machine.allocated(0) == ()
    for wrong, match in (
        (x.memory, "it is freed already"),
        (tile(simwarp.Machine()).memory, "another machine"),
    ):
        with pytest.raises(FreedMemoryError, match=match):
            machine.free(wrong)
    with pytest.raises(FreedMemoryError, match="the memory is freed"):
        machine.copy_in(machine.stream(0), a, x)
    with pytest.raises(DtypeError, match="pass the memory, not a tile"):
        machine.free(x)
    with pytest.raises(ShapeError):
        machine.allocate(0, 0)


def test_memory_whose_work_has_ended_by_luck_is_still_in_use() -> None:
    machine = simwarp.Machine(small())
    a, x, y = pinned(machine, column()), tile(machine), tile(machine)

    def worker():
        first, second = machine.stream(0), machine.stream(0)
        machine.copy_in(first, a, x)
        machine.copy_in(second, a, y)
        yield machine.record(second)  # ends later than the first in this run, but not behind it
        with pytest.raises(MemoryInUseError):
            machine.free(x.memory)

    machine.run([worker()])


def test_pins_are_counted() -> None:
    machine = simwarp.Machine(small())
    a = column()
    machine.pin(a)
    machine.pin(a)
    machine.unpin(a)
    machine.copy_in(machine.stream(0), a, tile(machine))
    machine.run([])
    machine.unpin(a)
    with pytest.raises(UnpinnedError, match="it is not pinned"):
        machine.unpin(a)


def test_a_machine_does_not_run_inside_itself() -> None:
    machine = simwarp.Machine(small())

    def worker():
        machine.run([])
        yield

    with pytest.raises(LaunchError, match="the machine runs already"):
        machine.run([worker()])
    machine.run([])


def test_links_of_a_topology_are_data() -> None:
    assert small(2, peers=PEERS).peers[1, 0] == Link(0.0, 64.0)


@pytest.mark.parametrize("wrong", [3, [3], DeviceLost(0, 1.0), "lost"])
def test_what_is_not_a_sequence_of_faults_is_refused(wrong):
    with pytest.raises(DtypeError, match="it is a sequence of faults") as caught:
        simwarp.Machine(small(), injections=wrong)
    assert len(str(caught.value).splitlines()) == 3
