"""Arrays without elements: a call computes with them, or says truly why it does not."""

import numpy as np
import pytest

import gpu
import reference
import reference.training
import simwarp
from gpu import outofcore
from gpu.device_tensor import DeviceTensor
from reference.errors import ShapeError, SimwarpError

FILTERS = np.ones((4, 3, 3, 3), np.float32)
NOTHING = "leave the call out where there is nothing to compute"


def none(*shape):
    return np.zeros((0, *shape), np.float32)


def both(name, *arguments, **options):
    """A function of both tiers: one answer."""
    expected = getattr(reference.training, name)(*arguments, **options)
    found = getattr(outofcore, name)(*arguments, device=simwarp.Machine(), **options)
    np.testing.assert_array_equal(found, expected, strict=False)
    return found


def test_convolutions_of_an_empty_batch():
    assert both("conv2d", none(3, 8, 8), FILTERS, padding="VALID").shape == (0, 4, 6, 6)
    bias = np.ones(4, np.float32)
    of_last = both("conv2d", none(8, 8, 2), np.ones((4, 3, 3, 1), np.float32), bias, layout="NHWC", groups=2)
    assert of_last.shape == (0, 8, 8, 4)
    assert both("conv2d_backward_data", none(4, 8, 8), FILTERS, (0, 3, 8, 8)).shape == (0, 3, 8, 8)
    by_filters = both("conv2d_backward_filter", none(3, 8, 8), none(4, 8, 8), (4, 3, 3, 3))
    assert by_filters.shape == (4, 3, 3, 3)
    assert not by_filters.any()
    assert not reference.training.conv2d_backward_bias(none(4, 8, 8)).any()


def test_results_of_an_empty_batch_go_where_they_are_wanted():
    statistics = outofcore.Statistics(seconds=1.0)
    out = np.ones((4, 3, 3, 3), np.float32)
    given = {"device": simwarp.Machine(), "statistics": statistics}
    assert outofcore.conv2d_backward_filter(none(3, 8, 8), none(4, 8, 8), out.shape, out=out, **given) is out
    assert not out.any()
    assert (statistics.bytes_in, statistics.bytes_out, statistics.seconds) == (0, 0, 0.0)
    pooled = outofcore.conv2d(
        none(3, 8, 8), FILTERS, pool=outofcore.MaxPool(2), activation="relu", device=simwarp.Machine()
    )
    assert pooled.shape == reference.training.max_pool2d(none(4, 8, 8), 2).shape == (0, 4, 4, 4)
    assert reference.training.average_pool2d_backward(none(4, 4, 4), (0, 4, 8, 8), 2).shape == (0, 4, 8, 8)
    with pytest.raises(ShapeError, match="without images there is nothing to plan"):
        outofcore.explain("conv2d", (0, 3, 8, 8), FILTERS.shape, device=simwarp.Machine())


def test_gradients_of_an_empty_batch_are_not_left_unwritten_on_a_device():
    machine = simwarp.Machine()
    memory = machine.allocate(0, FILTERS.nbytes)
    out = DeviceTensor(memory, FILTERS.shape, np.float32)
    with pytest.raises(ShapeError, match="no kernel runs that could write them\nclear out"):
        outofcore.conv2d_backward_filter(none(3, 8, 8), none(4, 8, 8), FILTERS.shape, out=out, device=machine)


@pytest.mark.parametrize(
    ("x", "w"),
    [((2, 0, 8, 8), (4, 0, 3, 3)), ((2, 3, 0, 8), FILTERS.shape), ((2, 3, 8, 8), (0, 3, 3, 3))],
)
def test_other_dimensions_of_0_have_a_true_reason(x, w):
    x, w = np.zeros(x, np.float32), np.zeros(w, np.float32)
    for call in (
        lambda: reference.training.conv2d(x, w),
        lambda: outofcore.conv2d(x, w, device=simwarp.Machine()),
    ):
        with pytest.raises(ShapeError, match=f"each at least 1(.|\n)*{NOTHING}"):
            call()


EMPTY = {
    "bmm": lambda tier, **device: tier.bmm(np.ones((0, 3)), np.ones((3, 4)), **device),
    "bmm of K = 0": lambda tier, **device: tier.bmm(np.ones((2, 0)), np.ones((0, 4)), **device),
    "bconv2d": lambda tier, **device: tier.bconv2d(np.ones((0, 4, 4, 8)), np.ones((3, 3, 8, 2)), **device),
    "pack": lambda tier, **device: tier.pack(np.ones((0, 3)), **device),
}


@pytest.mark.parametrize("call", EMPTY)
def test_products_of_bits_refuse_dimensions_of_0_for_their_size(call):
    for tier, device in ((reference, {}), (gpu, {"device": simwarp.Device()})):
        with pytest.raises(SimwarpError, match=r"at least (1|one)|from 1 to") as caught:
            EMPTY[call](tier, **device)
        assert "contiguous" not in str(caught.value)
        assert "order" not in str(caught.value)
