"""The ±1 product through a ring of asynchronous copies, on the simulator: every chip, tile and edge."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gpu
import reference
import simwarp
from gpu.bmm import RING_SCHEMES
from gpu.bmm import product as product_module
from gpu.bmm.schemes import product_ptx
from gpu.compile import compile
from reference.errors import FormatError, NotANumberError, SchemeError
from simwarp.faults import CopyInFlight, MemoryFault, Race, UninitialisedRead
from simwarp.verify import CASES, Draw
from support.rules import rule

MMA = RING_SCHEMES["mma"]
ARCHITECTURES = [(8, 0), (8, 6), (8, 9), (9, 0)]
SIZES = [
    (1, 1, 1),
    (8, 8, 128),
    (7, 9, 127),
    (17, 31, 4099),
    (3, 2, 10007),
    (64, 64, 1024),
    (1, 257, 2049),
    (129, 1, 641),
    (131, 130, 1153),
]
INT32 = np.iinfo(np.int32)
SOURCES = Path(gpu.__file__).parent / "bmm"


def values(rows, columns, k=0, dtype="float32"):
    return Draw(0, "test_gpu_mma", k).matrix(rows, columns, dtype)


def device_of(tile, cc=(8, 0), **options):
    """A device of so few multiprocessors, or so many, that a product takes this tile."""
    return simwarp.Device(cc, multiprocessors={"large": 1, "small": 132}[tile], **options)


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.singly
@pytest.mark.parametrize("tile", ["large", "small"])
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("sizes", SIZES)
def test_every_size_chip_and_tile_equals_the_reference(sizes, arch, tile):
    (m, n, k), device = sizes, device_of(tile, arch)
    a, b = values(m, k), values(k, n, 1)
    dots = reference.bmm(a, b)
    np.testing.assert_array_equal(gpu.bmm(a, b, scheme="mma", device=device), dots, strict=True)
    thresholds, flip = rule(n, k)
    packed = gpu.bmm(a, b, scheme="mma", thresholds=thresholds, flip=flip, device=device)
    assert (packed.shape, packed.layout, packed.word, packed.first) == ((m, n), "column", 32, "lsb")
    expected = reference.threshold(dots, thresholds, flip, word=32, first="lsb").words
    np.testing.assert_array_equal(packed.words, expected, strict=True)


@pytest.mark.at_most(1)
@pytest.mark.gate_cases("5003-random-small", "1025-random-large")
@pytest.mark.parametrize("tile", ["large", "small"])
@pytest.mark.parametrize("schedule", ["stack", pytest.param("random", marks=pytest.mark.slow)])
@pytest.mark.parametrize("k", [1, 1025, 5003])
def test_the_ring_is_right_under_every_schedule(k, schedule, tile):
    a, b = values(33, k), values(k, 17, 1)
    c = gpu.bmm(a, b, scheme="mma", device=device_of(tile, schedule=schedule))
    np.testing.assert_array_equal(c, reference.bmm(a, b))


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_transposed_packed_and_prepared_operands_equal_the_reference(transpose_a, transpose_b):
    m, n, k = 37, 35, 200
    a = values(*((k, m) if transpose_a else (m, k)), dtype="int8")
    b = values(*((n, k) if transpose_b else (k, n)), 1, "float16")
    options = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    device, dots = simwarp.Device((8, 9)), reference.bmm(a, b, **options)
    p = reference.pack(a, layout="row" if transpose_a else "column", first="lsb")
    on_device = replace(p, words=device.upload(p.words))
    q = gpu.prepare(b, "b", scheme="mma", transpose=transpose_b, device=device)
    other = gpu.prepare(b, "b", scheme="btc2", transpose=transpose_b, device=device)  # the same form
    for x, y in ((a, b), (p, b), (on_device, q), (a, other)):
        c = gpu.bmm(x, y, **options, scheme="mma", device=device)
        np.testing.assert_array_equal(c if isinstance(c, np.ndarray) else c.download(), dots)
    c = gpu.bmm(device.upload(a), q, **options)  # "auto" chooses the same
    np.testing.assert_array_equal(c.download(), dots)


@pytest.mark.at_most(2)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_extreme_dot_products_and_thresholds_are_exact(arch):
    k, device = 1000, simwarp.Device(arch)
    a = np.repeat([[1], [-1]], k, 1).astype(np.int8)
    assert gpu.bmm(a, a, transpose_b=True, scheme="mma", device=device).tolist() == [[k, -k], [-k, k]]
    thresholds = np.array([INT32.min, -k - 1, -k, -k + 1, 0, k, k + 1, INT32.max])
    b = np.ones((k, 8), np.int8)
    packed = gpu.bmm(a, b, scheme="mma", thresholds=thresholds, device=device)
    assert [f"{word:08b}" for word in packed.words[0]] == ["00111111", "00000111"]


def test_output_bits_are_the_left_operand_of_the_next_product():
    device = simwarp.Device((8, 0))
    a, b, c = values(40, 70), values(70, 45, 1), values(45, 50, 2)
    first = gpu.bmm(device.upload(a), b, scheme="mma", thresholds=np.zeros(45, np.int32))
    signs = np.where(reference.bmm(a, b) >= 0, 1, -1).astype(np.int8)
    np.testing.assert_array_equal(gpu.bmm(first, c, scheme="mma").download(), reference.bmm(signs, c))


# How it runs


@pytest.mark.parametrize("tile", ["large", "small"])
def test_copies_and_fragments_have_no_bank_conflict(tile):
    device = device_of(tile, observe="banks")
    a, b = (
        gpu.prepare(values(*shape), role, scheme="mma", device=device)
        for role, shape in (("a", (70, 2100)), ("b", (2100, 65)))
    )
    before = device.report.bank_conflicts.total  # of the kernels that pack
    gpu.bmm(a, b, scheme="mma")
    opcodes = device.report.bank_conflicts.opcodes
    for name in ("cp.async.cg.shared.global", "ldmatrix.sync.aligned.m8n8.x4.shared.b16"):
        assert opcodes[name].requests > 0
        assert opcodes[name].conflicts == 0
    assert device.report.bank_conflicts.total == before


@pytest.mark.at_most(2)
@pytest.mark.parametrize("output", ["int", "bits"])
@pytest.mark.parametrize("tile", [MMA, MMA.smaller], ids=["large", "small"])
def test_kernels_use_the_instructions_of_the_chip(tile, output):
    for arch in ARCHITECTURES:
        text = product_ptx(tile, output, "lsb", arch).text
        operation = "and" if arch >= (9, 0) else "xor"
        products = [line for line in text.splitlines() if "mma.sync" in line]
        assert products
        assert all(f"m16n8k256.row.col.s32.b1.b1.s32.{operation}.popc" in line for line in products)
        assert "cp.async.cg.shared.global" in text
        assert "wait_group 0" not in text  # never for the copies that were started last
        assert text.count("wait_group 1") == 2


def test_a_ring_fits_the_shared_memory_of_every_chip():
    assert [tile.shared for tile in (MMA, MMA.smaller)] == [98304, 49152]
    assert MMA.shared <= 99 * 1024  # the most for a block of sm_86 and sm_89


def test_outputs_with_fewer_tiles_than_multiprocessors_take_the_smaller_tile():
    assert MMA.fitted(128, 128, 1) is MMA
    assert MMA.fitted(1280, 1281, 108) is MMA
    assert MMA.fitted(1280, 1280, 108) is MMA.smaller
    assert MMA.smaller.fitted(1, 1, 108) is MMA.smaller
    assert MMA.launch(129, 128) == ((2, 1, 1), (256, 1, 1))
    assert MMA.smaller.launch(129, 128) == ((6, 1, 1), (128, 1, 1))


@pytest.mark.at_most(1)
@pytest.mark.parametrize("schedule", ["lowest pc", "stack", pytest.param("random", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("line", "replacement", "kind"),
    [
        ('"n"(stages - 2)', '"n"(stages - 1)', CopyInFlight),
        ("    __syncthreads();", "    __syncwarp();", (Race, UninitialisedRead, CopyInFlight)),
        ("fetch_step(s + stages - 1);", "fetch_step(s + stages);", UninitialisedRead),
        ("commit();  //", "if (s < steps) commit();  //", CopyInFlight),
        ("line < x.lines && piece < x.k_pieces;", "line < x.lines;", MemoryFault),
    ],
)
def test_a_mutant_of_the_ring_is_found(line, replacement, kind, schedule, monkeypatch):
    ring = (SOURCES / "ring.cuh").read_text()
    assert ring.count(line) == 1
    include = '#include "bmm/ring.cuh"'
    source = (SOURCES / "btc.cu").read_text().replace(include, ring.replace(line, replacement))

    def mutant(scheme, output, first, arch, *, common):
        assert not common
        defines = {**scheme.macros, f"OUTPUT_{output.upper()}": "", f"FIRST_{first.upper()}": ""}
        return compile(source, "mutant.cu", defines, arch)

    monkeypatch.setattr(product_module, "product_ptx", mutant)
    with pytest.raises(kind):
        gpu.bmm(
            values(40, 2900), values(2900, 30, 1), scheme="mma", device=device_of("small", schedule=schedule)
        )


# Bad input


def test_chips_and_operands_that_do_not_fit_are_refused():
    device, a, b = simwarp.Device((8, 0)), values(5, 70), values(70, 6, 1)
    with pytest.raises(SchemeError, match=r"scheme='mma' on sm_75\n.*sm_80\nchoose btc2"):
        gpu.bmm(a, b, scheme="mma", device=simwarp.Device((7, 5)))
    with pytest.raises(FormatError, match="mma takes 'lsb'"):
        gpu.bmm(reference.pack(a, layout="column"), b, scheme="mma", device=device)
    b[3, 4] = np.nan
    with pytest.raises(NotANumberError, match=r"b\[3, 4\] is NaN"):
        gpu.bmm(a, b, scheme="mma", device=device)


def test_the_harness_records_both_tiles():
    names = CASES["bmm-mma"].kernels((9, 0))
    assert sum("-DSTAGES=3" in name for name in names) == 4
