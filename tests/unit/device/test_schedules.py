"""CUDA kernels under several schedules: order-dependent results, and their report."""

import json
from functools import partial

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from reference.errors import DtypeError, ShapeError
from simwarp.device.schedules import (
    SCHEDULES,
    DependsOnScheduling,
    Schedule,
    UnrepeatableRunError,
    compare_schedules,
)
from simwarp.faults import NeedsIndependentProgress, OutOfBounds

SOURCE = r"""
extern "C" __global__ void order_free(int* out, const int* in) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, in[blockIdx.x * blockDim.x + threadIdx.x]);
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum + threadIdx.x;
}
extern "C" __global__ void float_sum(float* out, const float* in) {
    atomicAdd(out, in[blockIdx.x * blockDim.x + threadIdx.x]);
}
extern "C" __global__ void lost_update(int* out, const int* in) {
    out[0] = out[0] + in[threadIdx.x];
}
extern "C" __global__ void tickets(int* out, int* head) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = atomicExch(head, threadIdx.x);
}
extern "C" __global__ void last_writer(int* out, const int* in) {
    out[threadIdx.x % 4] = threadIdx.x;
}
extern "C" __global__ void spin(int* out, int* lock) {
    while (atomicCAS(lock, 0, 1) != 0) {}
    out[0] += 1;
    __threadfence();
    atomicExch(lock, 0);
}
"""
RANDOM = [Schedule("random", seed) for seed in range(4)]
IN_32 = np.arange(32, dtype=np.int32)


def line(part):
    """Line number of the source that contains this text."""
    assert SOURCE.count(part) == 1
    return 1 + SOURCE[: SOURCE.index(part)].count("\n")


def launch(device, name, out, given, block=32, grid=1):
    module = device.load(compile(SOURCE, "schedules.cu").text)
    module.kernel(name)((grid, 1, 1), (block, 1, 1), out, given)
    return out


def runner(name, start, given, **geometry):
    def run(device):
        return launch(device, name, device.upload(start, "out"), device.upload(given, "in"), **geometry)

    return run


def test_an_order_free_kernel_agrees_under_all_schedules():
    given = np.arange(256, dtype=np.int32)
    differences = compare_schedules(runner("order_free", np.zeros(256, np.int32), given, block=128, grid=2))
    assert (list(differences), differences.compared, differences.declined) == ([], SCHEDULES, {})
    assert differences.faults == ()
    assert not differences
    differences.raise_if_any()
    assert "no result differs" in differences.to_text()


def test_a_float_sum_by_atomics_changes_with_their_order():
    given = np.float32([1e8, 1.0, -1e8, 3.0] * 8)
    differences = compare_schedules(runner("float_sum", np.zeros(1, np.float32), given))
    assert differences
    for d in differences:
        assert (d.array, d.index, d.count, d.size) == ("out", (0,), 1, 1)
        assert d.other.schedule.name == "random"
        for outcome in (d.first, d.other):
            assert np.uint32(int(outcome.bits, 16)).view(np.float32) == np.float32(outcome.value)
            assert outcome.write.value == int(outcome.bits, 16)
            assert outcome.write.place.source_line == line("atomicAdd(out")
        assert d.first.bits != d.other.bits
    assert differences.faults == (), "atomics do not race"


SYNCHRONOUS = r"""
__device__ void tail(volatile int* s, int t) {
    s[t] += s[t + 32]; s[t] += s[t + 16]; s[t] += s[t + 8];
    s[t] += s[t + 4]; s[t] += s[t + 2]; s[t] += s[t + 1];
}
extern "C" __global__ void synchronous(int* out, const int* in) {
    __shared__ int s[128];
    const int t = threadIdx.x;
    s[t] = in[t];
    __syncthreads();
    if (t < 64) s[t] += s[t + 64];
    __syncthreads();
    if (t < 32) tail(s, t);
    if (t == 0) out[0] = s[0];
}"""


@pytest.mark.at_most(1)
@pytest.mark.parametrize(("sync", "differs"), [("", True), ("__syncwarp();", False)])
def test_lanes_that_count_on_their_warp_without_syncwarp_depend_on_the_schedule(sync, differs):
    source = SYNCHRONOUS if not sync else _with_barriers(sync)

    def run(device):
        out = device.upload(np.zeros(1, np.int32), "out")
        given = device.upload(np.arange(128, dtype=np.int32), "in")
        device.load(compile(source, "tail.cu").text).kernel("synchronous")(1, 128, out, given)
        return out

    assert bool(compare_schedules(run, [*SCHEDULES, *RANDOM])) == differs


def _with_barriers(sync):
    """The kernel with a barrier between each read and the write, and behind the write."""
    steps = (f"v = s[t] + s[t + {h}]; {sync} s[t] = v; {sync}" for h in (32, 16, 8, 4, 2, 1))
    head, tail = SYNCHRONOUS.split("    s[t] += s[t + 32]")[0], SYNCHRONOUS[SYNCHRONOUS.index('extern "C"') :]
    return head + "int v; " + " ".join(steps) + "}\n" + tail


def test_a_lost_update_changes_with_the_order():
    differences = compare_schedules(
        runner("lost_update", np.zeros(1, np.int32), IN_32), [*SCHEDULES, *RANDOM]
    )
    assert differences
    assert {d.array for d in differences} == {"out"}
    assert {type(fault).__name__ for fault in differences.faults} == {"Race"}
    assert {fault.place.source_line for fault in differences.faults} == {line("out[0] + in[")}


def test_tickets_change_with_the_order_of_the_exchanges():
    differences = compare_schedules(
        runner("tickets", np.full(32, -1, np.int32), np.zeros(1, np.int32)), ["lowest pc", *RANDOM]
    )
    assert [d.other.schedule for d in differences] == RANDOM
    assert all(d.count > 10 for d in differences)


def test_the_last_writer_is_named_under_both_schedules():
    differences = compare_schedules(runner("last_writer", np.zeros(4, np.int32), IN_32))
    assert differences
    difference = differences[0]
    (element,) = difference.index
    assert difference.first.value == str(28 + element), "the last lane that stores there"
    for outcome in (difference.first, difference.other):
        write = outcome.write
        assert write.value == int(outcome.value) == write.place.lane
        assert (write.place.source_file, write.place.source_line) == ("schedules.cu", line("% 4] ="))
    with pytest.raises(DependsOnScheduling) as caught:
        differences.raise_if_any()
    fault = caught.value
    assert f"out[{element}] depends on scheduling: race, unordered atomic or unspecified result" in fault.what
    assert str(fault).startswith(f"schedules.cu:{line('% 4] =')}: ")
    assert str(difference.first) in fault.values
    assert str(difference.other) in fault.values
    assert f"{difference.count} of 4 elements differ" in fault.values
    assert "barriers" in fault.advice
    assert caught.value.difference is difference
    assert caught.value.place == difference.other.write.place


def test_a_schedule_that_declines_is_not_a_difference():
    """The stack declines lanes that wait for each other."""

    def run(device):
        if device.schedule == "stack":
            raise NeedsIndependentProgress("lanes wait for others of their warp")
        return np.zeros(1)

    differences = compare_schedules(run, ["stack", "lowest pc", "random"])
    why = "needs independent progress: lanes wait for others of their warp"
    assert differences.declined == {Schedule("stack"): why}
    assert differences.compared == (Schedule("lowest pc"), Schedule("random"))
    assert not differences
    assert f"declined: stack: {why}" in differences.to_text()


@pytest.mark.slow
def test_the_stack_declines_a_spin_lock_that_other_schedules_run():
    run = runner("spin", np.zeros(1, np.int32), np.zeros(1, np.int32))
    differences = compare_schedules(run, checks={"races": "off"})
    assert list(differences.declined) == [Schedule("stack")]
    assert not differences


def test_a_fault_under_another_schedule_is_a_difference():
    def run(device):
        if device.seed == 2:
            raise OutOfBounds("read past the end")
        return np.zeros(3)

    differences = compare_schedules(run)
    (difference,) = differences
    assert (difference.array, difference.first.value) == ("", "ends")
    assert isinstance(difference.other.fault, OutOfBounds)
    assert difference.other.schedule == Schedule("random", 2)
    assert Schedule("random", 2) not in differences.compared
    with pytest.raises(DependsOnScheduling, match="whether a fault occurs depends on scheduling"):
        differences.raise_if_any()


def test_a_fault_under_the_first_schedule_is_raised():
    def run(device):
        raise OutOfBounds("read past the end")

    with pytest.raises(OutOfBounds):
        compare_schedules(run)


def by_seed(*values):
    """A run that returns the value with the number of the seed."""
    return lambda device: {"c": values[device.seed]}


def nan(payload):
    return np.array([0x7F800000 | payload], np.uint32).view(np.float32)


@pytest.mark.parametrize(
    ("one", "other", "values"),
    [
        (nan(1), nan(2), ("0x7f800001 (nan)", "0x7f800002 (nan)")),
        (np.array([0.0]), np.array([-0.0]), ("0x0000000000000000 (0.0)", "0x8000000000000000 (-0.0)")),
        (np.array(True), np.array(False), ("0x01 (True)", "0x00 (False)")),
        (np.int8([1, -2]), np.int8([1, -3]), ("0xfe (-2)", "0xfd (-3)")),
        (np.zeros(2, np.int8), np.zeros(3, np.int8), ("int8 (2,)", "int8 (3,)")),
        (np.zeros(0, np.int8), np.zeros(0, np.int16), ("int8 (0,)", "int16 (0,)")),
    ],
)
def test_bits_shapes_and_types_are_compared(one, other, values):
    schedules = [Schedule("random", 0), Schedule("random", 1)]
    (difference,) = compare_schedules(by_seed(one, other), schedules)
    assert str(difference.first) == f"random, seed 0: {values[0]}"
    assert str(difference.other) == f"random, seed 1: {values[1]}"
    assert difference.first.write is None
    assert not compare_schedules(by_seed(one, one.copy()), schedules)


def test_each_array_and_each_schedule_has_its_own_difference():
    def run(device):
        return {
            "a": np.arange(6).reshape(2, 3) + 10 * (np.arange(3) >= 3 - device.seed),
            "b": np.array(device.seed),
        }

    found = [(d.array, d.index, d.other.schedule.seed, d.count) for d in compare_schedules(run)]
    assert found == [("a", (0, 2), 1, 2), ("b", (), 1, 1), ("a", (0, 1), 2, 4), ("b", (), 2, 1)]


def test_differences_are_plain_json_data():
    differences = compare_schedules(runner("last_writer", np.zeros(4, np.int32), IN_32))
    data = json.loads(json.dumps(differences.to_json()))
    assert data["compared"] == [str(schedule) for schedule in SCHEDULES]
    assert data["differences"][0]["first"]["schedule"] == "lowest pc"
    assert "last_writer" in data["differences"][0]["other"]["written_by"]
    assert len(data["faults"]) == len(differences.faults)
    assert differences[0].first.bits in differences.to_text()


def test_an_unrepeatable_run_is_refused():
    calls = iter(range(100))
    with pytest.raises(UnrepeatableRunError, match="seed its random inputs"):
        compare_schedules(lambda device: np.array([next(calls)]))


def test_results_with_varying_names_are_refused():
    with pytest.raises(ShapeError, match="results a under lowest pc, but b under stack"):
        compare_schedules(lambda device: {"b" if device.schedule == "stack" else "a": np.zeros(1)})


def test_nonnumeric_results_are_refused():
    with pytest.raises(DtypeError, match="result result has elements of type object"):
        compare_schedules(lambda device: np.array([None]))


def test_a_users_device_factory_is_called():
    seen = []

    def run(device):
        seen.append(device.compute_capability)
        return np.zeros(1)

    compare_schedules(run, ["random"], device=partial(simwarp.Device, cc=(8, 0)))
    assert seen == [(8, 0)]
