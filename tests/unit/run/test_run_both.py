"""One launch on two devices: what differs, who wrote it, where the devices part, and what is not compared.

A simulated device with edited PTX stands in for the GPU; `tests/hardware/test_run_both.py` has a GPU.
"""

import os
import time
from contextlib import closing
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from reference.errors import LaunchError, NoGpuError, SchemeError
from simwarp.device.device import Device
from simwarp.faults import Race
from simwarp.run import Both, ChipTimeoutError, NotComparedError, Out, run
from simwarp.run.both import again, compare
from simwarp.run.both.devices import Apart, Here, answer, check_alike, with_equal_bytes
from simwarp.run.both.exactness import judged
from simwarp.run.kernel import run_on
from simwarp.run.source import from_text
from simwarp.run.work import Work
from support.planted_differences import (
    AGREE,
    COUNTS,
    ENDLESS,
    FLOATS,
    INTEGERS,
    PLANTED,
    RACES,
    Planted,
    check,
    edited,
    held,
    source_of,
)
from support.recorded_launches import NAMES, SCHEMES, assert_not_parted, recorded


def launch(body, args=INTEGERS, **options):
    planted = Planted(body, "", "", "", "", args=args)
    return run(source_of(planted.code), grid=1, block=64, args=args, **options)


# What differs


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_difference_is_named_to_the_element_and_the_instruction(name):
    planted = PLANTED[name]
    check(planted, held(planted, Here(Device(checks="off"))))


def test_the_report_names_counts_values_the_writer_and_the_instruction():
    compared = held(PLANTED["a wrong shift"], Here(Device(checks="off")))
    difference = compared.differences[0]
    wrong = np.count_nonzero(INTEGERS["x"] >> 3 != INTEGERS["x"] >> 4)
    assert (difference.count, difference.size, difference.first) == (wrong, 64, (1,))
    assert (difference.simulator, difference.other) == (37 >> 3, 37 >> 4)
    assert compared.writer is not None
    assert (compared.writer.warp, compared.writer.lane, compared.writer.source_file) == (0, 1, "k.cu")
    assert compared.exactness == "exact"
    part = compared.parting
    assert (part.simulator, part.other, part.type) == (37 >> 3, 37 >> 4, "b32")
    assert ", 4;" in part.executed
    lines = str(compared).splitlines()
    assert lines[0] == f"y: {wrong} of 64 elements differ, the first is y[1]"
    assert lines[1] == "4 (0x00000004) on the simulator, 2 (0x00000002) on the other device"
    data = compared.to_json()
    assert data["equal"] is False
    assert data["parting"]["place"]["lane"] == 1
    assert data["differences"][0]["bits"] == ("0x00000004", "0x00000002")
    finding = compared.finding
    assert (finding.check, finding.element, finding.place) == ("devices", "y[1]", part.place)


def test_an_index_has_the_shape_of_the_array():
    planted = PLANTED["a wrong shift"]
    shaped = replace(planted, args={**INTEGERS, "y": Out("int32", (4, 16))}, element="y[0, 1]")
    check(shaped, held(shaped, Here(Device(checks="off"))))


def test_a_difference_in_a_float_is_within_a_tolerance_or_not():
    planted = PLANTED["a rounding"]
    chip = Here(Device(checks="off"))
    assert not held(planted, chip, bisect=False).equal
    assert held(planted, chip, bisect=False, rtol=1e-6).equal
    assert held(planted, chip, bisect=False, bound=True).equal
    assert held(planted, chip, bisect=False, atol=1e-9, rtol=0.0).differences[0].count > 0
    integers = held(PLANTED["a changed constant"], chip, bisect=False, rtol=1.0)
    assert integers.differences[0].count == 64  # integers may not differ


TALLIES = {**INTEGERS, "y": np.zeros(64, INTEGERS["x"].dtype)}


@pytest.mark.parametrize(
    ("body", "args", "exactness", "reason"),
    [
        ("y[i] = x[i] ^ 85;", INTEGERS, "exact", ""),
        ("y[i] = __fdividef(x[i], 3.0f);", FLOATS, "bounded", "div.approx"),
        ("y[i] = x[i] * x[i] + x[63 - i];", FLOATS, "exact", ""),  # one fma, as NVRTC writes it
        ("atomicAdd(y, x[i]);", {**FLOATS, "y": np.zeros(64, np.float32)}, "free", "order of atomic"),
        ("atomicAdd(y + x[i] % 4, 1);", TALLIES, "exact", ""),  # integers, and nobody reads the old one
        ("atomicMax(y, x[i]); atomicXor(y + 1, x[i]);", TALLIES, "exact", ""),
        ("if (i < 32) y[atomicAdd(y, 1) + 1] = i;", TALLIES, "free", "order of atomic"),
        ("atomicExch(y, x[i]);", TALLIES, "free", "order of atomic"),
        ("y[i] = x[i] + clock() % 2 * 0 + (clock() < 0);", INTEGERS, "free", "clock"),
    ],
)
def test_the_result_is_called_exact_bounded_or_free(body, args, exactness, reason):
    planted = Planted(body, r"st\.global|(atom|red)\.global", "", "", "", args=args)
    source = source_of(planted.code)
    work = Work(source, source.kernel(), (1, 1, 1), (64, 1, 1), args)
    result = run(source, grid=1, block=64, args=args)
    plain = with_equal_bytes(work)
    grade, reasons = judged(again.exactness(lambda device: answer(device, plain), Device, None))
    assert grade == exactness
    assert all(reason in one for one in reasons)
    assert bool(reasons) == (exactness != "exact")
    assert result.both is None


# One of the legal answers

SUM = 'extern "C" __global__ void k(float* y, const float* x) { atomicAdd(y, x[threadIdx.x]); }'
THIRDS = {"y": np.zeros(1, np.float32), "x": (np.arange(64, dtype=np.float32) % 7) / 3}


def summed(other, **options):
    device = Both(other, **options)
    return run(source_of(SUM), grid=1, block=64, args=THIRDS, device=device).both


def test_a_sum_that_another_schedule_gives_is_legal():
    plain = summed(Device(schedule="random", seed=3))
    assert (plain.equal, plain.legal, plain.schedules) == (False, "", 0)
    found = summed(Device(schedule="random", seed=3), schedules=3)
    assert found.equal
    assert found.finding is None
    seed = int(found.legal.removeprefix("random, seed "))
    assert 1 <= seed <= 3
    again = run(source_of(SUM), grid=1, block=64, args=THIRDS, device=Device(schedule="random", seed=seed))
    assert again.outputs["y"][0] == found.differences[0].other
    assert str(found).splitlines()[-1] == f"one of the legal answers: schedule random, seed {seed} gives it"
    assert (found.to_json()["equal"], found.to_json()["legal"]) == (True, f"random, seed {seed}")


def test_a_sum_that_no_schedule_gives_differs():
    source = source_of(SUM)
    other = edited(source, r"add\.f32(\s+%f\d+, \[)", r"exch.b32\1")
    work = Work(source, source.kernel(), (1, 1, 1), (64, 1, 1), THIRDS)
    chip, both = Here(Device(checks="off")), Both(schedules=2)
    found = compare.hold(work, run_on(Device(), work), both, chip, Device, other_source=other)
    assert not found.equal
    assert found.finding is not None
    assert "none of 2 other schedules gives the other device's bits" in str(found)


def test_without_atomic_operations_no_other_schedule_is_tried():
    found = held(PLANTED["a rounding"], Here(Device(checks="off")), bisect=False, schedules=2)
    assert (found.equal, found.legal, found.schedules) == (False, "", 0)
    assert "schedule" not in str(found)


# What agrees


@pytest.mark.parametrize("name", AGREE)
def test_equal_devices_agree(name):
    result = launch(AGREE[name], FLOATS, device=Both(Device(), bisect=True))
    assert result.both.equal, str(result.both)
    assert result.both.parting is None
    assert str(result.both) == "y, x: equal bits on both devices"


@pytest.mark.parametrize("name", AGREE)
def test_equal_devices_do_not_part(name):
    """The records of a warp are equal, though the addresses of the two devices differ."""
    args = {**FLOATS, "y": np.full(64, 7, np.float32)}
    source = source_of(Planted(AGREE[name], "", "", "", "", args=FLOATS).code)
    assert_not_parted(Work(source, source.kernel(), (1, 1, 1), (64, 1, 1), args), Here(Device(checks="off")))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_recorded_launches_agree_and_do_not_part(name):
    chip = Here(Device(checks="off"))
    for work in recorded(name):
        compared = compare.hold(work, run_on(Device(), work), Both(bisect=True), chip, Device)
        assert compared.equal, f"{work.kernel.name}\n{compared}"
        if name not in SCHEMES or work.kernel.name == "bmm32":
            assert_not_parted(work, chip)


def test_unwritten_elements_are_alike_and_said():
    result = launch("if (i < 60) y[i] = x[i];", device=Both(Device()))
    assert result.both.equal
    assert "4 of 64 elements were never written, the first is y[60]" in result.both.unwritten[0]
    assert (result.outputs["y"][60:].view(np.uint8) == 0xA5).all()


def test_an_element_that_only_the_other_device_writes_has_no_writer_here():
    planted = Planted(
        'asm volatile("{.reg .pred p; setp.gt.s32 p, %1, 50; @p st.global.u32 [%0], %1;}"'
        ' :: "l"(y + i), "r"(x[i]) : "memory");',
        *(r"@p st\.global", "st.global", "y[0]", "@p st.global", "guard"),
    )
    compared = held(planted, Here(Device(checks="off")))
    check(planted, compared)
    assert compared.writer is None
    assert compared.differences[0].unwritten
    assert ", where the launch did not write it, 0 (0x00000000) on the other device" in str(compared)


def test_variables_have_their_initial_values_in_each_launch():
    """A GPU keeps the variables of a module that it has loaded: each launch loads another text."""
    loaded = []

    class Keeps(Device):
        def load(self, ptx):
            loaded.append(ptx.text)
            return super().load(ptx)

    device, args, c = Keeps(), {"y": Out("int32", 4)}, np.array([5, 6], np.int32)
    for _ in range(2):
        result = run(COUNTS, grid=1, block=4, args=args, set={"c": c}, device=Both(device))
        assert result.both.equal
        assert result.outputs["y"].tolist() == [9] * 4
    assert len(set(loaded)) == 2


# What is not compared


@pytest.mark.parametrize("name", RACES)
def test_a_kernel_with_a_race_is_refused(name):
    args = {**INTEGERS, "y": np.zeros(64, np.int32)}
    with pytest.raises(NotComparedError, match="is not compared: the simulator has") as caught:
        launch(RACES[name], args, device=Both(Device(checks="off")))
    assert isinstance(caught.value.faults[0], Race)
    with pytest.raises(NotComparedError, match="is not compared"):
        launch(RACES[name], args, device=Both(Device(checks="off")), checks="report")
    result = launch(RACES[name], args, device=Both(Device(checks="off"), anyway=True))
    assert result.both.ignored[0].startswith("race: ")
    assert str(result.both).startswith("compared in spite of race: ")


def test_a_chip_that_lacks_the_target_is_refused():
    source = from_text("__global__ void k(int* y) { y[0] = 1; }", cc=(9, 0))
    with pytest.raises(LaunchError, match=r"for sm_90, .* is sm_80\nthe target needs sm_90 or later\n.*8\.0"):
        run(source, grid=1, block=1, args=[Out("int32", 1)], device=Both(Device(cc=(8, 0))))


def test_gpus_of_several_kinds_are_refused():
    h200, t4 = ("NVIDIA H200", (9, 0)), ("Tesla T4", (7, 5))
    check_alike([h200, h200])
    with pytest.raises(
        SchemeError, match=r"differ \(0: NVIDIA H200, sm_90, 1: Tesla T4, sm_75\)\n.*\nname it: "
    ):
        check_alike([h200, t4])


def test_settings_that_exclude_each_other_are_refused():
    with pytest.raises(SchemeError, match="equal bits allow no tolerance"):
        Both(bits=True, rtol=1e-3)
    with pytest.raises(SchemeError, match="bits=True with bound\n"):
        Both(bits=True, bound=True)
    with pytest.raises(SchemeError, match="bound=True with rtol\nthe arithmetic's bound is a tolerance, too"):
        Both(bound=True, rtol=1e-3)
    with pytest.raises(SchemeError, match="give 0 for none"):
        Both(schedules=-1)
    with pytest.raises(SchemeError, match="give a positive number"):
        Both(seconds=0)
    device = Device()
    with pytest.raises(SchemeError, match="x is an array on a device"):
        launch("y[i] = x[i];", {**INTEGERS, "x": device.upload(INTEGERS["x"])}, device=Both(device))


def test_without_a_gpu_an_error_says_so(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(NoGpuError, match="no CUDA device can be used"):
        launch("y[i] = x[i];", device="both")


# The process of the GPU


def _endless_device():
    return Device(checks="off", instruction_budget=None)


def _no_device():
    raise NoGpuError("no GPU here\nnone at all")


class _Dies(Device):
    def load(self, ptx):
        os._exit(7)


@pytest.fixture
def apart(request):
    with closing(Apart(request.param, 60.0)) as chip:
        yield started(chip)


@pytest.mark.slow
@pytest.mark.parametrize("apart", [partial(Device, checks="off")], indirect=True)
def test_a_device_in_a_process_of_its_own_answers_as_one_here(apart):
    assert apart.compute_capability == (9, 0)
    for name in ("another warp", "a device function"):
        check(PLANTED[name], held(PLANTED[name], apart))
    source = source_of(PLANTED["a rounding"].code)
    work = with_equal_bytes(Work(source, source.kernel(), (1, 1, 1), (64, 1, 1), FLOATS, shared=10**7))
    with pytest.raises(LaunchError, match="dynamic shared memory") as here:
        answer(Device(), work)
    with pytest.raises(LaunchError) as there:  # and the process lives
        apart.answer(work)
    assert str(there.value) == str(here.value)
    check(PLANTED["a rounding"], held(PLANTED["a rounding"], apart))
    process = apart._process
    apart.close()
    assert process.poll() is not None


@pytest.mark.slow
@pytest.mark.parametrize("apart", [_endless_device], indirect=True)
def test_a_kernel_that_hangs_on_the_chip_ends_with_its_time(apart):
    apart._seconds = 1.0
    start = time.monotonic()
    with pytest.raises(ChipTimeoutError, match=r"k did not end on .* within 1 seconds\n.*context with it\n"):
        held(ENDLESS, apart)
    assert time.monotonic() - start < 30
    assert apart._process.poll() is not None


@pytest.mark.slow
def test_a_process_without_a_device_or_that_dies_is_an_error():
    for make, kind, text in (
        (_no_device, NoGpuError, "no GPU here"),
        (partial(_Dies), NotComparedError, "exit code 7"),
    ):
        chip = Apart(make, 60.0)
        with closing(chip), pytest.raises(kind, match=text):
            held(PLANTED["a rounding"], started(chip))
        assert chip._process.poll() is not None


def started(chip):
    chip.start()
    return chip


def _simulated():
    return Device(checks="off")


@pytest.mark.slow
def test_run_holds_a_launch_against_a_device_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setattr("simwarp.run.both.devices.first_gpu", _simulated)
    kernel = "__global__ void k(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }"
    args = {"x": np.arange(4, dtype=np.float32), "y": Out("float32", 4)}
    both = run(kernel, grid=1, block=4, args=args, device="both").both
    assert both.equal
    assert both.other == "simwarp simulator (sm_90)"


@pytest.mark.slow
def test_the_process_ends_with_its_parent():
    with closing(started(Apart(_endless_device, 60.0))) as chip:
        chip._process.stdin.close()  # what the end of this process does
        assert chip._process.wait(20) == 1
