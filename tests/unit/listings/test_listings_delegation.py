"""Listings 8 and 9 of BSTC: a network in one kernel, on any number of blocks."""

from itertools import pairwise
from math import prod

import numpy as np
import pytest

from reference import bnn, pack, pack_tensor
from reference.errors import LaunchError, SchemeError, ShapeError
from simwarp.faults import BarrierFault, NotCooperative, UninitialisedRead
from simwarp.listings import FC, SBNN32, ConvPool, Pool, delegation, sbnn32, tasks
from simwarp.warp import GRID, launch

RNG = np.random.default_rng(45)


def signs(*shape):
    return RNG.choice([-1, 1], shape).astype(np.int8)


def thresholds(count):
    return RNG.integers(-3, 4, count).astype(np.int32), RNG.integers(0, 2, count).astype(bool)


def defined(images, layers):
    """The sums of the same network by `reference.bnn`."""
    shape = images.shape[1:]
    built = []
    for each in layers:
        weights = np.asarray(each.weights)
        if isinstance(each, ConvPool):
            before = [((size - 1) // 2, size // 2) for size in weights.shape[:2]]
            stride = each.stride if isinstance(each.stride, tuple) else (each.stride,) * 2
            padding = tuple(before) if each.padding == "SAME" else ((0, 0), (0, 0))
            built.append(bnn.Conv(pack_tensor(weights, layout="HWOI"), stride, padding))
        else:
            first = not any(isinstance(layer, bnn.Dense) for layer in built)
            built += [bnn.Flatten()] if len(shape) == 3 and first else []
            built.append(bnn.Dense(pack(weights, layout="row")))
        if each.thresholds is not None:
            flip = np.zeros(weights.shape[-1], bool) if each.flip is None else each.flip
            built.append(bnn.Threshold(np.asarray(each.thresholds, np.int32), flip))
        if isinstance(each, ConvPool):
            built.append(bnn.Pool(each.pool.kind, each.pool.window, each.pool.stride))
    outputs = np.asarray(layers[-1].weights).shape[1]
    scale, offset = np.ones(outputs, np.float32), np.zeros(outputs, np.float32)
    source = bnn.Signs(shape, np.zeros(shape[-1], np.float32))
    return bnn.run(bnn.Network("test", source, tuple(built), scale, offset), images.astype(np.float32)).sums


@pytest.mark.at_most(2)
@pytest.mark.parametrize("sizes", [(5, 3), (33, 40, 2), (40, 33, 34, 4)])
def test_dense_networks_give_the_same_sums_on_any_number_of_blocks(sizes):
    images = signs(35, sizes[0])
    *hidden, last = pairwise(sizes)
    layers = [FC(signs(*shape), *thresholds(shape[1])) for shape in hidden] + [FC(signs(*last))]
    expected = defined(images, layers)
    for blocks in (1, 2, 3, 64):
        np.testing.assert_array_equal(sbnn32(images, layers, blocks=blocks), expected)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("way", ["pruned", "window", "atomic"])
def test_convolutions_with_pooling_and_dense_layers_in_one_launch(way):
    images = signs(1, 5, 6, 3)
    layers = [
        ConvPool(signs(3, 3, 3, 33), *thresholds(33), Pool(), way=way),
        ConvPool(signs(1, 1, 33, 5), *thresholds(5), Pool("and", (2, 2), (1, 1)), way=way),
        FC(signs(1 * 2 * 5, 34), *thresholds(34)),
        FC(signs(34, 3)),
    ]
    expected = defined(images, layers)
    for blocks in (1, 5):
        np.testing.assert_array_equal(sbnn32(images, layers, blocks=blocks), expected)


def test_pixels_without_convolutions_are_vectors():
    images = signs(2, 3, 2, 5)
    layers = [FC(signs(30, 2))]
    np.testing.assert_array_equal(sbnn32(images, layers), defined(images, layers))


@pytest.mark.parametrize("blocks", [1, 3, 24, 50])
def test_blocks_take_each_task_once_and_share_them_evenly(blocks):
    grid, taken = (4, 3, 2), []

    def kernel(warp):
        for task in tasks(warp, grid):
            assert task.grid == grid
            taken.append((warp.block.x, tuple(task.block)))

    launch(kernel, blocks, 32)
    assert sorted(task for _, task in taken) == sorted(np.ndindex(grid))
    shares = np.bincount([agent for agent, _ in taken], minlength=blocks)
    assert shares.max() - shares.min() <= 1
    assert shares.sum() == prod(grid)


def planted(monkeypatch, kernel):
    """Run a network of two layers with another kernel, on blocks that do not divide the tasks."""
    monkeypatch.setattr(delegation, "SBNN32", kernel)
    return sbnn32(signs(70, 40), [FC(signs(40, 33), np.zeros(33, int)), FC(signs(33, 2))], blocks=2)


def test_without_a_barrier_a_block_reads_what_another_has_not_written(monkeypatch):
    def unsynchronised(warp, network):
        for kernel, grid, args in network:
            for task in tasks(warp, grid):
                kernel(task, *args)

    with pytest.raises(UninitialisedRead):
        planted(monkeypatch, unsynchronised)


def test_a_block_that_leaves_early_is_found_at_the_barrier_of_the_others(monkeypatch):
    def early(warp, network):
        if warp.block.x == 1:
            return
        yield from SBNN32(warp, network)

    with pytest.raises(BarrierFault, match="the grid that some blocks never reach") as caught:
        planted(monkeypatch, early)
    assert "ended: blocks (1, 0, 0)" in caught.value.values


def test_a_network_needs_a_cooperative_launch():
    def kernel(warp):
        yield GRID

    with pytest.raises(NotCooperative):
        launch(kernel, 2, 32)


def test_networks_that_cannot_run_are_refused():
    images, weights = signs(2, 4), signs(4, 2)
    for layers, error in (
        ([], "the last layer"),
        ([FC(weights, [0, 0])], "the last layer"),
        ([FC(signs(4, 4)), FC(weights)], "layer 0 has no thresholds"),
        ([FC(weights, [0, 0]), ConvPool(signs(1, 1, 2, 2), [0, 0]), FC(weights)], "layer 1 is a convolution"),
    ):
        with pytest.raises(SchemeError, match=error):
            sbnn32(images, layers)
    with pytest.raises(ShapeError, match=r"weights has shape \(5, 2\), for 4 features"):
        sbnn32(images, [FC(signs(5, 2))])
    with pytest.raises(ShapeError, match="needs pixels"):
        sbnn32(images, [ConvPool(signs(1, 1, 4, 2), [0, 0]), FC(weights)])
    with pytest.raises(LaunchError):
        sbnn32(images, [FC(weights)], blocks=0)
