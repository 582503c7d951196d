"""Parts of out-of-core training: strips of rows, lifetimes, routines, and what a plan says of itself."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.outofcore import (
    SGD,
    AveragePool,
    Conv,
    Cut,
    Dense,
    Flatten,
    MaxPool,
    Network,
    Rates,
    Segment,
    Trainer,
    TrainingOptions,
    vgg16,
)
from gpu.outofcore.halo import image_rows, output_rows
from gpu.outofcore.networks import host_copies
from gpu.outofcore.networks.engines import Engines, workspace_bytes
from gpu.outofcore.networks.lifetimes import Block, pack
from gpu.outofcore.networks.phases import Key, Op, Phase
from gpu.outofcore.networks.plan import TrainingPlan
from gpu.outofcore.networks.routines import FilterGradient, Loss, Update
from gpu.outofcore.networks.stages import Stage
from gpu.outofcore.networks.strips import backward_strips, forward_strips
from reference import training
from reference.errors import SchemeError, ShapeError
from simwarp.machine import Machine
from support.training_networks import NETWORKS

# ---------------------------------------------------------------------------------------------- memory

BLOCKS = st.lists(
    st.tuples(st.integers(1, 2000), st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=12
)


@given(BLOCKS)
def test_blocks_that_live_at_the_same_time_do_not_overlap(drawn: list[tuple[int, int, int]]) -> None:
    blocks = [Block(i, size, min(a, b), max(a, b)) for i, (size, a, b) in enumerate(drawn)]
    found = pack(blocks)
    for one, other in product(blocks, blocks):
        meet = one.key != other.key and one.first <= other.last and other.first <= one.last
        starts = found.offsets[one.key], found.offsets[other.key]
        assert not meet or starts[0] + one.nbytes <= starts[1] or starts[1] + other.nbytes <= starts[0]
        assert starts[0] % 256 == 0
        assert starts[0] + one.nbytes <= found.nbytes
    at_once = [sum(b.nbytes for b in blocks if b.first <= time <= b.last) for time in range(7)]
    assert found.nbytes >= max(at_once)


@pytest.mark.parametrize("rows", [1, 2, 5, 40])
def test_threads_write_all_of_an_array(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(host_copies, "_SMALL", 16)
    monkeypatch.setattr(host_copies.os, "cpu_count", lambda: 8)
    source, target = np.arange(rows * 6.0).reshape(rows, 2, 3), np.full((rows, 2, 3), -1, np.float32)
    host_copies.write_array(target, source)
    assert np.array_equal(target, source)
    host_copies.write_array(target[::-1], 7)
    assert (target == 7).all()
    with pytest.raises(ValueError, match="broadcast"):
        host_copies.write_array(target, np.zeros((rows, 4, 3)))


@given(st.integers(1, 2000), st.integers(1, 2000), BLOCKS)
def test_a_block_takes_a_place_from_below_and_no_other(
    one: int, other: int, drawn: list[tuple[int, int, int]]
) -> None:
    others = [Block(i, size, min(a, b), max(a, b)) for i, (size, a, b) in enumerate(drawn)]
    found = pack([Block("read", one, 1, 3), Block("written", other, 3, 5, "read"), *others])
    read, written = found.offsets["read"], found.offsets["written"]
    assert written <= read or read + one <= written
    for block in others:
        for key, size, life in (("read", one, (1, 3)), ("written", other, (3, 5))):
            start, end = found.offsets[key], found.offsets[block.key]
            meet = block.first <= life[1] and life[0] <= block.last
            assert not meet or start + size <= end or end + block.nbytes <= start


def test_a_block_of_equal_size_takes_the_place_of_the_one_before() -> None:
    found = pack([Block("read", 512, 0, 1), Block("written", 512, 1, 2, "read"), Block("piece", 256, 1, 1)])
    assert found.nbytes == 768


def test_workspaces_of_transforms_are_for_whole_groups_of_images() -> None:
    network, found = Network((16, 24, 24), (Conv(16), Flatten(), Dense(3))), list[int]()
    for images in (8, 9, 16):
        segments = tuple(Segment(n, n, Cut(images, 24), Cut(images, 24)) for n in (1, 2))
        rates = Rates(1e-6, 1e10, 1e-6, 1e10, 1e-6, 1e13)
        plan = TrainingPlan(
            network, 32, segments, frozenset(), True, 2, 1 << 30, rates, Engines(True, transforms=True)
        )
        phase = plan.phases[0]
        found.append(workspace_bytes(phase, Op("forward", Key("x", 1)), plan.engines))
        assert phase.workspace >= found[-1]
    assert abs(found[1] / found[0] - 1) < 0.01
    assert abs(found[2] / found[0] - 1) < 0.01


# ---------------------------------------------------------------------------------------------- strips

LAYERS = st.lists(
    st.one_of(
        st.builds(
            Conv,
            st.just(2),
            st.integers(1, 3),
            st.integers(1, 3),
            st.sampled_from(["SAME", "VALID"]),
            st.integers(1, 2),
            activation=st.sampled_from([None, "relu"]),
        ),
        st.builds(MaxPool, st.integers(1, 3), st.integers(1, 3), st.just("SAME")),
        st.builds(AveragePool, st.integers(1, 3), st.integers(1, 3), st.just("SAME")),
    ),
    min_size=2,
    max_size=4,
)


def network_of(layers: list[Any]) -> Network | None:
    try:
        return Network((1, 13, 13), (*layers, Flatten(), Dense(2)))
    except ShapeError:
        return None


@given(LAYERS, st.integers(1, 13))
def test_forward_strips_hold_all_rows_that_windows_read(layers: list[Any], rows: int) -> None:
    network = network_of(layers)
    if network is None:
        return
    strips = forward_strips(network, 1, len(layers), rows)
    for number in range(1, len(layers) + 1):
        stage = network.stages[number - 1]
        for strip in strips:
            read = image_rows(stage.plane, strip.held[number])
            assert strip.held[number - 1].start <= read.start
            assert read.stop <= strip.held[number - 1].stop
    assert_each_row_has_one_owner(network, [strip.owned for strip in strips], range(1, len(layers) + 1))


@given(LAYERS, st.integers(1, 13), st.sets(st.integers(1, 3)), st.integers(1, 2))
def test_backward_strips_hold_all_rows_that_gradients_need(
    layers: list[Any], rows: int, kept: set[int], first: int
) -> None:
    network, last = network_of(layers), len(layers)
    if network is None:
        return
    strips = backward_strips(network, first, last, last, rows, kept | {first - 1})
    for number in range(max(first - 1, 1) + 1, last + 1):
        for strip in strips:
            plane = network.stages[number - 1].plane
            needed = output_rows(plane, strip.gradients[number - 1])
            if plane.height > 1 and plane.stride_h <= plane.filter_height:
                assert strip.gradients[number].start <= needed.start
                assert needed.stop <= strip.gradients[number].stop
    for strip in strips:
        for number, rows_held in strip.held.items():
            if number >= first and number not in kept:
                read = image_rows(network.stages[number - 1].plane, rows_held)
                held = strip.held[number - 1]
                assert held.start <= read.start
                assert read.stop <= held.stop
    tensors = range(max(first - 1, 1), last + 1)
    assert_each_row_has_one_owner(network, [strip.owned for strip in strips], tensors)


def assert_each_row_has_one_owner(network: Network, owned: list[Any], tensors: range) -> None:
    for tensor in tensors:
        rows = [row for one in owned for row in one[tensor]]
        assert rows == [*range(network.shape(tensor)[1])]


# -------------------------------------------------------------------------------------------- routines


def columns(x: Any) -> Any:
    """Images as a tile has them."""
    return np.asfortranarray(x.reshape(x.shape[0] * x.shape[1], -1).T)


def filter_gradient(stage: Stage, x: Any, dy: Any, pieces: list[tuple[range, range]]) -> Any:
    """The sums of double precision after some pieces of images and rows of the result."""
    sums = [np.zeros((2 * size, 1), np.float32) for size in (int(np.prod(stage.filters)), stage.shape[0])]
    for number, (images, outputs) in enumerate(pieces):
        rows = image_rows(stage.plane, outputs)
        parts = (
            x[images.start : images.stop, :, rows.start : rows.stop],
            dy[images.start : images.stop, :, outputs.start : outputs.stop],
        )
        shapes: Any = tuple(part.shape for part in parts)
        window = stage.window(rows, outputs)
        routine = FilterGradient("conv", (), (), shapes, 0.0, stage, window, number == 0)
        routine.compute([columns(part) for part in parts], sums)
    return [array[:, 0].view(np.float64) for array in sums]


def test_filter_gradients_have_one_order_of_sums_whatever_the_pieces() -> None:
    net = Network((4, 9, 7), (Conv(6, 3, 2, groups=2), Flatten(), Dense(2)))
    stage, rng = net.stages[0], np.random.default_rng(0)
    x = rng.standard_normal((5, 4, 9, 7)).astype(np.float32)
    dy = rng.standard_normal((5, *stage.shape)).astype(np.float32)
    every = range(stage.shape[1])
    whole = filter_gradient(stage, x, dy, [(range(5), every)])
    for size in (1, 2, 3):
        pieces = [(range(start, min(start + size, 5)), every) for start in range(0, 5, size)]
        assert all(map(np.array_equal, filter_gradient(stage, x, dy, pieces), whole))
        strips = [range(start, min(start + size, len(every))) for start in range(0, len(every), size)]
        pieces = [(range(image, image + 1), strip) for image in range(5) for strip in strips]
        assert all(map(np.array_equal, filter_gradient(stage, x, dy, pieces), whole))
        assert not all(map(np.array_equal, filter_gradient(stage, x, dy, pieces[::-1]), whole))
    expected = training.conv2d_backward_filter(x, dy, stage.filters, stride=2, groups=2)
    np.testing.assert_allclose(whole[0], expected.ravel(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(whole[1], training.conv2d_backward_bias(dy), rtol=0, atol=1e-12)


def test_the_loss_and_its_gradient_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(1)
    logits = (rng.standard_normal((7, 5)) * 30).astype(np.float32)
    labels = rng.integers(0, 5, 7).astype(np.int32)
    gradient, losses = np.zeros((5, 7), np.float32, order="F"), np.zeros((7, 1))
    Loss("loss", (), (), (), 0.0, 7).compute(
        [np.asfortranarray(logits.T), labels[:, None]], [gradient, losses]
    )
    assert abs(losses.mean() - training.cross_entropy(logits, labels)) < 1e-13
    expected = training.cross_entropy_backward(logits, labels)
    np.testing.assert_allclose(gradient.T, expected, rtol=2.0**-23, atol=1e-30)


def test_an_update_is_that_of_the_definition_with_a_rounded_velocity() -> None:
    rng = np.random.default_rng(2)
    w, velocity = (rng.standard_normal((9, 1)).astype(np.float32) for _ in range(2))
    sums = rng.standard_normal(9)
    out = [np.zeros((9, 1), np.float32) for _ in range(2)]
    routine = Update("sgd", (), (), (), 0.0, rate=0.1, momentum=0.9, decay=0.01)
    routine.compute([w, velocity, sums.view(np.float32)[:, None]], out)
    expected = training.sgd(
        w[:, 0], sums + 0.01 * w[:, 0].astype(float), velocity[:, 0], rate=0.1, momentum=0.9
    )
    assert np.array_equal(out[1][:, 0], expected.velocity.astype(np.float32))
    rounded = w[:, 0] - 0.1 * out[1][:, 0].astype(float)
    assert np.array_equal(out[0][:, 0], rounded.astype(np.float32))


# ----------------------------------------------------------------------------------------- description


@pytest.mark.parametrize(
    ("layers", "error"),
    [
        ((), SchemeError),
        ((Conv(2),), SchemeError),
        ((Dense(2),), SchemeError),
        ((Flatten(), Conv(2), Dense(2)), SchemeError),
        ((Flatten(), MaxPool(), Dense(2)), SchemeError),
        ((Conv(0), Flatten(), Dense(2)), ShapeError),
        ((Conv(2, groups=2), Flatten(), Dense(2)), ShapeError),
        ((Conv(2, 9, padding="VALID"), Flatten(), Dense(2)), ShapeError),
        ((MaxPool(2, 1, ((2, 0), (0, 0))), Flatten(), Dense(2)), ShapeError),
        ((AveragePool(2, 1, ((0, 0), (0, 3))), Flatten(), Dense(2)), ShapeError),
        ((Conv(2, activation="swish"), Flatten(), Dense(2)), SchemeError),  # type: ignore[arg-type]
    ],
)
def test_layers_that_do_not_fit_are_refused(layers: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Network((1, 6, 6), layers)


def test_numbers_out_of_range_are_refused() -> None:
    for wrong in ({"rate": -1.0}, {"momentum": float("nan")}, {"decay": float("inf")}):
        with pytest.raises(SchemeError):
            SGD(**wrong)
    with pytest.raises(ShapeError):
        Network((1, 0, 6), (Flatten(), Dense(2)))
    with pytest.raises(SchemeError):
        TrainingOptions(depth=0)
    with pytest.raises(SchemeError):
        TrainingOptions(parameters="disk")  # type: ignore[arg-type]


def test_descriptions_that_differ_have_different_hashes() -> None:
    networks = [*NETWORKS.values(), vgg16(), vgg16(10), Network((1, 4, 4), (MaxPool(), Flatten(), Dense(2)))]
    networks.append(Network((1, 4, 4), (AveragePool(), Flatten(), Dense(2))))
    assert len({network.digest for network in networks}) == len(networks)


def test_a_plan_names_gradient_accumulation_and_what_it_keeps() -> None:
    network = NETWORKS["mixed"]
    segments = (
        Segment(1, 3, Cut(2, 99), Cut(4, 99), frozenset({1})),
        Segment(4, 5, Cut(1, 1), Cut(1, 1)),
        Segment(6, 7, Cut(6, 99), Cut(6, 99)),
    )
    plans = [
        str(Trainer(network, 6, device=Machine(), options=TrainingOptions(segments=given)).explain())
        for given in (segments, (Segment(1, 7, Cut(6, 99), Cut(2, 99)),))
    ]
    lines = plans[0].splitlines()
    assert "segment by segment" in lines[0]
    assert "gradient accumulation: only the batch is cut" in plans[1]
    (backward,) = [line for line in lines if line.startswith("conv1 to conv3") and "backward" in line]
    assert "2 of 4 images" in backward
    assert backward.index("conv1", 10) < backward.index("max_pool2")  # kept before what is computed again
    assert any("12 of 1 image x 1 rows" in line for line in lines)
    assert "times the routines in core" in lines[-1]


def test_strips_of_a_plan_cover_rows_without_gaps() -> None:
    strips = forward_strips(NETWORKS["gaps"], 1, 2, 1)
    for one, other in pairwise(strips):
        assert one.held[0].stop >= other.held[0].start


def test_a_network_of_twice_the_depth_tries_about_twice_the_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, work = 0, Phase._work

    def count(phase: Phase) -> Any:
        nonlocal tried
        tried += 1
        return work(phase)

    monkeypatch.setattr(Phase, "_work", count)
    counts = list[int]()
    for depth in (12, 24):
        layers = [Conv(16, activation="relu") for _ in range(depth)]
        network, tried = Network((3, 32, 32), (*layers, Flatten(), Dense(10))), 0
        Trainer(network, 64, device=Machine(), memory_budget=15 << 20)
        counts.append(tried)
    assert counts[0] > 10
    assert counts[1] < 2.5 * counts[0]
