"""The pipelines of warpgroups in `examples/pipelines` are right under all schedules; mutants are found."""

from functools import cache, partial

import numpy as np
import pytest

import simwarp
from simwarp.faults import (
    BarrierFault,
    CopyInFlight,
    Livelock,
    MissingProxyFence,
    ProductInFlight,
    Race,
    UninitialisedRead,
    WrongDescriptor,
)
from simwarp.lab import recording as lab
from simwarp.testing import assert_same_bits
from support.pipeline_mutants import mostly_gate

example = partial(lab.example, "pipelines")
pipelines, b1, f16 = map(example, ("pipelines", "gemm_wgmma_b1", "gemm_wgmma_f16"))
FOLDER = lab.examples("pipelines")
SCHEDULES = ["lowest pc", "stack", "random"]
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)
RAGGED = ((1, 1, 1), (7, 9, 8), (128, 128, 64), (129, 3, 257), (3, 130, 400))


def signs(m, n, k, seed=5):
    """Random operands, True for +1, and the product of ±1."""
    random = np.random.default_rng(seed)
    a, b = (random.integers(0, 2, shape).astype(bool) for shape in ((m, k), (k, n)))
    return a, b, np.where(a, 1.0, -1.0) @ np.where(b, 1.0, -1.0)


def halves(m, n, k, seed=5):
    """Random operands of multiples of 1/8, and their product."""
    random = np.random.default_rng(seed)
    a, b = (random.integers(-16, 16, shape) for shape in ((m, k), (k, n)))
    return *((x / 8).astype(np.float16) for x in (a, b)), a.astype(np.float64) @ b / 64


def assert_right(module, shape, schedule="lowest pc", **options):
    a, b, c = (signs if module is b1 else halves)(*shape)
    dtype = np.int32 if module is b1 else np.float32
    device = simwarp.Device((9, 0), schedule=schedule)
    assert_same_bits(c.astype(dtype), module.gemm(device, a, b, **options))


@pytest.mark.at_most(2)
@pytest.mark.pairwise
@every_schedule
@pytest.mark.parametrize("shape", RAGGED)
@pytest.mark.parametrize("module", [b1, f16], ids=["b1", "f16"])
def test_products_equal_numpy(module, shape, schedule):
    assert_right(module, shape, schedule)


@pytest.mark.at_most(1)
@pytest.mark.singly
@every_schedule
@pytest.mark.parametrize(("stages", "blocks"), [(2, 1), (3, 3), (5, 2)])
def test_products_of_bits_take_any_number_of_stages_and_blocks(stages, blocks, schedule):
    assert_right(b1, (140, 260, 1100), schedule, stages=stages, blocks=blocks)


@pytest.mark.at_most(1)
@pytest.mark.singly
@every_schedule
@pytest.mark.parametrize(("stages", "blocks"), [(2, 1), (3, 2)])
def test_products_of_halves_take_any_number_of_stages_and_blocks(stages, blocks, schedule):
    assert_right(f16, (140, 130, 150), schedule, stages=stages, blocks=blocks)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("module", [b1, f16], ids=["b1", "f16"])
def test_products_run_on_a_gpu_too(module, simwarp_device):
    a, b, c = (signs if module is b1 else halves)(200, 150, 300)
    assert np.array_equal(c, module.gemm(simwarp_device, a, b))


@pytest.mark.at_most(1)
@pytest.mark.parametrize("module", [b1, f16], ids=["b1", "f16"])
def test_stages_are_filled_while_others_are_read(module):
    """The turns of the ring, from the copies' start to the end of the products that read a stage."""
    device = simwarp.Device((9, 0), observe="pipeline")
    k = 6 * (1024 if module is b1 else 64)
    module.gemm(device, *(signs if module is b1 else halves)(4, 4, k)[:2], stages=3)
    turns = device.report.pipeline.turns
    assert len(turns) == 6
    assert len({turn.stage for turn in turns}) == 3
    assert all(turn.bytes == 2 * 128 * 128 for turn in turns)
    assert turns[1].issued < turns[0].filled
    assert all(turn.issued < turn.filled <= turn.read_from < turn.read_to for turn in turns)
    assert all(turns[i].read_to < turns[i + 3].issued < turns[i + 2].read_to for i in range(3))


# ---- each wait, release and fence is needed ------------------------------------------------------------


@cache
def mutant(name, line, replacement):
    """The PTX of a kernel with its headers, one line of which is replaced."""
    source = (FOLDER / f"{name}.cu").read_text()
    for header in ("warpgroups.cuh", "wgmma.cuh"):
        source = source.replace(f'#include "{header}"', (FOLDER / header).read_text())
    assert source.count(line) == 1
    return pipelines.compiled(source.replace(line, replacement), "mutant.cu", (9, 0), {"STAGES": 2})


def run_mutant(module, line, replacement, schedule, monkeypatch, shape):
    """The mutant's result with two stages and one block, and the right one."""
    monkeypatch.setattr(module, "ptx", lambda name, *_: mutant(name, line, replacement))
    a, b, c = (signs if module is b1 else halves)(*shape)
    return module.gemm(simwarp.Device((9, 0), schedule=schedule), a, b, 2, 1), c


OF_RING = {
    "too few bytes expected": ("sizeof(Stage));", "sizeof(Stage) / 2);", (BarrierFault, CopyInFlight)),
    "too many bytes expected": ("sizeof(Stage));", "sizeof(Stage) + 16);", Livelock),
    "consumers wait for the wrong parity": (
        "wait(ring.full[turn.stage], turn.parity);",
        "wait(ring.full[turn.stage], turn.parity ^ 1);",
        (CopyInFlight, UninitialisedRead, Livelock),
    ),
    "the producer waits for the wrong parity": ("turn.parity ^ 1);", "turn.parity);", Livelock),
    "the producer does not wait": (
        "wait(ring.empty[turn.stage], turn.parity ^ 1);",
        "",
        (CopyInFlight, BarrierFault),
    ),
    "the last stage is not released": ("release(ring, previous);  //", "//", Livelock),
    "stages are released while products read them": (
        "wait_products<1>();",
        "wait_products<2>();",
        CopyInFlight,
    ),
    "one warpgroup releases for both": (
        "&ring.empty[i], consumers",
        "&ring.empty[i], 1",
        (CopyInFlight, Livelock),
    ),
    "no wgmma.fence": ("fence_registers();\n        mul", "mul", ProductInFlight),
    "no wait before the epilogue": ("wait_products<0>();", "", ProductInFlight),
    "products without a group": ("commit();\n        wait", "wait", CopyInFlight),
    "barriers are used before they exist": ("    __syncthreads();\n", "", (BarrierFault, Race)),
}


@pytest.mark.at_most(1)
@mostly_gate
@pytest.mark.parametrize("mistake", OF_RING)
def test_mutants_of_the_ring_are_found(mistake, schedule, monkeypatch):
    line, replacement, kind = OF_RING[mistake]
    with pytest.raises(kind):
        run_mutant(b1, line, replacement, schedule, monkeypatch, (4, 140, 4000))


OF_OUTPUT = {
    "no fence.proxy.async": ("ptx::fence_proxy_async(ptx::space_shared);", "", MissingProxyFence),
    "results overwrite those that copies still read": (
        "if (first) ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());",
        "",
        CopyInFlight,
    ),
    "one thread copies before all have written": (
        "sync_group();\n    if (first) {",
        "if (first) {",
        Race,
    ),
    "threads write before the copies have read": ("sync_group();\n#pragma", "\n#pragma", CopyInFlight),
    "no wait at the end": ("ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());", ";", CopyInFlight),
}


@pytest.mark.at_most(1)
@mostly_gate
@pytest.mark.parametrize("mistake", OF_OUTPUT)
def test_mutants_of_the_output_are_found(mistake, schedule, monkeypatch):
    line, replacement, kind = OF_OUTPUT[mistake]
    with pytest.raises(kind):
        run_mutant(f16, line, replacement, schedule, monkeypatch, (20, 140, 70))


@pytest.mark.at_most(1)
@every_schedule
def test_a_descriptor_that_leaves_the_pattern_of_the_swizzle_is_found(schedule, monkeypatch):
    with pytest.raises(WrongDescriptor):
        run_mutant(
            b1, "a + at / 16, b + at / 16", "a + at / 8, b + at / 8", schedule, monkeypatch, (4, 4, 900)
        )


@pytest.mark.at_most(2)
@every_schedule
@pytest.mark.parametrize("module", [b1, f16], ids=["b1", "f16"])
def test_products_without_the_swizzle_of_the_maps_are_found(module, schedule, monkeypatch):
    with pytest.raises(WrongDescriptor):
        run_mutant(module, "1ull << 62", "0ull << 62", schedule, monkeypatch, (4, 4, 130))


@pytest.mark.at_most(1)
@pytest.mark.parametrize(
    ("module", "line", "replacement"),
    [
        (f16, "(byte ^ y % 8 * 16)", "byte"),
        (f16, "describe(stage.b, box_bytes, atom)", "describe(stage.b, atom, atom)"),
    ],
    ids=["results unswizzled", "leading offset"],
)
def test_a_layout_that_two_sides_do_not_share_gives_wrong_numbers(module, line, replacement, monkeypatch):
    """No check can know that the tile is another one than the kernel means; the result is wrong."""
    found, expected = run_mutant(module, line, replacement, "lowest pc", monkeypatch, (70, 140, 130))
    assert not np.array_equal(found, expected)
