"""Arrays that `allocate` places: on the device while it has room, else on the host, whole."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

import gpu.outofcore
from gpu.cuda_machine import CudaMachine
from gpu.outofcore import DeviceTensor, Options, Rates, allocate, copy, free
from reference.errors import (
    DtypeError,
    FormatError,
    FreedMemoryError,
    HostMemoryError,
    LaunchError,
    MachineError,
    NoGpuError,
    ShapeError,
    UnpinnedError,
)
from reference.training import error_of
from simwarp.machine import AllocationFails, CopyFails, Gpu, Link, Machine, Topology
from support.fake_gpus import gpus
from support.outofcore_calls import bfloat16

__all__ = ["gpus"]

RATES = Rates(1e-6, 5e10, 1e-6, 5e10, 5e-6, 5e13)
DTYPES = {"float32": lambda: np.float32, "float16": lambda: np.float16, "bfloat16": bfloat16}


def small(nbytes: int = 4096, **how: Any) -> Machine:
    """A machine whose device has few bytes."""
    links = (Link(1e-6, 1e10),)
    return Machine(
        Topology("small", (Gpu("small", nbytes, dict.fromkeys(DTYPES, 1e12)),), links, links), **how
    )


def kinds(arrays: list[Any]) -> list[type]:
    return [type(one) for one in arrays]


def test_arrays_lie_on_the_device_until_one_does_not_fit() -> None:
    machine = small()
    made = [allocate((256,), device=machine) for _ in range(3)]
    big = allocate((512,), device=machine)  # half of it would fit
    last = allocate((256,), device=machine)
    assert kinds([*made, big, last]) == [DeviceTensor] * 3 + [np.ndarray, DeviceTensor]
    assert (machine.budget(0), machine.pinned(), machine.pins(big)) == (0, 1, 1)
    for one in (*made, big, last):
        free(one, device=machine)
    assert (machine.budget(0), machine.pinned(), machine.allocated(0)) == (4096, 0, ())


def test_a_reserve_stays_free() -> None:
    machine = small()
    made = [allocate((256,), device=machine, reserve=1024) for _ in range(4)]
    assert kinds(made) == [DeviceTensor] * 3 + [np.ndarray]
    assert machine.budget(0) == 1024


def test_an_allocation_that_fails_lies_on_the_host() -> None:
    machine = small(injections=[AllocationFails(0)])
    found = allocate((2, 3), device=machine)
    assert type(found) is np.ndarray
    assert found.shape == (2, 3)
    assert machine.pinned() == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("places", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_a_copy_goes_from_anywhere_to_anywhere(places: tuple[int, int], dtype: str) -> None:
    machine, kind = small(seed=1, jitter=5.0), DTYPES[dtype]()
    values = np.arange(60).reshape(3, 4, 5).astype(kind)
    x, y = (allocate((3, 4, 5), kind, device=machine, reserve=0 if on else 4096) for on in places)
    assert kinds([x, y]) == [DeviceTensor if on else np.ndarray for on in places]
    copy(values, x, device=machine)
    assert copy(x, y, device=machine) is y
    found = copy(y, np.zeros_like(values), device=machine)
    np.testing.assert_array_equal(found.view(np.uint8), values.view(np.uint8))
    free(x, device=machine)
    free(y, device=machine)
    assert (machine.pinned(), machine.allocated(0)) == (0, ())


def test_parts_of_host_arrays_are_copied_without_what_is_between() -> None:
    machine, whole = small(), np.arange(120, dtype=np.float32).reshape(4, 5, 6)
    there = allocate((4, 2, 6), device=machine)
    copy(whole[:, 1:3], there, device=machine)
    back = np.zeros_like(whole)
    copy(there, back[:, 2:4], device=machine)
    np.testing.assert_array_equal(back[:, 2:4], whole[:, 1:3])
    assert not back[:, :2].any()
    assert not back[:, 4:].any()


@pytest.mark.parametrize("room", [0, 1, 2, 3, 4])
def test_calls_take_arrays_wherever_they_were_placed(room: int) -> None:
    rng = np.random.default_rng(room)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 4, 8, 8), (4, 4, 3, 3)))
    bias, machine = rng.standard_normal(4).astype(np.float32), small(1 << 16)
    given = [x, w, bias, np.zeros((2, 4, 8, 8), np.float32)]
    placed = [
        copy(
            one, allocate(one.shape, device=machine, reserve=0 if number < room else 1 << 16), device=machine
        )
        for number, one in enumerate(given)
    ]
    assert kinds(placed) == [DeviceTensor] * room + [np.ndarray] * (4 - room)
    result = gpu.outofcore.conv2d(*placed[:3], out=placed[3], activation="relu", device=machine)
    assert result is placed[3]
    found = copy(result, np.empty_like(x), device=machine)
    assert error_of("conv2d", found, x, w, bias, activation="relu") <= 1
    for one in placed:
        free(one, device=machine)
    assert (machine.pinned(), machine.allocated(0)) == (0, ())


def test_arrays_without_elements_need_no_memory() -> None:
    machine = small()
    x, y = (allocate((0, 4, 8, 8), device=machine) for _ in range(2))
    assert copy(x, y, device=machine).shape == (0, 4, 8, 8)
    free(x, device=machine)
    assert (machine.pinned(), machine.allocated(0)) == (0, ())


def test_a_copy_that_fails_leaves_only_what_was_placed() -> None:
    machine = small(injections=[CopyFails("in", 0)])
    there = allocate((8,), device=machine)
    with pytest.raises(MachineError, match="device 0"):
        copy(np.zeros(8, np.float32), there, device=machine)
    assert (machine.pinned(), machine.allocated(0)) == (0, (there.memory,))


def test_what_cannot_be_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = small()
    with pytest.raises(ShapeError, match=r"the shape is \(2, -1\)"):
        allocate((2, -1), device=machine)
    with pytest.raises(DtypeError, match="dtype is of float64"):
        allocate((2,), np.float64, device=machine)
    with pytest.raises(LaunchError, match="reserve is -1"):
        allocate((2,), device=machine, reserve=-1)
    with pytest.raises(DtypeError, match="device is"):
        allocate((2,), device=cast("Any", 0))
    with pytest.raises(HostMemoryError, match="neither the device nor the host has room"):
        allocate((1 << 60,), device=machine)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(NoGpuError, match="allocate needs a GPU"):
        allocate((2,))


def test_memory_is_freed_once_and_where_it_is() -> None:
    machine = small()
    there, here = allocate((4,), device=machine), allocate((4,), device=machine, reserve=4096)
    for one, error in ((there, FreedMemoryError), (here, UnpinnedError)):
        with pytest.raises(error):
            free(one, device=small())
        free(one, device=machine)
        with pytest.raises(error):
            free(one, device=machine)
    with pytest.raises(DtypeError, match="free of a list"):
        free([], device=machine)


def test_what_cannot_be_copied() -> None:
    machine, x = small(), np.zeros((2, 3), np.float32)
    there = allocate((2, 3), device=machine)
    frozen = np.zeros((2, 3), np.float32)
    frozen.flags.writeable = False
    for source, target, error, message in (
        (x, np.zeros((3, 2), np.float32), ShapeError, r"source has shape \(2, 3\), target \(3, 2\)"),
        (x, np.zeros((2, 3), np.float16), DtypeError, "target is of float16"),
        (x, frozen, FormatError, "target is read-only"),
        (x, x, FormatError, "target shares memory with source"),
        (there, there, FormatError, "target shares memory with source"),
        (x.T, there, FormatError, "source has strides"),
    ):
        with pytest.raises(error, match=message):
            copy(source, target, device=machine)


def test_a_gpu_s_arrays_are_placed_and_copied(gpus: Any) -> None:
    found = gpus()
    with CudaMachine(budget=4096) as machine:
        values = np.arange(512, dtype=np.float32).reshape(2, 4, 8, 8)
        there, here, last = (allocate(values.shape, device=machine) for _ in range(3))
        assert kinds([there, here, last]) == [DeviceTensor, DeviceTensor, np.ndarray]
        copy(values, there, device=machine)
        copy(there, here, device=machine)
        copy(here, last, device=machine)
        np.testing.assert_array_equal(last, values)
        w = np.ones((1, 4, 1, 1), np.float32)
        free(here, device=machine)
        y = gpu.outofcore.conv2d(there, w, device=machine, options=Options(rates=RATES, workspace=0))
        assert error_of("conv2d", y, values, w) <= 1
        for one in (there, last):
            free(one, device=machine)
        assert not machine.allocated(0)
        assert not machine.pinned()
    assert found.is_clean()
