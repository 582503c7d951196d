"""Products of floats in machine code: the words of NumPy, which computes what machine code does not."""

import subprocess
import sys

import numpy as np
import pytest

import simwarp
from simwarp.floats.formats import FORMATS
from simwarp.lab.recording import recorded
from simwarp.lab.subjects import tiles
from simwarp.products import floating, floats, machine_code, rule_of
from simwarp.products.machine_code import Kind, kind_of

KINDS = {
    "f16": ((9, 0), ("f32", "f16", "f16", "f32"), (16, 8, 16)),
    "f16 to f16": ((9, 0), ("f16", "f16", "f16", "f16"), (16, 8, 16)),
    "f16 of two sums": ((8, 0), ("f16", "f16", "f16", "f32"), (16, 16, 16)),
    "f16 of four sums": ((7, 0), ("f32", "f16", "f16", "f16"), (16, 16, 16)),
    "bf16": ((9, 0), ("f32", "bf16", "bf16", "f32"), (16, 8, 16)),
    "tf32": ((9, 0), ("f32", "tf32", "tf32", "f32"), (16, 8, 8)),
    "e4m3 as f16": ((9, 0), ("f32", "e4m3", "e5m2", "f32"), (16, 8, 32)),
    "e5m2 as f16, to f16": ((9, 0), ("f16", "e5m2", "e4m3", "f16"), (16, 8, 32)),
    "e4m3": ((8, 9), ("f32", "e4m3", "e4m3", "f32"), (16, 8, 32)),
    "e4m3 of a warpgroup": ((9, 0), ("f32", "e4m3", "e5m2", "f32"), (64, 24, 32)),
}
every_kind = pytest.mark.parametrize("name", KINDS)
F16 = KINDS["f16"]


def any_words(format, shape, rng):
    return rng.integers(0, 1 << (8 * format.word.itemsize), shape, dtype=np.uint64)


def spread(width):
    """Words whose exponents are at most ``width`` from the middle, or any, with zeros among them."""

    def words(format, shape, rng):
        low = format.fraction_bits + format.padding
        most = format.largest >> format.fraction_bits
        field = np.clip(most // 2 + rng.integers(-width, width + 1, shape), 0, most - 1)
        magnitude = (field << low) + rng.integers(0, 1 << low, shape)
        return magnitude * (rng.integers(0, 8, shape) > 0) | rng.integers(0, 2, shape) * format.sign

    return words


def ends(largest):
    """Words of subnormal and of the least normal numbers, or of the largest; zeros of either sign."""

    def words(format, shape, rng):
        low = format.fraction_bits + format.padding
        magnitude = rng.integers(0, 3 << low, shape) * rng.integers(0, 2, shape)
        top = format.largest << format.padding
        return (top - magnitude if largest else magnitude) | rng.integers(0, 2, shape) * format.sign

    return words


DRAWS = {"any": any_words, "near": spread(3), "far": spread(300), "least": ends(False), "largest": ends(True)}


def drawn(kind, draw, rng, count):
    _, types, (m, n, k) = kind
    formats, shapes = [FORMATS[name] for name in types[1:]], ((m, k), (k, n), (m, n))
    a, b, c = (draw(f, (count, *s), rng).astype(f.word) for f, s in zip(formats, shapes, strict=True))
    half = count // 2  # products that cancel, sometimes all but the last bit
    a[:half, :, 1::2] = a[:half, :, ::2] ^ a.dtype.type(formats[0].sign)
    last = (rng.integers(0, 4, b[:half, ::2].shape) == 0).astype(b.dtype) << formats[1].padding
    b[:half, 1::2] = b[:half, ::2] ^ last
    c[: half // 2] &= c.dtype.type(formats[2].sign)  # the sum is then that of products alone
    return a, b, c


def compare(kind, draw, rng, count):
    """Compare all tiles that are not left to NumPy; returns how many there are."""
    cc, types, shape = kind
    operands = drawn(kind, draw, rng, count)
    d, outside = kind_of(types, rule_of(cc, types, shape)).multiply(*operands)
    expected = floating.in_numpy(*operands, types, rule_of(cc, types, shape))
    wrong = np.argwhere((d != expected) & ~outside[:, None, None])
    assert wrong.size == 0, (wrong[0], d[tuple(wrong[0])], expected[tuple(wrong[0])])
    return int(np.count_nonzero(~outside))


@every_kind
def test_machine_code_gives_the_words_of_numpy(name):
    rng = np.random.default_rng(len(name))
    counts = {draw: compare(KINDS[name], DRAWS[draw], rng, 40) for draw in DRAWS}
    assert counts["near"] == 40
    assert counts["least"] == 40


@every_kind
@pytest.mark.gate
def test_machine_code_gives_the_words_of_numpy_in_a_million_tiles(name):
    rng = np.random.default_rng(1)
    for _ in range(100):
        for draw in DRAWS.values():
            compare(KINDS[name], draw, rng, 2000)


@pytest.fixture
def at_once(monkeypatch):
    """Kinds that are compiled for their first product."""
    kinds = {}
    monkeypatch.setattr(machine_code, "PAYS", 0)
    monkeypatch.setattr(floating, "kind_of", lambda *of: kinds.setdefault(of, Kind(*of)))
    return kinds


@pytest.mark.parametrize("name", ["f16", "e4m3 as f16"])
def test_tiles_with_infinities_and_nan_are_those_of_numpy(at_once, name):
    cc, types, shape = kind = KINDS[name]
    rule = rule_of(cc, types, shape)
    a, b, c = drawn(kind, spread(3), np.random.default_rng(5), 8)
    c[3, 2, 1], c[5, 0, 0], a[6, 1, 1] = 0x7F800000, 0x7FC01234, FORMATS[types[1]].nan
    d = floats(a, b, c, types, rule)
    assert np.array_equal(d, floating.in_numpy(a, b, c, types, rule))
    assert d[5, 0, 0] == 0x7FFFFFFF
    assert next(iter(at_once.values())).multiply(a, b, c)[1].tolist() == [i in (3, 5, 6) for i in range(8)]


def test_leading_axes_broadcast_and_operands_may_be_views(at_once):
    a, b, c = drawn(F16, spread(3), np.random.default_rng(6), 6)
    a, b, c = a.reshape(2, 3, 16, 16), b[:3].swapaxes(-1, -2).copy().swapaxes(-1, -2), c[:1]
    rule = rule_of(*F16)
    assert np.array_equal(floats(a, b, c, F16[1], rule), floating.in_numpy(a, b, c, F16[1], rule))
    assert at_once


FLOATS = [o for o in tiles.OPCODES if tiles.kind_of(o).startswith("floats") and "f64" not in o]


@pytest.mark.parametrize("opcode", FLOATS)
def test_recorded_tiles_equal_machine_code(at_once, opcode):
    made = tiles.by_hand.tiles(opcode)
    device = simwarp.Device(cc=(9, 0))
    tiles.check(opcode, made, recorded("tiles").arrays[opcode], tiles.answers(device, opcode, made))
    assert at_once


# ---- what is left to NumPy -----------------------------------------------------------------------------


def test_machine_code_is_made_once_it_pays(at_once, monkeypatch):
    monkeypatch.setattr(machine_code, "PAYS", 3 * 16 * 8 * 16)
    made = []
    monkeypatch.setattr(machine_code, "module", lambda *of: made.append(of) or "define broken")
    operands, rule = drawn(F16, spread(3), np.random.default_rng(7), 2), rule_of(*F16)
    for compiled in (0, 0, 1, 1):
        floats(*operands, F16[1], rule)
        assert len(made) == compiled


@pytest.mark.parametrize("missing", ["llvmlite", "a text that LLVM takes"])
def test_without_machine_code_numpy_computes(at_once, monkeypatch, missing):
    if missing == "llvmlite":
        monkeypatch.setattr(machine_code, "llvm", lambda: None)
    else:
        monkeypatch.setattr(machine_code, "module", lambda *_: "define broken")
    operands, rule = drawn(F16, spread(3), np.random.default_rng(8), 2), rule_of(*F16)
    assert np.array_equal(floats(*operands, F16[1], rule), floating.in_numpy(*operands, F16[1], rule))
    assert next(iter(at_once.values())).code is None


@pytest.mark.parametrize(
    ("form", "columns", "taken"), [(F16, 8, True), (F16, 3, False), (((8, 0), F16[1], (8, 8, 4)), 8, False)]
)
def test_shapes_without_vectors_and_chains_of_fma_stay_with_numpy(at_once, form, columns, taken):
    kind = Kind(form[1], rule_of(*form))
    assert kind.pays(1, 16, columns, form[2][2]) == taken


def test_importing_simwarp_does_not_load_llvm():
    code = "import sys, simwarp, simwarp.products; sys.exit('llvmlite' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
