"""Stacks of matrices: `gpu.bmm`, `gpu.pack` and `gpu.prepare` of three axes, on the simulator."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpu
import reference
import simwarp
from gpu.cuda import CudaArray
from reference.errors import FormatError, NotANumberError, ShapeError
from reference.types import PackedBits
from simwarp.device import DeviceArray
from support.rules import rule

RNG = np.random.default_rng(18)
DEVICES = {cc: simwarp.Device(cc) for cc in ((7, 5), (9, 0), (10, 0))}
"""By capability: bit tensor cores, warpgroups, and CUDA cores."""
SIDE = st.one_of(st.integers(1, 5), st.sampled_from((31, 33, 64)))
COUNT = st.sampled_from((None, 1, 2, 3))


def operand(count, rows, columns):
    return RNG.standard_normal((rows, columns) if count is None else (count, rows, columns), np.float32)


def stacked_rule(dots, **form):
    """Bits of a stack against thresholds."""
    thresholds, flip = rule(dots.shape[2], 40)
    words = [reference.threshold(each, thresholds, flip, **form).words for each in dots]
    return (thresholds, flip), np.stack(words)


@pytest.mark.gate
@settings(max_examples=20)
@given(
    st.tuples(SIDE, SIDE, SIDE),
    COUNT,
    COUNT,
    st.sampled_from(sorted(DEVICES)),
    st.tuples(*[st.booleans()] * 4),
)
def test_every_stack_equals_the_reference(sizes, of_a, of_b, cc, choices):
    (m, n, k), (transpose_a, transpose_b, prepare_a, prepare_b) = sizes, choices
    if None not in (of_a, of_b):
        of_b = of_a
    a = operand(of_a, *((k, m) if transpose_a else (m, k)))
    b = operand(of_b, *((n, k) if transpose_b else (k, n)))
    left, right, device = a, b, DEVICES[cc]
    if prepare_a:
        left = gpu.prepare(a, "a", transpose=transpose_a, device=device)
    if prepare_b:
        right = gpu.prepare(b, "b", transpose=transpose_b, device=device)
    c = gpu.bmm(left, right, transpose_a=transpose_a, transpose_b=transpose_b, device=device)
    expected = reference.bmm(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    np.testing.assert_array_equal(np.asarray(c), expected, strict=True)


@pytest.mark.parametrize(("transpose_a", "transpose_b"), list(itertools.product([False, True], repeat=2)))
def test_the_reference_multiplies_stacks_matrix_by_matrix(transpose_a, transpose_b):
    a, b = operand(3, 4, 70), operand(3, 70, 5)
    expected = np.stack([reference.bmm(x, y) for x, y in zip(a, b, strict=True)])
    a, b = a.swapaxes(1, 2) if transpose_a else a, b.swapaxes(1, 2) if transpose_b else b
    options = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    np.testing.assert_array_equal(reference.bmm(a, b, **options), expected, strict=True)
    packed = reference.pack(a, layout="row"), reference.pack(b, word=64, first="lsb")
    np.testing.assert_array_equal(reference.bmm(*packed, **options), expected, strict=True)
    one = reference.bmm(a[0], b, **options), reference.bmm(a, b[0], **options)
    np.testing.assert_array_equal(one[0][0], expected[0], strict=True)
    np.testing.assert_array_equal([x[0] for x in one], [expected[0]] * 2, strict=True)


@pytest.mark.parametrize("layout", ["row", "column"])
@pytest.mark.parametrize("word", [32, 64])
def test_a_stack_is_packed_as_its_matrices_are(layout, word):
    x = operand(3, 35, 67)
    packed = reference.pack(x, layout=layout, word=word)
    of_each = [reference.pack(each, layout=layout, word=word).words for each in x]
    np.testing.assert_array_equal(packed.words, of_each, strict=True)
    np.testing.assert_array_equal(reference.unpack(packed), reference.binarize(x), strict=True)
    found = gpu.pack(x, layout=layout, word=word, device=DEVICES[9, 0])
    assert (found.shape, found.layout) == (x.shape, layout)
    np.testing.assert_array_equal(found.words, packed.words, strict=True)


@pytest.mark.parametrize("scheme", ["bmm32", "bmms64", "btc1", "btc3", "mma", "skinny", "wgmma"])
def test_packed_stacks_of_every_form_are_multiplied(scheme):
    device, known = DEVICES[9, 0], gpu.bmm.schemes.EVERY_SCHEME[scheme]
    a, b = operand(2, 9, 133), operand(2, 133, 7)
    form = {"word": known.word, "first": known.first}
    packed = (
        gpu.pack(device.upload(a), layout="column", **form),
        gpu.pack(device.upload(b), layout="row", **form),
    )
    c = gpu.bmm(*packed, scheme=scheme)
    assert isinstance(c, DeviceArray)
    np.testing.assert_array_equal(c.download(), reference.bmm(a, b), strict=True)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("scheme", ["bmm32", "btc3", "wgmma"])
@pytest.mark.parametrize("of_b", [None, 3])
def test_bits_of_a_stack_are_the_next_product_s_a(scheme, of_b):
    device = DEVICES[9, 0]
    a, b, w = operand(3, 5, 40), operand(of_b, 40, 35), operand(None, 35, 4)
    first = gpu.bmm.schemes.EVERY_SCHEME[scheme].first
    (thresholds, flip), words = stacked_rule(reference.bmm(a, b), first=first)
    bits = gpu.bmm(a, b, thresholds=thresholds, flip=flip, scheme=scheme, device=device)
    assert (bits.shape, bits.layout) == ((3, 5, 35), "column")
    np.testing.assert_array_equal(bits.words, words, strict=True)
    c = gpu.bmm(bits, w, scheme=scheme, device=device)
    np.testing.assert_array_equal(c, reference.bmm(bits, w), strict=True)


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("of_b", [None, 3])
def test_every_output_of_warpgroups_is_stacked(of_b):
    device, a, b = DEVICES[9, 0], operand(3, 5, 40), operand(of_b, 40, 35)
    dots = reference.bmm(a, b)
    for dtype in (np.int16, np.float16):
        c = gpu.bmm(a, b, scheme="wgmma", dtype=dtype, device=device)
        np.testing.assert_array_equal(c, dots.astype(dtype), strict=True)
    (thresholds, flip), words = stacked_rule(dots, first="lsb")
    lines = gpu.bmm(a, b, scheme="wgmma", thresholds=thresholds, flip=flip, prepared=True, device=device)
    assert lines.shape == (3, 5, 35)
    np.testing.assert_array_equal(lines.ones.download(), np.bitwise_count(words).sum(1))
    w = operand(None, 35, 4)
    expected = reference.bmm(PackedBits(words, (3, 5, 35), "column", first="lsb"), w)
    np.testing.assert_array_equal(gpu.bmm(lines, w).download(), expected, strict=True)


def launched(device, *operands, **options):
    before = device.launches
    gpu.bmm(*operands, **options)
    return device.launches - before


@pytest.mark.slow
def test_warpgroups_take_a_stack_in_one_launch_and_other_schemes_matrix_by_matrix():
    device = simwarp.Device((9, 0))
    a, b, one, few = (
        gpu.prepare(operand(*shape), role, device=device)
        for shape, role in (((4, 20, 20), "a"), ((4, 20, 20), "b"), ((None, 20, 20), "b"), ((4, 20, 9), "b"))
    )
    rule_of_n = tuple(map(device.upload, (np.zeros(20, np.int32), np.zeros(20, np.uint8))))
    assert launched(device, a, b) == launched(device, a, one) == 1
    assert launched(device, a, one, thresholds=rule_of_n[0], flip=rule_of_n[1]) == 1
    assert launched(device, a, few) == 4  # skinny
    assert launched(device, a, b, scheme="btc2") == launched(device, a, b, scheme="mma") == 4
    assert launched(device, a, one, scheme="btc2") == 1


def test_products_of_a_stack_are_captured():
    device, x, y = simwarp.Device((9, 0)), operand(3, 4, 20), operand(3, 20, 6)
    a, b = gpu.prepare(x, "a", device=device), gpu.prepare(y, "b", device=device)
    with device.capture() as graph:
        c = gpu.bmm(a, b)
    graph.launch()
    np.testing.assert_array_equal(c.download(), reference.bmm(x, y))


def test_stacks_that_do_not_fit_are_refused():
    device = DEVICES[9, 0]
    a, b = operand(2, 3, 4), operand(3, 4, 5)
    with pytest.raises(ShapeError, match=r"a is a stack of 2 matrices and b one of 3\n"):
        gpu.bmm(a, b, device=device)
    with pytest.raises(ShapeError, match="stacks of the same number of matrices"):
        reference.bmm(a, b)
    with pytest.raises(ShapeError, match="K is 4 in one and 3 in the other"):
        gpu.bmm(a, a, device=device)
    with pytest.raises(
        FormatError, match=r"a stack of 2 3 x 4 matrices packed column-major-32 has uint32 \(2, 1, 3\)"
    ):
        gpu.bmm(PackedBits(np.zeros((1, 3), np.uint32), (2, 3, 4), "column"), b[0], device=device)
    a[1, 2, 3] = np.nan
    with pytest.raises(NotANumberError, match=r"a\[1, 2, 3\] is NaN"):
        gpu.bmm(a, b[:2], device=device)


def test_a_view_begins_at_an_offset():
    device = simwarp.Device()
    x = device.upload(np.arange(12, dtype=np.int32).reshape(3, 4))
    row = x.view((4,), offset=16)
    assert (row.pointer - x.pointer, row.download().tolist()) == (16, [4, 5, 6, 7])
    row.upload(np.zeros(4, np.int32))
    assert x.download()[1].tolist() == [0] * 4
    assert row.view((2,), offset=8).pointer == x.pointer + 24
    for offset in (-4, 36):
        with pytest.raises(ShapeError, match=f"needs 16 bytes from byte {offset} on, the array has 48"):
            x.view((4,), offset=offset)
    fresh = device.allocate((3, 4), np.int32)
    fresh.view((4,), offset=16).upload(np.zeros(4, np.int32))
    assert fresh.unwritten().tolist() == [[True] * 4, [False] * 4, [True] * 4]
    assert not fresh.view((4,), offset=16).unwritten().any()


def test_a_view_on_a_gpu_begins_at_an_offset():
    memory = CudaArray(None, 4096, (3, 4), np.dtype(np.int32))
    row = memory.view((4,), offset=16)
    assert (row.pointer, row.shape, row.dtype) == (4096 + 16, (4,), np.int32)
    for offset in (-4, 36):
        with pytest.raises(ShapeError, match=f"needs 16 bytes from byte {offset} on, the array has 48"):
            memory.view((4,), offset=offset)
