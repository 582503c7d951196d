"""What a wrong sum of ±1 would mean: each simple bug is recognised by its answer, and no other."""

from dataclasses import replace

import numpy as np
import pytest

import reference
from reference.types import PackedTensor
from simwarp.testing import ConvolutionDifference, assert_same_convolution
from simwarp.testing.compare import difference
from simwarp.verify import CASES, Draw, check
from simwarp.verify.cases.bconv2d import OUTPUTS, Input
from simwarp.verify.geometries import Geometry
from simwarp.verify.hypotheses import as_if, bugs_of_convolutions, bugs_of_products
from support.offenders import every_case

GEOMETRY = Geometry((2, 6, 5, 33), (3, 3, 33, 4), (2, 1), ((1, 3), (2, 0)), (1, 2))


def operands(geometry=GEOMETRY, seed=0):
    draw = Draw(seed, "hypotheses", 0)
    return tuple(
        draw.matrix(int(np.prod(shape[:3])), shape[3], "int8").reshape(shape)
        for shape in (geometry.images, geometry.filters)
    )


def signs(x):
    positive = reference.unpack_tensor(x) > 0 if isinstance(x, PackedTensor) else x >= 0
    return np.where(positive, 1, -1).astype(np.int8)


def meaning(got, geometry=GEOMETRY, given=True):
    x, w = operands(geometry)
    right = reference.bconv2d(x, w, **geometry.options)
    with pytest.raises(ConvolutionDifference) as caught:
        assert_same_convolution(
            (x, w, geometry) if given else geometry, right, got(x, w, right).astype(np.int32)
        )
    found = [line for line in str(caught.value).splitlines() if line.startswith("as if")]
    assert found == [caught.value.meaning] * bool(caught.value.meaning)
    return caught.value.meaning


def padded(mode, **options):
    def of(x, w, right):
        image = np.pad(signs(x), ((0, 0), *GEOMETRY.pads, (0, 0)), mode, **options)
        return reference.bconv2d(image, w, **{**GEOMETRY.options, "padding": "VALID"})

    return of


def moved(**changed):
    def of(x, w, right):
        options = {**GEOMETRY.options, **changed}
        return reference.bconv2d(x, w, **options)[:, : GEOMETRY.out[0], : GEOMETRY.out[1]]

    return of


def outside(right):
    return GEOMETRY.excluded[..., None] * np.ones_like(right)


MEANINGS = {
    "as if 64 bits a tap were counted, not 33": lambda x, w, right: right + (9 - outside(right)) * 31,
    "as if taps outside the image were counted, 33 each": lambda x, w, right: right + outside(right) * 33,
    "as if taps outside were counted in 2 bits": lambda x, w, right: right + outside(right) // 4 * 4 * 33,
    "as if the padding were -1": padded("constant", constant_values=-1),
    "as if the padding were +1": padded("constant", constant_values=1),
    "as if the padding wrapped to the image's other side": padded("wrap"),
    "as if the padding repeated the image's edge": padded("edge"),
    "as if padding above and below, left and right were exchanged": moved(padding=((3, 4), (0, 3))),
    "as if rows were padded as columns, and columns as rows": moved(padding=((2, 4), (1, 3))),
    "as if 1 rows were added above and 1 columns on the left": moved(padding=((1, 4), (1, 3))),
    "as if stride were 1": moved(stride=(1, 1)),
    "as if stride of rows and of columns were exchanged": moved(stride=(1, 2), padding=((1, 3), (2, 9))),
    "as if dilation were 1": moved(dilation=(1, 1)),
    "as if dilation of rows and of columns were exchanged": moved(dilation=(2, 1), padding=((1, 9), (2, 0))),
    "as if the filter were turned by 180 degrees": lambda x, w, right: reference.bconv2d(
        x, w[::-1, ::-1], **GEOMETRY.options
    ),
    "as if the filter were transposed": lambda x, w, right: reference.bconv2d(
        x, w.swapaxes(0, 1), **GEOMETRY.options
    ),
    "as if equal bits were -1 and different ones +1": lambda x, w, right: -right,
    "as if the raw popc were the sum": lambda x, w, right: ((9 - outside(right)) * 33 - right) // 2,
    "as if equal bits were counted, and different ones left out": lambda x, w, right: (
        ((9 - outside(right)) * 33 + right) // 2
    ),
}


@every_case("text", list(MEANINGS))
def test_a_bug_is_recognised_by_its_answer(text):
    assert meaning(MEANINGS[text]) == text


def test_an_answer_that_no_simple_bug_gives_has_no_meaning():
    def one_more(x, w, right):
        right = right.copy()
        right[0, 0, 0, 0] += 1
        return right

    assert meaning(one_more) == ""


def test_without_operands_only_counts_are_recognised():
    forgotten = "as if 64 bits a tap were counted, not 33"
    assert meaning(MEANINGS[forgotten], given=False) == forgotten
    assert meaning(MEANINGS["as if the padding were -1"], given=False) == ""


def test_every_bug_of_a_convolution_has_a_test():
    x, w = operands()
    right = reference.bconv2d(x, w, **GEOMETRY.options)
    texts = {f"as if {text}" for text, _ in bugs_of_convolutions(GEOMETRY, right, (x, w))}
    other = {"128 bits a tap were counted, not 33", "sums had 8 bits", "sums had 16 bits"}
    counters = {f"taps outside were counted in {bits} bits" for bits in range(3, 9)}
    assert texts == MEANINGS.keys() | {f"as if {text}" for text in other | counters}


def test_sums_of_sixteen_bits_are_recognised():
    right = np.int32([[40_000, 3]])
    got = right.astype(np.int16).astype(np.int32)
    assert as_if(bugs_of_products(65_000, right), lambda sums: np.array_equal(sums, got)) == (
        "as if sums had 16 bits"
    )


def test_several_explanations_are_named():
    geometry = Geometry((1, 1, 1, 1), (1, 1, 1, 1), padding=((0, 0), (0, 1)))
    x = w = np.ones((1, 1, 1, 1))
    right = reference.bconv2d(x, w, **geometry.options)
    with pytest.raises(ConvolutionDifference) as caught:
        assert_same_convolution((x, w, geometry), right, np.int32([[[[1], [1]]]]))
    assert caught.value.element == (0, 0, 1, 0)
    assert str(caught.value).splitlines()[1:3] == [
        "expected 0 (0x00000000), got 1 (0x00000001), 1 more: bit 0 differs",
        "as if taps outside the image were counted, 1 each, or the padding were +1, "
        "or the padding wrapped to the image's other side",
    ]


def test_groups_and_packed_operands_are_explained():
    geometry = Geometry((1, 4, 4, 80), (3, 3, 40, 6), padding=((2, 0), (0, 1)), groups=2)
    x, w = map(signs, operands(geometry))
    right = reference.bconv2d(x, w, **geometry.options)
    images = np.pad(signs(x), ((0, 0), *geometry.pads, (0, 0)), constant_values=-1)
    packed = (
        reference.pack_tensor(x, layout="NHWC"),
        reference.pack_tensor(w, layout="HWOI", word=64),
    )
    got = reference.bconv2d(images, w, padding="VALID", groups=2)
    with pytest.raises(ConvolutionDifference, match="as if the padding were -1"):
        assert_same_convolution((*packed, geometry), right, got)


def test_a_difference_of_signed_integers_is_in_decimal():
    text = difference(np.int32([2]), np.int32([-60]))
    assert "expected 2 (0x00000002), got -60 (0xffffffc4), 62 less: bits 1, 2, " in text
    assert "… (28 in all) differ" in text.splitlines()[1]
    assert "0x00000007): bit 1 differs" in difference(np.uint32([5]), np.uint32([7]))


# --------------------------------------------------------------------------------------- simwarp verify


def verified(case, numbers, wrong):
    """The first mismatch of a listing that gives ``wrong`` for some inputs."""
    changed = replace(case, answers={**case.answers, "listing": wrong})
    return next(found for k in numbers for found in check(changed, 0, k, {}, ["listing"]).mismatches)


@pytest.mark.parametrize("wanted", OUTPUTS)
def test_verify_names_the_bug_of_sums_and_of_bits(wanted):
    """The padding is -1 in the listing; for pooled and thresholded outputs, too."""
    case = CASES["bconv2d"]

    def fits(item):
        made = "int32" if item.thresholds is None else item.pool or "bits"
        return made == wanted and item.geometry.excluded.any()

    def wrong(item):
        geometry = item.geometry
        x = np.pad(signs(item.x), ((0, 0), *geometry.pads, (0, 0)), constant_values=-1)
        inside = Geometry(x.shape, geometry.filters, geometry.stride, "VALID", geometry.dilation)
        padded = Input(x, signs(item.w), inside, item.scheme, item.thresholds, item.flip, item.pool)
        return case.answers["reference"](padded)

    numbers = (k for k in range(400) if fits(case.draw(Draw(0, case.name, k))))
    found = verified(case, numbers, wrong)
    assert "the padding were -1" in found.as_if
    assert found.as_if in str(found).splitlines()
    assert (found.apart is None) == (wanted != "int32")


def test_verify_names_a_product_that_rounds_k_up():
    case = CASES["bmm"]
    k = next(k for k in range(99) if case.draw(Draw(0, "bmm", k)).sizes[2] % 32 and k // 20 % 2 == 0)
    length = case.draw(Draw(0, "bmm", k)).sizes[2]
    whole = -(-length // 32) * 32
    found = verified(case, [k], lambda item: case.answers["reference"](item) + np.int32(whole - length))
    assert found.as_if.startswith(f"as if K were {whole}, not {length}")
    assert f", {whole - length} more: bits " in str(found)
