"""`simwarp.Machine`: times of small schedules, computed by hand, and the values that they move."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpu.machine
import simwarp
from reference.errors import LaunchError
from simwarp.machine import (
    EIGHT,
    EVEREST,
    H100,
    H200,
    MAKALU,
    P100,
    H100x2,
    H200x2,
    H200x4,
    Link,
    Route,
    Shared,
    Slow,
    SlowLink,
    Timeline,
    Topology,
)
from support.machines import GPU, PEERS, Function, add_one, column, pinned, small, spans, tile


def test_a_chain_takes_the_sum_of_its_times() -> None:
    machine = simwarp.Machine(small())
    a, b = pinned(machine, column(), column(value=0.0))
    x, stream = tile(machine), machine.stream(0)
    machine.copy_in(stream, a, x)  # 1 s and 64 bytes at 16 a second
    machine.launch(stream, add_one(x, x))  # 1 s and 20 operations at 10 a second
    machine.copy_out(stream, x, b)
    assert machine.seconds() == 0
    assert machine.queued() == 3
    machine.run([])
    assert spans(machine) == [("in", 0, 5), ("routine", 5, 8), ("out", 8, 13)]
    assert (b == a + 1).all()
    assert machine.seconds() == 13
    assert machine.queued() == 0


def test_both_directions_and_a_routine_overlap() -> None:
    machine = simwarp.Machine(small())
    a, b = pinned(machine, column(), column())
    x, y, z = (tile(machine) for _ in range(3))
    first, *streams = (machine.stream(0) for _ in range(4))
    for t in (y, z):
        machine.copy_in(first, a, t)
    ready = machine.record(first)
    for stream in streams:
        machine.wait(stream, ready)
    machine.copy_in(streams[0], a, x)
    machine.launch(streams[1], add_one(y, y))
    machine.copy_out(streams[2], z, b)
    machine.run([])
    assert spans(machine) == [
        ("in", 0, 5),
        ("in", 5, 10),
        ("routine", 10, 13),
        ("in", 10, 15),
        ("out", 10, 15),
    ]
    assert machine.timeline.profile(0) == (3, 12, 0)


def test_a_link_moves_one_copy_at_a_time_and_a_device_runs_one_routine() -> None:
    machine = simwarp.Machine(small())
    a = pinned(machine, column())
    x, y = tile(machine), tile(machine)
    for t in (x, y):
        stream = machine.stream(0)
        machine.copy_in(stream, a, t)
        machine.launch(stream, add_one(t, t, 90))
    machine.run([])
    assert spans(machine) == [("in", 0, 5), ("in", 5, 10), ("routine", 5, 15), ("routine", 15, 25)]


def test_a_shared_bandwidth_is_divided_while_two_copies_run() -> None:
    shared = Shared((Route("in", 0), Route("in", 1)), 16.0)
    machine = simwarp.Machine(small(2, shared=(shared,)))
    long, short = pinned(machine, column(8), column(4))
    machine.copy_in(machine.stream(0), long, tile(machine, 0, 8))
    machine.copy_in(machine.stream(1), short, tile(machine, 1, 4))
    machine.run([])
    # from 1 s on each has 8 bytes a second: the short one ends 4 s later, with 32 bytes of the long one left
    assert spans(machine) == [("in", 0, 5), ("in", 0, 7)]


def test_both_directions_of_an_h200_share_its_bandwidth() -> None:
    a, b = column(1 << 20), column(1 << 20)
    machine = simwarp.Machine(values=False)
    pinned(machine, a, b)
    x, y = tile(machine, rows=1 << 20), tile(machine, rows=1 << 20)
    machine.copy_in(machine.stream(0), a, x)
    machine.copy_out(machine.stream(0), y, b)
    machine.run([])
    gigabytes = 2 * a.nbytes / (machine.seconds() - 3e-6) / 1e9
    assert gigabytes == pytest.approx(100.5)


def test_four_h200s_share_the_bandwidth_of_their_host() -> None:
    a = column(1 << 20)
    machine = simwarp.Machine(H200x4, values=False)
    pinned(machine, a)
    for device in range(4):
        machine.copy_in(machine.stream(device), a, tile(machine, device, 1 << 20))
    machine.run([])
    assert 4 * a.nbytes / (machine.seconds() - 3e-6) / 1e9 == pytest.approx(200.7)


@pytest.mark.parametrize(("n", "simulated", "measured"), [(16384, 29.0, 28.1), (32768, 39.0, 35.4)])
def test_the_rate_of_an_h200_is_near_the_measured_one(n: int, simulated: float, measured: float) -> None:
    """TFLOP/s of DGEMM, with copies before and behind it; docs/machines.md has the figures."""
    machine = simwarp.Machine(values=False)
    host = pinned(machine, np.empty((n, n), order="F"))
    tiles = [tile(machine, 0, n, n) for _ in range(3)]
    stream = machine.stream(0)
    for one in tiles:
        machine.copy_in(stream, host, one)
    machine.launch(stream, Function(lambda reads, writes: None, tuple(tiles), (tiles[2],), 2.0 * n**3))
    machine.copy_out(stream, tiles[2], host)
    machine.run([])
    rate = 2 * n**3 / machine.seconds() / 1e12
    assert rate == pytest.approx(simulated, abs=0.05)
    assert rate == pytest.approx(measured, rel=0.12)


def test_a_peer_copy_goes_over_its_own_link() -> None:
    machine = simwarp.Machine(small(2, peers=PEERS))
    a, b = pinned(machine, column(), column(value=0.0))
    x, y = tile(machine, 0), tile(machine, 1)
    zero, one = machine.stream(0), machine.stream(1)
    machine.copy_in(zero, a, x)
    machine.wait(one, machine.record(zero))
    machine.copy_peer(one, x, y)
    machine.copy_out(one, y, b)
    machine.run([])
    assert spans(machine) == [("in", 0, 5), ("peer", 5, 6), ("out", 6, 11)]
    assert (a == b).all()
    assert [machine.timeline[1].device, machine.timeline[1].peer] == [1, 0]
    assert machine.timeline.nbytes("peer", 1) == 64
    assert machine.timeline.nbytes("peer", 0) == 0


def test_a_slow_device_takes_longer_for_routines_only() -> None:
    machine = simwarp.Machine(small(), injections=[Slow(0, 3.0)])
    a = pinned(machine, column())
    x, stream = tile(machine), machine.stream(0)
    machine.copy_in(stream, a, x)
    machine.launch(stream, add_one(x, x))
    machine.run([])
    assert spans(machine) == [("in", 0, 5), ("routine", 5, 14)]


def test_a_slow_link_takes_longer_for_copies_of_its_kind_and_device_only() -> None:
    machine = simwarp.Machine(small(2), injections=[SlowLink("in", 1, 2.0)])
    a = pinned(machine, column())
    for device in (0, 1):
        x, stream = tile(machine, device), machine.stream(device)
        machine.copy_in(stream, a, x)
        machine.launch(stream, add_one(x, x))
    machine.run([])
    assert spans(machine) == [("in", 0, 5), ("routine", 5, 8), ("in", 0, 10), ("routine", 10, 13)]


def test_strided_tiles_and_parts_of_host_matrices_are_moved() -> None:
    machine = simwarp.Machine(small())
    a = np.asfortranarray(np.arange(42.0).reshape(6, 7))
    b = np.zeros((6, 7), order="F")
    pinned(machine, a, b)
    memory, stream = machine.allocate(0, 1024), machine.stream(0)
    x = memory.tile(3, 4, np.float64, offset=64, stride=5)
    machine.copy_in(stream, a[1:4, 2:6], x)
    machine.copy_out(stream, x, b[3:6, 0:4])
    machine.copy_out(stream, memory.tile(1, 4, np.float64, offset=72, stride=5), b[0:1, 3:7])
    machine.run([])
    expected = np.zeros((6, 7))
    expected[3:6, 0:4] = a[1:4, 2:6]
    expected[0, 3:7] = a[2, 2:6]
    assert (b == expected).all()
    assert machine.timeline.nbytes("in") == 96


def test_a_tile_that_is_read_and_written_has_two_arrays() -> None:
    seen = []

    def compute(reads, writes) -> None:
        seen.append(
            (reads[0].copy(), writes[0].copy(), reads[0].flags.writeable, np.shares_memory(*reads, *writes))
        )
        writes[0][...] += reads[0]

    machine = simwarp.Machine(small())
    a, b = pinned(machine, column(), column())
    x, stream = tile(machine), machine.stream(0)
    machine.copy_in(stream, a, x)
    machine.launch(stream, Function(compute, (x,), (x,)))
    machine.copy_out(stream, x, b)
    machine.run([])
    ((read, written, writeable, shared),) = seen
    assert (read == a).all()
    assert (written == a).all()
    assert not writeable
    assert not shared
    assert (b == 2 * np.arange(8.0).reshape(8, 1)).all()


# ------------------------------------------------------------------------------------------------ workers


def test_a_worker_is_resumed_when_its_event_has_happened() -> None:
    machine = simwarp.Machine(small(2))
    a = pinned(machine, column())
    log = []

    def worker(device, rows):
        stream = machine.stream(device)
        for _ in range(2):
            machine.copy_in(stream, a[:rows], tile(machine, device, rows))
            event = machine.record(stream)
            assert not event.done
            yield event
            assert event.done
            log.append((device, machine.seconds()))

    machine.run([worker(0, 8), worker(1, 4)])
    assert log == [(1, 3), (0, 5), (1, 6), (0, 10)]


def test_workers_that_wait_for_one_event_are_resumed_in_the_order_of_their_waits() -> None:
    machine = simwarp.Machine(small())
    a, log = pinned(machine, column()), []
    stream = machine.stream(0)
    machine.copy_in(stream, a, tile(machine))
    event = machine.record(stream)

    def worker(number):
        yield event
        log.append(number)

    machine.run([worker(number) for number in range(4)])
    assert log == [0, 1, 2, 3]


def test_an_event_of_an_idle_stream_has_happened() -> None:
    machine = simwarp.Machine(small())
    assert machine.record(machine.stream(0)).done


def test_a_worker_that_polls_lets_time_go_on() -> None:
    machine = simwarp.Machine(small(2))
    a, shared = pinned(machine, column()), []

    def maker():
        stream = machine.stream(0)
        machine.copy_in(stream, a, tile(machine))
        yield machine.record(stream)
        shared.append(machine.seconds())

    def poller():
        happened = machine.record(machine.stream(1))
        while not shared:
            yield happened
        shared.append("seen")

    machine.run([poller(), maker()])
    assert shared == [5, "seen"]


def test_work_of_a_worker_starts_at_the_time_of_its_resumption() -> None:
    machine = simwarp.Machine(small())
    a, b = pinned(machine, column(), column())

    def worker():
        x, stream = tile(machine), machine.stream(0)
        machine.copy_in(stream, a, x)
        yield machine.record(stream)
        machine.copy_out(machine.stream(0), x, b)  # another stream: the host has seen the event

    machine.run([worker()])
    assert spans(machine) == [("in", 0, 5), ("out", 5, 10)]


def _trace(seed: int | None, jitter: float = 0.0) -> list:
    machine = simwarp.Machine(small(2, peers=PEERS), seed=seed, jitter=jitter)
    a, order = pinned(machine, column()), []

    def worker(number):
        stream = machine.stream(number % 2)
        for _ in range(3):
            order.append(number)
            machine.copy_in(stream, a, tile(machine, number % 2))
            yield machine.record(stream)

    machine.run([worker(number) for number in range(6)])
    return [order, spans(machine), [one.stream for one in machine.timeline]]


def test_a_schedule_is_a_function_of_its_seed() -> None:
    assert _trace(None) == _trace(None)
    assert _trace(None)[0][:6] == [0, 1, 2, 3, 4, 5]
    for seed in range(3):
        assert _trace(seed, 0.5) == _trace(seed, 0.5)
    assert len({str(_trace(seed)[0]) for seed in range(8)}) == 8
    assert len({str(_trace(seed, 0.5)[1]) for seed in range(8)}) == 8


def test_jitter_stays_in_its_bounds() -> None:
    durations = [end - start for seed in range(20) for _, start, end in _trace(seed, 0.5)[1]]
    assert 5 / 1.5 <= min(durations) < 4
    assert 6 < max(durations) <= 5 * 1.5


def test_without_values_only_times_are_simulated() -> None:
    machine = simwarp.Machine(small(), values=False)
    a, b = pinned(machine, column(), column(value=0.0))
    x, stream = tile(machine), machine.stream(0)
    machine.copy_in(stream, a, x)
    machine.launch(stream, Function(lambda reads, writes: pytest.fail("computed"), (x,), (x,)))
    machine.copy_out(stream, x, b)
    machine.run([])
    assert spans(machine) == [("in", 0, 5), ("routine", 5, 8), ("out", 8, 13)]
    assert not b.any()


# ------------------------------------------------------------------------------ topologies and timelines


NAMED = [H100, H100x2, H200, H200x2, H200x4, EIGHT, EVEREST, MAKALU, P100]


@pytest.mark.parametrize("topology", NAMED, ids=lambda t: t.name)
def test_named_topologies_make_machines(topology: Topology) -> None:
    machine: gpu.machine.Machine = simwarp.Machine(topology)
    assert machine.devices == len(topology.gpus)
    for device in range(machine.devices):
        assert machine.budget(device) == topology.gpus[device].memory_bytes
        assert not machine.reaches(device, device)
        for peer in range(machine.devices):
            assert machine.reaches(device, peer) == ((device, peer) in topology.peers)


def test_everest_has_peer_access_between_its_second_and_third_device_only() -> None:
    assert set(EVEREST.peers) == {(1, 2), (2, 1)}
    assert not EIGHT.peers
    assert len(H200x4.peers) == 12


@pytest.mark.parametrize("topology", NAMED, ids=lambda t: t.name)
def test_named_topologies_have_rates_of_every_blas_dtype(topology: Topology) -> None:
    for device in topology.gpus:
        for single, double in (("float32", "float64"), ("complex64", "complex128")):
            assert device.routine_seconds(1e12, single) > 0
            assert device.routine_seconds(1e12, double) > 0
        assert device.routine_seconds(1e9, "complex64") == device.routine_seconds(1e9, "float32")


def test_a_topology_with_wrong_links_is_refused() -> None:
    with pytest.raises(simwarp.reference.errors.ShapeError, match="2 devices, 1 links in and 2 out"):
        small(2, inward=(Link(0, 1),))
    with pytest.raises(simwarp.reference.errors.LaunchError, match="from device 2 to device 0"):
        small(2, peers={(0, 2): Link(0, 1)})
    with pytest.raises(simwarp.reference.errors.LaunchError, match="the route in of device 3"):
        small(2, shared=(Shared((Route("in", 3),), 1.0),))
    with pytest.raises(simwarp.reference.errors.LaunchError, match="a bandwidth, a rate or a step is 0"):
        small(2, peers={(0, 1): Link(0, 0)})
    with pytest.raises(simwarp.reference.errors.LaunchError, match="a bandwidth, a rate or a step is 0"):
        replace(P100, gpus=(replace(P100.gpus[0], filters_step=0),))


def test_a_memory_as_large_as_the_device_takes_no_room_until_it_is_touched() -> None:
    machine = simwarp.Machine()
    memory = machine.allocate(0, machine.budget(0))
    assert machine.budget(0) == 0
    a, b = pinned(machine, column(), column(value=0.0))
    x, stream = memory.tile(8, 1, np.float64, offset=memory.nbytes - 64), machine.stream(0)
    machine.copy_in(stream, a, x)
    machine.copy_out(stream, x, b)
    machine.run([])
    assert (a == b).all()
    machine.free(memory)
    assert machine.budget(0) == H200.gpus[0].memory_bytes


def test_a_timeline_survives_json() -> None:
    machine = simwarp.Machine(small())
    a = pinned(machine, column())
    x, stream = tile(machine), machine.stream(0)
    machine.copy_in(stream, a, x)
    machine.launch(stream, add_one(x, x))
    machine.run([])
    text = machine.timeline.to_json()
    assert list(Timeline.from_json(text)) == list(machine.timeline)
    assert [one["name"] for one in json.loads(text)] == ["copy in", "add_one"]
    assert machine.timeline.operations() == machine.timeline.operations(0) == 20
    assert machine.timeline.seconds == 8


# ------------------------------------------------------------------------------------- costs of allocations


def slow_memory(devices: int = 1, allocate: float = 3.0, free: float = 2.0) -> Topology:
    gpu = replace(GPU, allocate_seconds=allocate, free_seconds=free)
    return replace(small(devices), gpus=(gpu,) * devices)


def test_a_device_starts_nothing_while_it_allocates_or_frees() -> None:
    machine = simwarp.Machine(slow_memory(2))
    a = pinned(machine, column())
    x, _ = tile(machine), tile(machine)  # until 6 s
    y, spare = tile(machine, 1), tile(machine, 1)
    machine.free(spare.memory)  # until 8 s, on the other device
    for device, target in enumerate((x, y)):
        machine.copy_in(machine.stream(device), a, target)
    machine.run([])
    assert spans(machine) == [("in", 6.0, 11.0), ("in", 8.0, 13.0)]


def test_what_a_device_has_not_started_waits_for_its_allocation() -> None:
    machine = simwarp.Machine(slow_memory())
    a, x = pinned(machine, column()), tile(machine)

    def worker() -> Iterator[Any]:
        stream = machine.stream(0)
        machine.copy_in(stream, a, x)  # from 3 s to 8 s
        yield machine.record(stream)
        machine.launch(stream, add_one(x, x))
        y = tile(machine)  # until 11 s
        machine.launch(stream, add_one(x, y))
        yield machine.record(stream)

    machine.run([worker()])
    assert [one[:2] for one in spans(machine)] == [("in", 3.0), ("routine", 11.0), ("routine", 14.0)]


def test_allocations_take_no_time_unless_the_topology_says_so() -> None:
    machine = simwarp.Machine(small())
    a = pinned(machine, column())
    machine.free(tile(machine).memory)
    machine.copy_in(machine.stream(0), a, tile(machine))
    machine.run([])
    assert spans(machine) == [("in", 0.0, 5.0)]


@pytest.mark.parametrize("name", ["allocate_seconds", "free_seconds"])
@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_costs_of_allocations_are_times(name: str, seconds: float) -> None:
    with pytest.raises(LaunchError, match=f"small: {name} is {seconds}"):
        replace(GPU, **{name: seconds})
