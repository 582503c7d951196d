"""The case "bconv2d": its inputs, its tiers, and its explanation of a wrong element."""

import hashlib
import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import gpu
import reference
from gpu.bconv.schemes import EVERY_SCHEME, SCHEMES
from reference.types import PackedTensor
from simwarp.lab import recording as lab
from simwarp.verify import CASES, Draw, check, simulator
from simwarp.verify.cases import bconv2d
from simwarp.verify.cases.bconv2d import OUTPUTS, Input, dots, meaning, picture
from simwarp.verify.draw import DTYPES
from simwarp.verify.geometries import Geometry
from simwarp.verify.geometry_classes import LARGE_CLASSES, SMALL_CLASSES, classes_of
from support.unrecorded import UNRECORDED

CASE = CASES["bconv2d"]
SIMULATORS = {"simulator": simulator}


def drawn(k, seed=0):
    return CASE.draw(Draw(seed, CASE.name, k))


@pytest.fixture(scope="module")
def items():
    return [drawn(k) for k in range(CASE.covering)]


def output(item):
    return "int32" if item.thresholds is None else item.pool or "bits"


def kinds(item):
    return tuple("packed" if isinstance(x, PackedTensor) else "real" for x in (item.x, item.w))


# ------------------------------------------------------------------------------------------------ inputs


def test_the_first_704_inputs_cover_all_combinations(items):
    tried = {(item.scheme, SMALL_CLASSES[k % 11], output(item), kinds(item)) for k, item in enumerate(items)}
    both = list(itertools.product(["real", "packed"], repeat=2))
    assert tried == set(itertools.product(SCHEMES, SMALL_CLASSES, OUTPUTS, both))
    assert len(items) == len(tried)


def test_every_input_belongs_to_its_class(items):
    for k, item in enumerate(items):
        assert SMALL_CLASSES[k % 11] in classes_of(item.geometry)


@pytest.mark.slow
def test_every_class_is_drawn_20_times_for_every_scheme():
    counts = Counter((drawn(k).scheme, SMALL_CLASSES[k % 11]) for k in range(1200))
    assert min(counts[pair] for pair in itertools.product(SCHEMES, SMALL_CLASSES)) >= 20
    assert min(Counter(drawn(k).scheme for k in range(1200)).values()) >= 300


def test_most_geometries_differ(items):
    assert len({CASE.shape(item) for item in items}) > 600


def test_pooled_outputs_have_a_window(items):
    for item in items:
        assert item.pool is None or min(item.geometry.out) >= 2


def test_operands_have_the_shapes_of_the_geometry(items):
    for item in items:
        assert (item.x.shape, item.w.shape) == (item.geometry.images, item.geometry.filters)
    real = [x for item in items for x in (item.x, item.w) if not isinstance(x, PackedTensor)]
    assert {str(x.dtype) for x in real} == set(DTYPES)
    assert any(np.signbit(x[x == 0]).any() for x in real if x.dtype.kind == "f")


def test_packed_operands_equal_those_of_the_reference(items):
    seen = set()
    for x in (x for item in items for x in (item.x, item.w) if isinstance(x, PackedTensor)):
        signs = 2 * reference.unpack_tensor(x).astype(np.int8) - 1
        again = reference.pack_tensor(signs, layout=x.layout, word=x.word, first=x.first)
        assert (x.words.dtype, x.words.shape) == (again.words.dtype, again.words.shape)
        np.testing.assert_array_equal(x.words, again.words)
        assert x.words.flags.c_contiguous
        seen.add((x.layout, x.word))
    assert seen == {*itertools.product(["NHWC", "HWOI"], [32, 64]), ("HWNC-FSB", 32), ("HWOI-FSB", 32)}


def test_thresholds_often_equal_a_dot_product(items):
    ruled = [item for item in items if item.thresholds is not None]
    assert any(item.thresholds.max() == 2**31 - 1 for item in ruled)
    assert any(item.thresholds.min() == -(2**31) for item in ruled)
    on_edge = sum((dots(item) == item.thresholds).any() for item in ruled[:100])
    assert on_edge > 50


def test_drawn_inputs_are_pinned():
    assert [CASE.describe(drawn(k)) for k in (0, 9, 30)] == PINNED


PINNED = [
    "bconv32, int8 by float64 to int32: 4 x 7 x 5 x 13 by 4 x 3 to 33 channels, padding VALID, "
    "stride 2,2, dilation 2,2",
    "bconv64, float16 by float64 to bits pooled by or: 4 x 4 x 4 x 129 by 3 x 2 to 2 channels, "
    "padding SAME, stride 3,1, dilation 2,6",
    "btc1, packed NHWC by packed HWOI to bits pooled by and: 3 x 2 x 4 x 64 by 2 x 3 to 32 channels, "
    "padding ((1,2),(3,5)), stride 3,1, dilation 1,2",
]


# --------------------------------------------------------------------------------------------- answers


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("25", "4")
@pytest.mark.parametrize("k", [*range(16), 20, 25, 34, 43, 54, 63])
def test_all_tiers_agree(k):
    found = check(CASE, 0, k, SIMULATORS)
    assert [str(mismatch) for mismatch in found.mismatches] == []
    assert set(found.seconds) == {"reference", "listing", "simulator"}


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("2-cc0", "3-cc0", "6-*")
@pytest.mark.parametrize("cc", [(7, 5), (8, 0)])
@pytest.mark.parametrize("k", [2, 3, 6, 11])
def test_older_chips_agree_with_the_reference(k, cc):
    item = drawn(k)
    right = CASE.answers["reference"](item)
    np.testing.assert_array_equal(CASE.answers["gpu"](item, simulator(cc=cc)), right)


def with_wrong_element(answer, element, flip=1):
    honest = CASE.answers[answer]

    def wrong(item, *device):
        result = honest(item, *device).copy()
        result[element] ^= flip
        return result

    return replace(CASE, answers={**CASE.answers, answer: wrong})


def first_with(condition):
    return next(k for k in itertools.count() if condition(drawn(k)))


def test_a_wrong_integer_is_explained_in_words():
    k = first_with(lambda item: output(item) == "int32" and item.geometry.excluded.any())
    item = drawn(k)
    n, p, q, o = element = tuple(size - 1 for size in dots(item).shape)
    (found,) = check(with_wrong_element("gpu", element), 0, k, SIMULATORS, ["simulator"]).mismatches
    taps = item.geometry.filters[0] * item.geometry.filters[1]
    outside = int(item.geometry.excluded[p, q])
    products = (taps - outside) * item.geometry.images[3]
    dot = int(dots(item)[element])
    assert found.element == element
    assert found.meaning == (
        f"channel {o} of output pixel ({p}, {q}) of image {n}: {outside} of {taps} taps outside, "
        f"popc {(products - dot) // 2} of {products}, so {dot}"
    )
    assert found.place.kernel == item.scheme
    assert str(found).splitlines()[2] == f"replay: {found.command}"
    assert found.command == f"simwarp verify --case bconv2d --seed 0 --input {k}"


def test_a_wrong_listing_is_located():
    k = first_with(lambda item: output(item) == "int32")
    (found,) = check(with_wrong_element("listing", (0, 0, 0, 0)), 0, k, SIMULATORS, ["listing"]).mismatches
    assert found.tier == "listing"
    assert "Conv2d" in found.place.kernel


@pytest.mark.parametrize("pool", ["bits", "or", "and"])
def test_a_wrong_bit_is_explained_in_words(pool):
    k = first_with(lambda item: output(item) == pool and item.geometry.filters[3] > 5)
    item = drawn(k)
    element = tuple(size - 1 for size in CASE.answers["reference"](item)[..., :1].shape)
    (found,) = check(with_wrong_element("gpu", element, 1 << 5), 0, k, SIMULATORS, ["simulator"]).mismatches
    n, p, q, _ = element
    step = 1 if pool == "bits" else 2
    assert found.bits == (5,)
    assert meaning(item, element, 5) == (n, p * step, q * step, 5)
    assert found.meaning.startswith(
        f"bit of channel 5 of output pixel ({p * step}, {q * step}) of image {n}: "
    )
    assert f"; threshold {item.thresholds[5]}{' flipped' * bool(item.flip[5])}" in found.meaning
    assert ("pooled by" in found.meaning) == (pool != "bits")


def test_a_wrong_padding_bit_is_explained_in_words():
    k = first_with(lambda item: output(item) == "bits" and item.geometry.filters[3] < 20)
    (found,) = check(
        with_wrong_element("gpu", (0, 0, 0, 0), 1 << 30), 0, k, SIMULATORS, ["simulator"]
    ).mismatches
    assert found.meaning == "bit of channel 30 of output pixel (0, 0) of image 0, which is padding"


def test_the_picture_shows_the_window_of_an_element():
    geometry = Geometry((1, 3, 3, 4), (3, 3, 4, 1), padding="SAME")
    x, w = np.ones(geometry.images, np.int8), np.ones(geometry.filters, np.int8)
    text = picture(Input(x, w, geometry), (0, 2, 0, 0), 0)
    assert "output pixel (2, 0)" in text
    assert "5 of 9 taps are outside" in text
    assert text.splitlines()[-1] == "result: 16 - 2 x 0 = 16"


def test_an_input_is_described_in_words():
    geometry = Geometry((1, 3, 3, 4), (3, 3, 4, 2), padding="SAME")
    x, w = np.ones(geometry.images, np.int8), np.ones(geometry.filters, np.float16)
    rule = np.zeros(2, np.int32), np.zeros(2, bool)
    assert CASE.describe(Input(x, w, geometry, "btc1", *rule, "or")) == (
        "btc1, int8 by float16 to bits pooled by or: 1 x 3 x 3 x 4 by 3 x 3 to 2 channels, "
        "padding SAME, stride 1,1, dilation 1,1"
    )


def test_kernels_of_every_scheme_and_output_are_named():
    names = CASE.kernels((9, 0))
    for scheme in SCHEMES:
        own = [name for name in names if f"-DSCHEME={scheme} " in f"{name} "]
        assert {kind for kind in ("INT", "BITS") if any(f"OUTPUT_{kind}" in name for name in own)} == {
            "INT",
            "BITS",
        }
        assert {"NONE", "OR", "AND"} == {name.partition("POOL_")[2].split()[0] for name in own}
    assert len(set(names.values())) == len(names)
    assert all(len(digest) == 64 for digest in names.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "schemes", "classes", "least"),
    [
        ("bconv2d", SCHEMES, SMALL_CLASSES, 1_000),
        ("bconv2d-windows", EVERY_SCHEME, LARGE_CLASSES, 2_000),
    ],
    ids=["small", "windows"],
)
def test_the_recording_holds_20000_geometries_without_mismatch(case, schemes, classes, least):
    """The first outputs of ``simwarp record bconv2d-geometries`` equal the reference."""
    if f"{case}-geometries" in UNRECORDED:
        pytest.skip("no GPU has answered yet: record it")
    recorded = lab.recorded(f"{case}-geometries").meta
    assert recorded["geometries"] >= 20_000
    assert recorded["mismatches"] == 0
    assert min(recorded["schemes"].values()) >= 4_000
    assert set(recorded["schemes"]) == set(schemes)
    assert set(recorded["outputs"]) == set(OUTPUTS)
    assert min(recorded["classes"][name] for name in classes) >= least
    digest = hashlib.sha256()
    for k in range(recorded["first"]):
        answer = CASES[case].answers["reference"](CASES[case].draw(Draw(recorded["seed"], case, k)))
        digest.update(np.ascontiguousarray(answer).tobytes())
    assert digest.hexdigest() == recorded["digest_of_first"]


WINDOWS = CASES["bconv2d-windows"]


def windows(count, seed=1):
    return [WINDOWS.draw(Draw(seed, WINDOWS.name, k)) for k in range(count)]


def test_the_first_560_windows_cover_all_combinations():
    tried = {
        (item.scheme, LARGE_CLASSES[k // 5 % 7], output(item), kinds(item))
        for k, item in enumerate(windows(WINDOWS.covering))
    }
    both = list(itertools.product(["real", "packed"], repeat=2))
    assert tried == set(itertools.product(EVERY_SCHEME, LARGE_CLASSES, OUTPUTS, both))
    assert len(tried) == WINDOWS.covering


def test_the_recorded_windows_have_every_edge():
    """Those of ``simwarp record bconv2d-windows``: the papers' first layers, the edges of copies, groups."""
    found = Counter[str]()
    for item in windows(240):
        geometry = item.geometry
        (rows, columns), taps = geometry.filters[:2], geometry.filters[0] * geometry.filters[1]
        (top, bottom), sides = geometry.pads
        found[f"{rows} x {columns} at {geometry.stride[0]}"] += 1
        found[f"1 x 17: {(rows, columns) == (1, 17)}"] += 1
        found.update(f"edge {n}" for n in {rows, columns} & {15, 16, 17})
        found[f"wgmma {max(rows, columns)}"] += item.scheme == "wgmma"
        found[f"groups: {geometry.groups > 1}, {item.scheme}"] += 1
        found[f"only below: {bottom > 0 and not any((top, *sides))}"] += 1
        found[f"wholly outside: {bool((geometry.excluded == taps).any())}"] += 1
        reach = zip(geometry.filters, geometry.dilation, geometry.pads, strict=False)
        found[f"dilation beyond padding: {any(n > 1 and d > max(p) > 0 for n, d, p in reach)}"] += 1
        found.update(classes_of(geometry))
    assert min(found[name] for name in ("11 x 11 at 4", "7 x 7 at 2", "1 x 17: True")) >= 5
    assert min(found[name] for name in ("edge 15", "edge 16", "edge 17", "wgmma 15")) >= 5
    assert min(found[f"groups: True, {scheme}"] for scheme in EVERY_SCHEME) >= 10
    assert min(found[f"{name}: True"] for name in ("only below", "wholly outside")) >= 10
    assert found["dilation beyond padding: True"] >= 10
    assert min(found[name] for name in (*LARGE_CLASSES, *OF_WINDOWS)) >= 20


OF_WINDOWS = ("window larger than the image", "stride larger than the filter", "padding beyond the filter")


@pytest.mark.slow
def test_listings_take_windows_in_groups():
    grouped = {output(item): item for item in windows(140) if item.geometry.groups > 1}
    assert grouped.keys() == set(OUTPUTS)
    for item in grouped.values():
        right = WINDOWS.answers["reference"](item)
        np.testing.assert_array_equal(WINDOWS.answers["listing"](item), right)


def test_the_case_is_registered_with_its_tiers():
    assert [case.name for case in bconv2d.CASES] == [
        "bconv2d",
        "bconv2d-wgmma",
        "bconv2d-groups",
        "bconv2d-windows",
    ]
    assert bconv2d.CASES[0] is CASE
    assert set(CASE.answers) == {"reference", "listing", "gpu"}
    assert hasattr(gpu, "bconv2d")


def test_a_mismatch_shows_the_window():
    """The last element is wrong; the report ends with a picture of its window."""

    def wrong(item):
        answer = CASE.answers["reference"](item).copy()
        answer.flat[-1] += 2
        return answer

    case = replace(CASE, answers={**CASE.answers, "listing": wrong})
    (mismatch,) = check(case, 0, 0, {}, ["listing"]).mismatches
    _, p, q, _ = mismatch.element
    assert f"output pixel ({p}, {q})" in mismatch.picture
    assert str(mismatch).endswith(mismatch.picture)
