"""Networks of dense layers on the simulator: what a run launches, and the forms of bits between launches."""

from dataclasses import replace
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest

import gpu.bnn
import gpu.compile
import reference.bnn
from reference import pack
from reference.bnn import BitPlanes, Dense, Flatten, Network, Signs, Threshold
from simwarp import Device
from simwarp.faults import DependentAccess
from support.offset_array import OffsetArray

RNG = np.random.default_rng(40)


def dense(*shape):
    return Dense(pack(RNG.choice(np.array([-1, 1], np.int8), shape), layout="row"))


def network(given, *layers):
    count = layers[-1].weights.shape[1]
    return Network("small", given, layers, *RNG.standard_normal((2, count)).astype(np.float32))


def launched(prepared, images):
    """The answer of a run, and the names of its launches."""
    names, launch = [], prepared.device.launch

    def counted(plan, arrays):
        names.append(plan.name)
        launch(plan, arrays)

    prepared.device.launch = counted
    try:
        answer = prepared.run(images)
    finally:
        del prepared.device.launch
    return answer, names


def check(net, prepared, images):
    """The run's launches, if values and answer are the definition's."""
    answer, names = launched(prepared, images)
    for got, wanted in zip(answer, reference.bnn.run(net, images), strict=True):
        np.testing.assert_array_equal(got, wanted)
    expected = dict(reference.bnn.values(net, images))
    for path, value in prepared.values(images):
        np.testing.assert_array_equal(value, expected[path], err_msg=path)
    return names


@pytest.mark.at_most(2)
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((9, 7, 1), "uint8"),  # one threshold, ragged rows
        ((8, 10, 1), "float32"),
        ((4, 4, 3), "uint8"),  # whole vectors, and channels in threes
        ((5, 3, 20), "float32"),  # in fours that words cut
        ((3, 4, 4), "uint8"),
        ((45,), "float32"),
        ((260,), "uint8"),
        ((33, 257, 1), "uint8"),  # rows longer than a block
    ],
)
@pytest.mark.parametrize("scheme", ["auto", "bmm32"])
def test_signs_of_images_are_flattened_in_one_launch(shape, dtype, scheme):
    thresholds = RNG.integers(-1, 257, shape[-1]).astype(np.float32)
    images = RNG.integers(0, 256, (5, *shape)).astype(dtype)
    net = network(Signs(shape, thresholds), Flatten(), dense(int(np.prod(shape)), 3))
    prepared = gpu.bnn.prepare(net, schemes={"Dense": scheme}, device=Device((8, 0)))
    assert check(net, prepared, images)[:2] == ["bits_of_images", "skinny" if scheme == "auto" else scheme]


@pytest.mark.parametrize("shape", [(3, 4, 3), (2, 2, 1), (7, 3, 1)])
@pytest.mark.parametrize("scheme", ["auto", "bmm32"])
def test_planes_of_images_are_flattened_in_one_launch(shape, scheme):
    images = RNG.integers(0, 256, (5, *shape), dtype=np.uint8)
    net = network(BitPlanes(shape), Flatten(), dense(8 * int(np.prod(shape)), 3))
    prepared = gpu.bnn.prepare(net, schemes={"Dense": scheme}, device=Device((8, 0)))
    assert check(net, prepared, images)[:2] == ["bits_of_images", "skinny" if scheme == "auto" else scheme]


def test_images_that_begin_between_vectors_are_read_number_by_number():
    net, device = network(Signs((32,), np.full(32, 99, np.float32)), dense(32, 3)), Device((9, 0))
    prepared, images = gpu.bnn.prepare(net, device=device), RNG.integers(0, 256, (3, 32), dtype=np.uint8)
    for offset in (0, 1, 16):
        sums = prepared.run(OffsetArray(device, images, offset)).sums
        np.testing.assert_array_equal(sums.download(), reference.bnn.run(net, images).sums)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("batch", [1, 8, 13, 33])
@pytest.mark.parametrize("chip", [(7, 5), (8, 0), (9, 0)])
def test_a_network_of_dense_layers_gives_what_the_definition_gives(chip, batch):
    net = reference.bnn.mlp(width=8)
    images = RNG.integers(0, 256, (batch, *net.input.shape), dtype=np.uint8)
    names = check(net, gpu.bnn.prepare(net, device=Device(chip)), images)
    assert names[0] == "bits_of_images"
    if chip == (9, 0) or (chip == (8, 0) and batch <= 16):
        hidden = "skinny" if batch <= 16 else "wgmma"
        assert names[1:] == [hidden, hidden, hidden, "skinny"]


@pytest.mark.at_most(1)
@pytest.mark.parametrize("batch", [3, 20])
def test_a_warm_run_is_a_graph_of_the_images_and_the_products(batch):
    net, device = reference.bnn.mlp(width=8), Device((9, 0))
    prepared = gpu.bnn.prepare(net, device=device)
    images = device.upload(RNG.integers(0, 256, (batch, *net.input.shape), dtype=np.uint8))
    for _ in range(3):
        prepared.run(images)
    (kept,) = prepared._batches.values()
    assert len(kept.graph._launches) == 5


@pytest.mark.at_most(1)
@pytest.mark.singly
@pytest.mark.parametrize(("hidden", "classes"), [(130, 9), (300, 16), (16, 1), (40, 17)])
@pytest.mark.parametrize("batch", [1, 9, 16, 17, 40])
@pytest.mark.parametrize("chip", [(8, 0), (9, 0)])
def test_the_last_product_gives_logits_and_classes(chip, batch, hidden, classes):
    """Equal logits among them: the first class wins. Many classes have a launch of their own."""
    net = network(
        Signs((50,), np.full(50, 99, np.float32)),
        dense(50, hidden),
        Threshold(RNG.integers(-5, 5, hidden).astype(np.int32), RNG.random(hidden) < 0.5),
        dense(hidden, classes),
    )
    ties = np.tile([np.float32(0.5), np.float32(0)], classes)[:classes]
    for scale in (net.scale, ties):
        net = replace(net, scale=scale, offset=np.zeros(classes, np.float32))
        images = RNG.integers(0, 256, (batch, 50), dtype=np.uint8)
        names = check(net, gpu.bnn.prepare(net, device=Device(chip)), images)
        assert (names[-1] == "answer") == (classes > 16)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("scheme", ["btc1", "btc2", "mma", "skinny", "wgmma", "btc3", "bmm32"])
def test_every_scheme_takes_what_the_launch_before_gives(scheme):
    net, device = reference.bnn.mlp(width=8), Device((9, 0))
    images = RNG.integers(0, 256, (9, *net.input.shape), dtype=np.uint8)
    check(net, gpu.bnn.prepare(net, schemes={"5": scheme}, device=device), images)
    check(net, gpu.bnn.prepare(net, schemes={"Dense": scheme}, device=device), images)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("batch", [3, 20])
@pytest.mark.parametrize("schedule", ["stack", "random"])
def test_launches_that_overlap_are_right_under_every_schedule(batch, schedule):
    net = reference.bnn.mlp(width=8)
    images = RNG.integers(0, 256, (batch, *net.input.shape), dtype=np.uint8)
    check(net, gpu.bnn.prepare(net, device=Device((9, 0), schedule=schedule)), images)


@pytest.mark.at_most(2)
@pytest.mark.parametrize(
    ("kernel", "batch", "number"),
    [("skinny", 20, 0), ("skinny", 3, 1), ("wgmma", 20, 0), ("wgmma", 20, 1)],
)
def test_every_wait_for_earlier_launches_is_needed(kernel, batch, number, monkeypatch, tmp_path):
    def without(text):
        pieces = text.split("wait_for_earlier_launches();")
        pieces[number : number + 2] = [";".join(pieces[number : number + 2])]
        return "wait_for_earlier_launches();".join(pieces)

    with pytest.raises(DependentAccess, match="without waiting for it"):
        run_changed(f"bmm/{kernel}.cu", without, batch, monkeypatch, tmp_path)


def test_what_earlier_launches_write_is_not_loaded_as_constant_memory(monkeypatch, tmp_path):
    """Of 3,200 random networks 14 were wrong on an H200 by this: ptxas had moved loads before the wait."""

    def constant(text):
        assert text.count("const uint4* a, ") == 1
        return text.replace("const uint4* a, ", "const uint4* __restrict__ a, ")

    with pytest.raises(DependentAccess, match="as constant memory"):
        run_changed("bmm/skinny.cu", constant, 3, monkeypatch, tmp_path)


def run_changed(path, change, batch, monkeypatch, tmp_path):
    """Run a network of dense layers whose kernel has a changed source."""
    net, source = reference.bnn.mlp(width=8), Path(gpu.compile.__file__).parent
    images = RNG.integers(0, 256, (batch, *net.input.shape), dtype=np.uint8)
    for part in ("bmm", "bnn", "include"):
        copytree(source / part, tmp_path / part)
    (tmp_path / path).write_text(change((source / path).read_text()))
    monkeypatch.setattr(gpu.compile, "_PACKAGE", tmp_path)
    gpu.bnn.prepare(net, device=Device((9, 0))).run(images)
