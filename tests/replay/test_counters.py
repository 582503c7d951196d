"""Counters of the kernels in `examples/counters`, recorded on a GPU, equal the simulator's counts."""

import pytest

import simwarp
from simwarp.lab.recording import examples, recorded
from simwarp.lab.subjects import counters as recorder

counters = recorder.counted_kernels()
GOLDEN = recorded("counters").meta
ATOMIC = ("global atomic", "global reduction")
"""An atomic operation whose result is not used is a reduction in PTX or becomes one later, in ptxas."""
MORE_SECTORS = {
    "global/add/random": 2,
    "global/add/random, some lanes": 1,
    "global/fetch_and/random": 2,
    "global/fetch_and/random, some lanes": 1,
}
"""What the chip moved beyond the model: see docs/costs.md."""


@pytest.fixture(scope="module")
def device():
    return simwarp.Device(observe=("banks", "sectors"))


def counted(device, name):
    """The simulator's counts for a case, by the recorder's names, and the digest of its outputs."""
    device.report.clear()
    output = recorder.digest(counters.CASES[name](device))
    numbers = dict.fromkeys(recorder.METRICS, 0)
    for kind, counts in device.report.bank_conflicts.kinds.items():
        ncu_kind = "atomic" if kind == "reduction" else kind
        for what in ("requests", "wavefronts", "conflicts"):
            numbers[f"shared {ncu_kind} {what}"] += getattr(counts, what)
    for kind, counts in device.report.sectors.kinds.items():
        for what in ("requests", "sectors"):
            numbers[f"global {kind} {what}"] += getattr(counts, what)
    return numbers, output


def without_atomics_of_global_memory(numbers):
    """The counters, with requests and sectors of atomics and reductions added together."""
    others = {name: number for name, number in numbers.items() if not name.startswith(ATOMIC)}
    return others, [sum(numbers[f"{kind} {what}"] for kind in ATOMIC) for what in ("requests", "sectors")]


def test_the_recorded_counters_belong_to_the_current_kernels():
    assert GOLDEN["ptx"] == recorder.ptx_digests((9, 0)), "record again: simwarp record counters"
    assert set(GOLDEN["cases"]) == set(counters.CASES)
    assert GOLDEN["metrics"] == recorder.METRICS
    assert "NVIDIA" in GOLDEN["gpu"]["name"]


@pytest.mark.parametrize("name", counters.CASES)
def test_the_simulator_counts_as_recorded(device, name):
    golden = GOLDEN["cases"][name]
    numbers, output = counted(device, name)
    assert output == golden["output"]
    ours, (requests, sectors) = without_atomics_of_global_memory(numbers)
    ncu = dict.fromkeys(recorder.METRICS, 0) | golden["counters"]
    theirs, (requests_there, sectors_there) = without_atomics_of_global_memory(ncu)
    assert ours == theirs
    assert requests == requests_there
    assert sectors + MORE_SECTORS.get(name, 0) == sectors_there


def test_the_counters_differ_between_variants():
    def wavefronts(name):
        return GOLDEN["cases"][name]["counters"]["shared load wavefronts"]

    assert wavefronts("transpose/plain") == 32 * wavefronts("transpose/padded")
    assert wavefronts("transpose/swizzled") == wavefronts("transpose/padded")
    assert wavefronts("shared/gather_16/one for each pair") * 2 == wavefronts("shared/take_16/stride 1")


def test_bank_conflicts_are_counted_on_their_line(device):
    device.report.clear()
    counters.CASES["transpose/plain"](device)
    source = (examples("counters") / "transpose.cu").read_text().splitlines()
    reading = 1 + next(i for i, line in enumerate(source) if "elements[x][" in line)
    conflicts = device.report.bank_conflicts
    assert conflicts[f"transpose.cu:{reading}"] == conflicts.total
    assert conflicts.total == GOLDEN["cases"]["transpose/plain"]["counters"]["shared load conflicts"]
    counters.CASES["transpose/padded"](device)
    assert conflicts.total == GOLDEN["cases"]["transpose/plain"]["counters"]["shared load conflicts"]


def test_the_counted_kernel_transposes(device):
    transposed = counters.CASES["transpose/swizzled"](device)
    assert transposed[3, 5] == 5 * counters.SIDE + 3
