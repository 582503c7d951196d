"""`conv_geometries`: members of every class, small ones first, and a comparison that draws the window."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

import reference
from reference.errors import SchemeError
from simwarp.testing import strategies
from simwarp.testing.compare import assert_same_convolution
from simwarp.testing.geometries import conv_geometries
from simwarp.verify.draw import Draw
from simwarp.verify.geometries import Geometry, window_picture
from simwarp.verify.geometry_classes import CLASSES, SMALL_CLASSES, classes_of, draw_geometry

ONE = Geometry((1, 1, 1, 1), (1, 1, 1, 1))


def smallest(strategy, condition=lambda drawn: True):
    quick = settings(max_examples=300, derandomize=True, database=None, phases=(Phase.generate, Phase.shrink))
    return find(strategy, condition, settings=quick)


def happens(strategy, condition):
    find(
        strategy,
        condition,
        settings=settings(max_examples=300, derandomize=True, database=None, phases=(Phase.generate,)),
    )


def drawn(count, seed=0):
    return [draw_geometry(Draw(seed, "geometries", k), CLASSES[k % len(CLASSES)]) for k in range(count)]


# -------------------------------------------------------------------------------------------- geometries


@given(geometry=conv_geometries())
def test_geometries_resolve_as_in_the_reference(geometry):
    resolved = reference.conv_geometry(geometry.images, geometry.filters, **geometry.options)
    assert geometry.out == (resolved.out_height, resolved.out_width)
    assert (geometry.pads[0][0], geometry.pads[1][0]) == (resolved.pad_top, resolved.pad_left)
    np.testing.assert_array_equal(geometry.excluded, reference.excluded_taps(resolved))


@given(geometry=conv_geometries())
def test_geometries_are_small_enough_for_a_simulator(geometry):
    (n, h, w, c), (r, s, _, o) = geometry.images, geometry.filters
    assert n <= 9
    assert c == geometry.filters[2] <= 5000
    assert o <= 40
    assert max(h, w, *geometry.out) <= 40
    assert r * s * np.prod(geometry.out) <= 4000


def test_strategy_and_counter_draw_from_the_same_recipes():
    class Fixed:
        """A draw that always makes the same choice."""

        def __init__(self, turn):
            self.turn = turn

        def integer(self, low, high):
            return low + self.turn % (high - low + 1)

        def choice(self, options):
            return options[self.turn % len(options)]

    for turn in range(5):
        for name in CLASSES:
            assert name in classes_of(draw_geometry(Fixed(turn), name))


# ---------------------------------------------------------------------------------------------- classes


@pytest.mark.at_most(2)
@pytest.mark.parametrize("name", CLASSES)
@settings(max_examples=30)
@given(data=st.data())
def test_members_belong_to_their_class(name, data):
    assert name in classes_of(data.draw(conv_geometries(name)))


@pytest.mark.slow
def test_counter_draws_cover_every_class_and_differ():
    geometries = drawn(2200)
    for k, geometry in enumerate(geometries):
        assert CLASSES[k % len(CLASSES)] in classes_of(geometry)
        reference.conv_geometry(geometry.images, geometry.filters, **geometry.options)  # which checks it
    assert len(set(geometries)) > 2000


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_is_drawn_without_being_named(name):
    happens(conv_geometries(), lambda geometry: name in classes_of(geometry))
    happens(conv_geometries(), lambda geometry: name not in classes_of(geometry))


@pytest.mark.gate
def test_every_drawn_geometry_has_a_class():
    counts = Counter(name for geometry in drawn(1980) for name in classes_of(geometry))
    assert all(counts[name] >= 100 for name in CLASSES)
    assert all(classes_of(geometry) for geometry in drawn(1100))


@pytest.mark.parametrize(
    ("geometry", "names"),
    [
        (ONE, {"no border", "1x1", "odd batch", "prime and tiny channels"}),
        (Geometry((2, 6, 6, 6), (3, 3, 6, 6), padding="SAME"), {"interior"}),
        (Geometry((2, 6, 6, 6), (3, 3, 6, 6)), {"no border"}),
        (Geometry((2, 6, 6, 6), (2, 2, 6, 6), padding="SAME"), {"interior", "asymmetric padding"}),
        (Geometry((2, 6, 6, 6), (2, 3, 6, 6), (3, 1)), {"no border", "stride larger than the filter"}),
        (
            Geometry((2, 6, 6, 6), (2, 2, 6, 6), padding=((2, 2), (0, 0))),
            {"interior", "padding beyond the filter"},
        ),
        (
            Geometry((2, 2, 6, 6), (3, 1, 6, 6), padding=((2, 2), (0, 0)), dilation=(2, 1)),
            {"window larger than the image", "dilation that skips the image", "all border"},
        ),
    ],
    ids=lambda given: str(given) if isinstance(given, Geometry) else "",
)
def test_geometries_have_the_stated_classes(geometry, names):
    assert set(classes_of(geometry)) == names


def test_recipes_reach_batches_paddings_and_channels():
    geometries = drawn(2200)
    assert {geometry.images[0] for geometry in geometries} >= {1, 2, 3, 4, 5, 9}
    assert {type(geometry.padding) for geometry in geometries} == {str, tuple}
    wide = [geometry for geometry in geometries if geometry.spans[1] > geometry.images[2]]
    high = [geometry for geometry in geometries if geometry.spans[0] > geometry.images[1]]
    assert set(wide) - set(high)
    assert set(high) - set(wide)
    after = [g for g in geometries if any(pads[1] < pads[0] for pads in g.pads)]
    before = [g for g in geometries if any(pads[1] > pads[0] for pads in g.pads)]
    assert min(len(after), len(before)) > 100
    nothing = [g for g in geometries if (g.excluded == g.filters[0] * g.filters[1]).any()]
    assert len(nothing) > 100  # an output pixel whose sum is empty
    assert any(
        g.padding == "SAME" and g.stride[0] > 1 and g.pads[0][0] != g.filters[0] // 2 for g in geometries
    )


# ---------------------------------------------------------------------------------------------- shrinking


def test_geometries_shrink_to_one_pixel():
    assert smallest(conv_geometries()) == ONE


@pytest.mark.slow
@pytest.mark.at_most(5)
@pytest.mark.parametrize("name", SMALL_CLASSES)
def test_every_class_shrinks_to_a_small_geometry(name):
    geometry = smallest(conv_geometries(name))
    n, h, w, c = geometry.images
    assert (n, c, geometry.filters[3]) == (1, 1, 1)
    assert max(h, w, *geometry.filters[:2], *geometry.out, *geometry.pads[0], *geometry.pads[1]) <= 3


@pytest.mark.slow
@pytest.mark.at_most(2)
@pytest.mark.parametrize(
    ("name", "taps"),
    [("large window", 6), ("window of one line", 9), ("first layer", 121), ("many taps outside", 20)],
)
def test_classes_of_large_windows_shrink_to_their_least_window(name, taps):
    geometry = smallest(conv_geometries(name))
    assert (geometry.images[0], geometry.images[3], geometry.filters[3]) == (1, 1, 1)
    assert geometry.filters[0] * geometry.filters[1] <= taps
    assert max(geometry.out) <= 2


@pytest.mark.gate
def test_an_excluded_tap_shrinks_to_a_few_pixels():
    geometry = smallest(conv_geometries(), lambda g: g.excluded.any() and not g.excluded.all())
    assert (geometry.images[0], geometry.images[3], geometry.filters[3]) == (1, 1, 1)
    assert max(*geometry.images[1:3], *geometry.filters[:2]) <= 3


def test_unknown_classes_are_refused():
    with pytest.raises(SchemeError, match="there is no class='corner'") as caught:
        conv_geometries("1x1", "corner")
    assert len(str(caught.value).splitlines()) == 3


def test_conv_geometries_is_exported_with_the_strategies():
    assert strategies.conv_geometries is conv_geometries


# ------------------------------------------------------------------------------------------- comparison


def test_equal_convolutions_pass():
    same = np.arange(8, dtype=np.int32).reshape(1, 2, 2, 2)
    assert assert_same_convolution(Geometry((1, 2, 2, 1), (1, 1, 1, 2)), same, same.copy()) is None


def test_a_failing_example_draws_the_window_of_the_first_wrong_pixel():
    geometry = Geometry((2, 5, 5, 3), (3, 3, 3, 2), (2, 2), "SAME")
    x, w = Draw(0, "picture", 0).matrix(2, 75, "int8"), Draw(0, "picture", 1).matrix(9, 6, "int8")
    right = reference.bconv2d(x.reshape(geometry.images), w.reshape(geometry.filters), **geometry.options)
    wrong = right.copy()
    wrong[1, 0, 2, 1] -= 15  # a forgotten exclude: 5 taps of 3 channels
    with pytest.raises(AssertionError) as caught:
        assert_same_convolution(geometry, right, wrong)
    message = str(caught.value)
    value = int(right[1, 0, 2, 1])
    assert "the first is [1, 0, 2, 1]" in message
    assert f"expected {value} (" in message
    assert "output pixel (0, 2)" in message
    assert "5 of 9 taps are outside" in message
    assert "correction: (9 - 5) taps x 3 channels = 12 products" in message
    assert f"raw popc: {(12 - value) // 2} of them are -1" in message
    assert f"result: 12 - 2 x {(12 - value) // 2} = {value}" in message


def test_results_of_other_shapes_have_no_picture():
    with pytest.raises(AssertionError, match="expected int32 of shape") as caught:
        assert_same_convolution(ONE, np.zeros((1, 1, 1, 1), np.int32), np.zeros((1, 1, 1, 2), np.int32))
    assert "taps outside" not in str(caught.value)


def test_comparing_empty_convolutions_fails():
    nothing = np.zeros((1, 0, 1, 1), np.int32)
    with pytest.raises(AssertionError, match="nothing was compared"):
        assert_same_convolution(ONE, nothing, nothing)


def test_the_window_picture_explains_the_sum():
    picture = window_picture(Geometry((1, 5, 5, 7), (3, 3, 7, 1), padding="SAME"), (0, 4, 4, 0), 8)
    assert picture.title.endswith("output pixel (4, 4)")
    assert picture.notes[-1] == "result: 28 - 2 x 10 = 8"
