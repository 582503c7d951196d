"""Products of bits, `gpu.bmm(kind="and")` and "or", on the simulator: schemes, operands and errors."""

import numpy as np
import pytest

import gpu
import reference
import simwarp
from gpu.bmm import pack_fsb
from gpu.bmm.schemes import EVERY_SCHEME
from reference.errors import DtypeError, FormatError, NotANumberError, SchemeError, ShapeError
from support.offenders import every_case

HOPPER, AMPERE, TURING = (9, 0), (8, 0), (7, 5)


def bits(*shape, seed=0, density=0.1):
    return np.random.default_rng(seed).random(shape) < density


def unpacked(answer):
    words = answer.words if isinstance(answer.words, np.ndarray) else answer.words.download()
    return reference.unpack(
        reference.PackedBits(words, answer.shape, answer.layout, answer.word, answer.first)
    )


def agrees(a, b, device, scheme="auto", **options):
    """Whether all three outputs of the bits of two matrices are those of the reference."""
    common = reference.bmm(a, b, kind="and", **options)
    thresholds = np.arange(common.shape[1]) % 5 - 1
    options |= {"scheme": scheme, "device": device}
    return (
        np.array_equal(gpu.bmm(a, b, kind="and", **options), common)
        and np.array_equal(unpacked(gpu.bmm(a, b, kind="or", **options)), common > 0)
        and np.array_equal(
            unpacked(gpu.bmm(a, b, kind="and", thresholds=thresholds, **options)), common >= thresholds
        )
    )


# Schemes


@pytest.mark.at_most(3)
@pytest.mark.parametrize("scheme", EVERY_SCHEME)
def test_every_scheme_of_hopper_equals_the_reference(scheme):
    a, b = bits(13, 301), bits(301, 37, seed=1)
    assert agrees(a, b, simwarp.Device(HOPPER), scheme)
    assert agrees(a.T.copy(), b, simwarp.Device(HOPPER), scheme, transpose_a=True)


@pytest.mark.at_most(2)
@pytest.mark.parametrize(
    ("chip", "scheme"),
    [
        *((TURING, scheme) for scheme in ("btc1", "btc2", "btc3")),
        (AMPERE, "mma"),
        (AMPERE, "skinny"),
        (AMPERE, "btc3"),
    ],
)
def test_tensor_cores_that_count_differing_bits_equal_the_reference(chip, scheme):
    assert agrees(bits(13, 301), bits(301, 37, seed=1), simwarp.Device(chip), scheme)


@pytest.mark.parametrize("chip", [TURING, AMPERE, HOPPER, (10, 0)])
def test_auto_has_a_scheme_on_every_chip(chip):
    assert agrees(bits(3, 70), bits(70, 9, seed=1), simwarp.Device(chip))


@pytest.mark.slow
def test_more_bits_than_a_counter_holds_are_counted():
    a, b = np.ones((1, 2**16), bool), np.ones((2**16, 1), bool)
    assert gpu.bmm(a, b, kind="and", scheme="bmm64", device=simwarp.Device())[0, 0] == 2**16


# Operands


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8"])
def test_a_bit_is_what_is_not_0_on_host_and_device(dtype):
    device, mask, b = simwarp.Device(), bits(9, 131, density=0.5), bits(131, 5, seed=1)
    values = np.array(
        [-1, 2, -128, 1] if dtype == "int8" else [-1, np.inf, -np.inf, np.finfo(dtype).tiny / 4]
    )
    zeros = np.array([0, 0] if dtype == "int8" else [0.0, -0.0])
    count = np.arange(mask.size).reshape(mask.shape)
    a = np.where(mask, values.astype(dtype)[count % 4], zeros.astype(dtype)[count % 2])
    expected = mask.astype(int) @ b.astype(int)
    assert np.array_equal(reference.bmm(a, b, kind="and"), expected)
    assert np.array_equal(gpu.bmm(a, b, kind="and", device=device), expected)
    assert np.array_equal(gpu.bmm(device.upload(a), b, kind="and").download(), expected)


def test_lists_stacks_and_words_are_accepted():
    device, b = simwarp.Device(), bits(70, 5, seed=1)
    assert gpu.bmm([[True, False], [True, True]], [[1.0], [0.0]], kind="and", device=device).tolist() == [
        [1],
        [1],
    ]
    stack = bits(3, 4, 70).astype(np.uint8)
    assert np.array_equal(gpu.bmm(stack, b, kind="and", device=device), reference.bmm(stack, b, kind="and"))
    uploaded = device.upload(stack.astype(np.float32))
    assert np.array_equal(gpu.bmm(uploaded, b, kind="and").download(), reference.bmm(stack, b, kind="and"))
    packed = reference.pack(np.where(stack[0], 1.0, -1.0), layout="column", first="lsb")
    assert np.array_equal(
        gpu.bmm(packed, b, kind="and", device=device), reference.bmm(stack[0], b, kind="and")
    )
    tiles = pack_fsb(np.where(stack[0], 1.0, -1.0), device=device)
    assert np.array_equal(
        gpu.bmm(tiles, b, kind="and", device=device), reference.bmm(stack[0], b, kind="and")
    )


@pytest.mark.at_most(2)
@pytest.mark.parametrize("scheme", ["bmm32", "btc3", "wgmma"])
def test_prepared_bits_serve_every_kind(scheme):
    device, a, b = simwarp.Device(), bits(20, 300), bits(300, 33, seed=1)
    prepared = gpu.prepare(b, "b", scheme=scheme, kind="and", device=device)
    assert np.array_equal(gpu.bmm(a, prepared, kind="and").download(), reference.bmm(a, b, kind="and"))
    assert np.array_equal(unpacked(gpu.bmm(a, prepared, kind="or")), reference.bmm(a, b, kind="or"))
    signs = np.where(b, 1.0, -1.0)
    left = np.where(a, 1.0, -1.0)
    assert np.array_equal(gpu.bmm(left, prepared).download(), reference.bmm(left, signs))


@pytest.mark.at_most(1)
@pytest.mark.parametrize("scheme", ["skinny", "wgmma"])
def test_a_boolean_product_may_be_the_next_ones_operand(scheme):
    device, a, b = simwarp.Device(), bits(9, 200, density=0.02), bits(200, 200, seed=1, density=0.02)
    step = gpu.bmm(a, b, kind="or", scheme=scheme, prepared=True, device=device)
    twice = reference.bmm(reference.bmm(a, b, kind="or"), b, kind="or")
    assert np.array_equal(unpacked(gpu.bmm(step, b, kind="or")), twice)


def test_words_of_a_boolean_product_are_the_next_ones_operand():
    device, a, b = simwarp.Device(), bits(9, 200, density=0.02), bits(200, 200, seed=1, density=0.02)
    right = gpu.prepare(b, "b", kind="or", device=device)
    step = gpu.bmm(gpu.bmm(a, right, kind="or"), right, kind="or")
    assert np.array_equal(unpacked(step), reference.bmm(reference.bmm(a, b, kind="or"), b, kind="or"))


@pytest.mark.parametrize("kind", ["and", "or"])
def test_a_recorded_call_takes_other_contents(kind):
    device, b = simwarp.Device(), bits(130, 33, seed=1).astype(np.float32)
    right = device.upload(b)
    for seed in range(3):
        a = bits(17, 130, seed=seed).astype(np.float32)
        answer = gpu.bmm(device.upload(a), right, kind=kind)
        got = answer.download() if kind == "and" else unpacked(answer)
        assert np.array_equal(got, reference.bmm(a, b, kind=kind))
        signs = gpu.bmm(device.upload(a), right).download()  # the same operands, another kind
        assert np.array_equal(signs, reference.bmm(a, b))


def test_other_types_and_scales_of_counts():
    device, a, b = simwarp.Device(), bits(20, 300), bits(300, 40, seed=1)
    common, scales = reference.bmm(a, b, kind="and"), np.linspace(-1, 2, 40, dtype=np.float32)
    assert np.array_equal(gpu.bmm(a, b, kind="and", dtype="int16", scheme="wgmma", device=device), common)
    scaled = gpu.bmm(a, b, kind="and", dtype="float32", scales=scales, scheme="wgmma", device=device)
    assert np.array_equal(scaled, common.astype(np.float32) * scales)


# Bad input


@every_case(
    ("options", "message"),
    [
        ({"kind": "xor"}, r"kind='xor'\nthis kind of product is unknown\nchoose 'xnor' .* 'and' .* 'or'"),
        ({"kind": True}, r"kind=True\n"),
        ({"kind": "or", "thresholds": [1, 1]}, r"thresholds with kind='or'\n.*\nleave thresholds out"),
        ({"kind": "or", "dtype": "int32"}, r"dtype with kind='or'\n"),
        ({"kind": "or", "scales": [1.0, 2.0]}, r"scales with kind='or'\n"),
        ({"kind": "or", "flip": [True, False]}, r"flip with kind='or'\n"),
        ({"kind": "and", "prepared": True}, "prepared=True without thresholds\n"),
        ({"kind": "or", "scheme": "btc2", "prepared": True}, "prepared=True with scheme='btc2'\n"),
    ],
)
def test_options_that_a_kind_lacks_are_refused(options, message):
    with pytest.raises(SchemeError, match=message):
        gpu.bmm(bits(3, 4), bits(4, 2), **options, device=simwarp.Device())


def test_operands_without_bits_are_refused():
    device, b = simwarp.Device(), bits(4, 2)
    a = np.ones((3, 4), np.float32)
    a[1, 2] = np.nan
    with pytest.raises(NotANumberError, match=r"a\[1, 2\] is NaN\na NaN is neither 0 nor 1\n"):
        gpu.bmm(a, b, kind="and", device=device)
    with pytest.raises(NotANumberError):
        gpu.bmm(device.upload(a), b, kind="and").download()
    with pytest.raises(DtypeError, match="a has elements of int64"):
        gpu.bmm(np.ones((3, 4), np.int64), b, kind="and", device=device)
    with pytest.raises(DtypeError, match="a has elements of bool"):
        gpu.bmm(b.T.copy(), b, device=device)
    with pytest.raises(ShapeError, match="a is not an array"):
        gpu.bmm([[True], [True, False]], b, kind="or", device=device)
    with pytest.raises(SchemeError, match=r"kind='and' is given for role='x'\n"):
        gpu.prepare(np.ones((1, 2, 2, 3)), "x", kind="and", device=device)
    with pytest.raises(SchemeError, match="kind='nor'"):
        gpu.prepare(b, "b", kind="nor", device=device)


@pytest.mark.parametrize("kind", ["and", "or"])
def test_prepared_signs_are_refused_in_products_of_bits(kind):
    """Also behind a recorded call with prepared bits of the same shape."""
    device = simwarp.Device()
    a, b = device.upload(np.eye(3, 40, dtype=np.int8)), np.eye(40, 5, dtype=np.int8)
    bits, signs = (gpu.prepare(b, "b", kind=of, device=device) for of in (kind, "xnor"))
    for _ in range(3):
        gpu.bmm(a, bits, kind=kind)
    with pytest.raises(FormatError, match=f"b was prepared as the signs of numbers\n.*\n.*kind='{kind}'"):
        gpu.bmm(a, signs, kind=kind)
    packed = gpu.prepare(reference.pack(b, layout="row"), "b", device=device)
    gpu.bmm(a, packed, kind=kind)
