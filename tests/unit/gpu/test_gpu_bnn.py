"""Binarized networks on the simulator: every kind of layer, against the definition."""

import numpy as np
import pytest

import gpu.bnn
import gpu.bnn.network
import reference.bnn
from gpu.bnn.plan import steps_of, values_of
from gpu.bnn.weights import filters_along_c, matrix_along_k
from reference import DtypeError, NotANumberError, RangeError, SchemeError, ShapeError, pack, pack_tensor
from reference.bnn import (
    Affine,
    BitPlanes,
    Clip,
    Flatten,
    Network,
    PadChannels,
    Pixels,
    Pool,
    Reals,
    Residual,
    Signs,
)
from simwarp import Device
from support.bnn_networks import (
    DEEP,
    NETWORKS,
    RNG,
    SAME,
    SMALL,
    check,
    conv,
    dense,
    images,
    ints,
    network,
    pixels,
    signs,
    threshold,
)

CHEAP = {"Conv": "bconv32", "Dense": "bmm32"}


@pytest.mark.at_most(2)
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.slow_cases(
    "conv of pixels with a stride", "signs of*", "wide integers by dense", "bit planes of*", "and"
)
def test_a_layer_gives_what_the_definition_gives(name):
    check(network(*SMALL[name]), 3, schemes=CHEAP)


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.singly
@pytest.mark.parametrize("count", [1, 8, 13])
@pytest.mark.parametrize("cc", [(7, 5), (8, 0), (9, 0), (10, 0)])
def test_a_network_gives_what_the_definition_gives(cc, count):
    check(network(*DEEP), count, Device(cc))


@pytest.mark.at_most(1)
@pytest.mark.gate
@pytest.mark.parametrize("scheme", ["bconv32", "btc1", "btc2", "wgmma"])
def test_convolutions_have_the_chosen_scheme(scheme):
    check(network(*DEEP), 2, schemes={"Conv": scheme, "10": "btc3", "12": "mma"})


def test_what_one_launch_computes_is_joined():
    net = network(*DEEP)
    steps = steps_of(net, values_of(net))
    assert [(step.paths[-1], step.writes) for step in steps] == [
        ("1", ("1",)),
        ("4", ("4",)),
        ("5", ("5",)),
        ("6.body.0", ("6.body.0",)),
        ("6.body.1", ("6.body.1",)),
        ("7.body.0", ("6", "7.body.0")),
        ("7.body.1", ("7.body.1",)),
        ("8", ("8",)),
        ("9", ("9",)),
        ("11", ("11",)),
        ("12", ("12",)),
    ]


def test_a_value_with_two_users_is_not_swallowed_by_a_threshold():
    way = (threshold(4), conv(1, 1, 4, 4))
    net = network(BitPlanes((2, 2, 3)), conv(1, 1, 24, 4), Residual(way))
    assert ("0",) in [step.writes for step in steps_of(net, values_of(net))]
    net = network(pixels(2, 2, 3), conv(1, 1, 3, 4), Residual(way))
    assert ("0", "1.body.0") in [step.writes for step in steps_of(net, values_of(net))]


def block(channels, stride=1, *shortcut):
    """A residual of two convolutions."""
    first = conv(3, 3, channels // stride, channels, padding=SAME, stride=(stride, stride))
    second = conv(3, 3, channels, channels, padding=SAME)
    return Residual((threshold(channels // stride), first, threshold(channels), second), shortcut)


RESIDUAL = (
    pixels(4, 4, 3),
    conv(3, 3, 3, 16, padding=SAME),
    *(block(16), block(16), block(32, 2, Pool("max"), PadChannels(8, 8)), block(32)),
    threshold(32),
    Flatten(),
    dense(2 * 2 * 32, 7),
)


@pytest.mark.gate
def test_a_convolution_adds_its_shortcut_and_gives_what_the_definition_gives():
    """Sums of a first layer and of residuals beside their bits, one pooled, and one that is not kept."""
    prepared = check(network(*RESIDUAL), 2, Device((9, 0)))
    assert [step.writes for step, _ in prepared._way.steps] == [
        ("0", "1.body.0"),
        *(("1.body.2",), ("1", "2.body.0")),
        *(("2.body.2",), ("3.shortcut.0", "3.body.0")),
        *(("3.body.2",), ("3", "4.body.0")),
        *(("4.body.2",), ("4.body.3",), ("5",)),
        *(("6",), ("7",)),
    ]


@pytest.mark.parametrize(
    ("layers", "writes"),
    [
        ((conv(3, 3, 3, 16, padding=SAME), block(16), threshold(16)), ("1.body.3",)),
        ((conv(3, 3, 3, 12, padding=SAME), block(12), block(12)), ("1.body.3",)),
        (
            (conv(3, 3, 3, 16, padding=SAME), Affine(ints(20, 25, 16), ints(0, 9, 16)), block(16)),
            ("2.body.3",),
        ),
        ((conv(3, 3, 3, 16, padding=SAME), block(32, 2, Pool("max"), PadChannels(4, 12))), ("1.body.3",)),
        (
            (conv(3, 3, 3, 16, padding=SAME), Residual((threshold(16), conv(1, 1, 16, 16), Clip(-9)))),
            ("1.body.1",),
        ),
    ],
    ids=["sums that nothing reads", "12 channels", "32 bits", "4 channels in front", "a clip"],
)
def test_other_residuals_have_launches_of_their_own(layers, writes):
    prepared = gpu.bnn.prepare(network(pixels(8, 12, 3), *layers), device=Device((9, 0)))
    assert writes in [step.writes for step, _ in prepared._way.steps]


def test_residuals_are_joined_where_the_chip_has_warpgroups_and_the_scheme_is_theirs():
    net = network(*RESIDUAL)
    for device, schemes in ((Device((8, 0)), {}), (Device((9, 0)), {"Conv": "btc1"})):
        prepared = gpu.bnn.prepare(net, device=device, schemes=schemes)
        assert ("1.body.3",) in [step.writes for step, _ in prepared._way.steps]


@pytest.mark.gate
def test_full_words_are_flattened_without_a_launch():
    prepared = gpu.bnn.prepare(network(*RESIDUAL), device=Device((9, 0)))
    launched = prepared.launches(prepared.device.upload(images(prepared.network.input, 2)))
    assert ("6",) not in [step.step.paths for step in launched]


@pytest.mark.parametrize("word", [32, 64, 128])
@pytest.mark.parametrize("first", ["lsb", "msb"])
def test_weights_of_any_format_become_that_of_kernels(word, first):
    matrix, filters = signs(70, 5), signs(2, 3, 37, 9)
    for layout in ("row", "column"):
        got = matrix_along_k(pack(matrix, layout=layout, word=word, first=first))
        np.testing.assert_array_equal(got.words, pack(matrix, layout="row", first="lsb").words)
    for layout in ("HWOI", "HWIO", *(("HWOI-FSB",) if (word, first) == (32, "lsb") else ())):
        got = filters_along_c(pack_tensor(filters, layout=layout, word=word, first=first))
        np.testing.assert_array_equal(got.words, pack_tensor(filters, layout="HWOI").words)


@pytest.mark.slow
def test_runs_of_several_sizes_and_of_device_arrays_repeat():
    net, device = network(*SMALL["conv of pixels"]), Device()
    prepared = gpu.bnn.prepare(net, schemes=CHEAP, device=device)
    batches = [images(net.input, count) for count in (1, 2, 1, 1, 2, 1)]
    there = device.upload(batches[1])
    for given in batches:
        np.testing.assert_array_equal(prepared.run(given).sums, reference.bnn.run(net, given).sums)
        there.upload(given[:1].repeat(2, 0))
        answer = prepared.run(there)
        np.testing.assert_array_equal(answer.sums.download()[1:], reference.bnn.run(net, given[:1]).sums)
    assert len(prepared._batches) == 1
    assert len(prepared._pieces._places) == 2


def test_a_run_on_the_device_can_be_captured():
    net, device = network(*SMALL["dense of pixels"]), Device()
    prepared, given = gpu.bnn.prepare(net, schemes=CHEAP, device=device), images(net.input, 2)
    there = device.upload(given)
    prepared.run(there)
    with device.capture() as graph:
        answer = prepared.run(there)
    graph.launch()
    np.testing.assert_array_equal(answer.classes.download(), reference.bnn.run(net, given).classes)


def test_images_that_do_not_fit_run_in_parts(monkeypatch):
    net = network(*SMALL["dense of pixels"])
    monkeypatch.setattr(gpu.bnn.network, "LARGEST", 150)  # two images of 70
    given, device = images(net.input, 5), Device()
    prepared = gpu.bnn.prepare(net, schemes=CHEAP, device=device)
    np.testing.assert_array_equal(prepared.run(given).logits, reference.bnn.run(net, given).logits)
    with pytest.raises(ShapeError, match="at most 2 of this network"):
        prepared.run(device.upload(given))


@pytest.mark.parametrize("sums", [[-5, 3, 3, -9], [2**31 - 1, 2**24 + 1, -(2**31), 0]])
def test_logits_round_twice_and_the_first_largest_wins(sums):
    layers = (Affine(np.zeros(4, np.int32), np.array(sums, np.int32)),)
    one = np.ones(4, np.int32)
    scale, offset = np.array([1.1, 0.3, 0.3, 7e-9], np.float32), np.array([9, 0.1, 0.1, -3], np.float32)
    net = Network("logits", Pixels((4,), one, one), layers, scale, offset)
    check(net, 1)


@pytest.mark.parametrize(
    ("value", "error"), [(np.nan, NotANumberError), (np.inf, NotANumberError), (65.0, RangeError)]
)
@pytest.mark.parametrize("where", ["host", "device"])
def test_a_number_that_integers_cannot_hold_is_refused(value, error, where):
    net, device = network(Reals((4,), fraction=9), dense(4, 2)), Device()
    prepared = gpu.bnn.prepare(net, schemes=CHEAP, device=device)
    good, bad = np.zeros((2, 4), np.float32), np.zeros((2, 4), np.float32)
    bad[1, 2] = value
    if where == "device":
        prepared.run(device.upload(bad))
        with pytest.raises(error, match=r"images\[1, 2\] is"):
            device.synchronize()
    with pytest.raises(error) as of_reference:
        reference.bnn.run(net, bad)
    with pytest.raises(error) as of_gpu:
        prepared.run(bad)
    assert str(of_gpu.value) == str(of_reference.value)
    assert (prepared.run(good).sums == 0).all()


def test_a_nan_of_signs_is_refused():
    net = network(Signs((3,), np.zeros(3, np.float32)), dense(3, 2))
    with pytest.raises(NotANumberError, match=r"images\[0, 1\] is nan"):
        gpu.bnn.run(net, np.array([[1, np.nan, 2]], np.float32), schemes=CHEAP, device=Device())
    assert gpu.bnn.run(net, np.ones((1, 3), np.uint8), schemes=CHEAP, device=Device()).sums.shape == (1, 2)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (np.zeros((2, 3), np.uint8), ShapeError),
        (np.zeros((0, 4), np.uint8), ShapeError),
        (np.zeros((2, 4), np.float32), DtypeError),
    ],
)
def test_images_of_another_shape_or_dtype_are_refused_as_by_the_reference(given, error):
    net = network(pixels(4), dense(4, 2))
    with pytest.raises(error) as of_reference:
        reference.bnn.run(net, given)
    with pytest.raises(error) as of_gpu:
        gpu.bnn.run(net, given, schemes=CHEAP, device=Device())
    assert str(of_gpu.value) == str(of_reference.value)


@pytest.mark.parametrize("schemes", [{"Conv": "bmm32"}, {"3": "bconv64"}, {"Dense": "btc9"}])
def test_schemes_that_cannot_be_are_refused(schemes):
    net = network(BitPlanes((2, 2, 1)), conv(2, 2, 8, 3), threshold(3), Flatten(), dense(3, 2))
    with pytest.raises(SchemeError, match=next(iter(schemes.values()))):
        gpu.bnn.prepare(net, schemes=schemes, device=Device())


@pytest.mark.parametrize("path", ["7", "1"])
def test_schemes_of_layers_that_have_none_are_refused(path):
    net = network(pixels(4), dense(4, 2), threshold(2), dense(2, 2))
    with pytest.raises(SchemeError, match=f"schemes for {path}: "):
        gpu.bnn.prepare(net, schemes={path: "btc1"}, device=Device())


@pytest.mark.gate
def test_a_captured_run_has_a_launch_for_each_step_and_the_answer():
    net = network(*DEEP)
    prepared, given = gpu.bnn.prepare(net, schemes=CHEAP, device=Device((8, 0))), images(net.input, 2)
    for _ in range(2):
        prepared.run(given)
    (place,) = prepared._pieces._places.values()
    assert len(place.batch.graph._launches) == len(prepared._way.steps) + 1


@pytest.mark.at_most(1)
@pytest.mark.parametrize("cc", [(8, 0), (9, 0)])
def test_launches_overlap_on_chips_that_can(cc, monkeypatch):
    launches = []
    launch = Device.launch

    def recorded(self, plan, arrays):
        launches.append((plan.name, plan.dependent))
        launch(self, plan, arrays)

    monkeypatch.setattr(Device, "launch", recorded)
    net = network(*SMALL["residual of bits"])
    gpu.bnn.run(net, images(net.input, 2), schemes=CHEAP, device=Device(cc))
    overlap = {name for name, dependent in launches if dependent}
    assert overlap == ({"bits_of_images", "integers", "dots", "answer"} if cc >= (9, 0) else set())


@pytest.mark.gate
def test_bits_of_64_channels_are_the_next_convolutions_images_as_they_are(monkeypatch):
    launches = []
    launch = Device.launch

    def recorded(self, plan, arrays):
        launches.append(plan.name)
        launch(self, plan, arrays)

    body = [layer for _ in range(2) for layer in (threshold(64), conv(1, 1, 64, 64))]
    net = network(pixels(1, 2, 2), conv(1, 1, 2, 64), Residual(tuple(body), ()), threshold(64))
    prepared = gpu.bnn.prepare(net, schemes={"Dense": "bmm32"}, device=Device((9, 0)))
    given = images(net.input, 2)
    monkeypatch.setattr(Device, "launch", recorded)
    np.testing.assert_array_equal(prepared.run(given).sums, reference.bnn.run(net, given).sums)
    assert launches.count("direct") == 2
    assert "to_units" not in launches


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.gate_cases("alexnet of*", "vgg16", "resnet14", "resnet18, *")
@pytest.mark.parametrize("name", NETWORKS)
def test_the_papers_networks_give_what_the_definition_gives(name):
    check(NETWORKS[name](), 2)


def test_images_on_another_device_are_refused():
    net, device = network(pixels(4), dense(4, 2)), Device()
    prepared = gpu.bnn.prepare(net, schemes=CHEAP, device=Device())
    with pytest.raises(DtypeError, match="all must be on one device"):
        prepared.run(device.upload(np.zeros((1, 4), np.uint8)))


# --------------------------------------------------------------------------------------------------
# The whole network in one launch
# --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.slow_cases(
    "conv of pixels with a stride", "signs of*", "wide integers by dense", "bit planes of*", "and"
)
@pytest.mark.gate_cases(  # networks of make verify have them, too
    "dense of pixels", "conv of reals", "clip", "flattened bits", "max", "or", "residual", "doubled"
)
def test_a_layer_gives_in_one_launch_what_the_definition_gives(name):
    prepared = check(network(*SMALL[name]), 3, Device(multiprocessors=2), way="whole")
    (place,) = prepared._pieces._places.values()
    assert len(place.batch.graph._launches) == 1


@pytest.mark.at_most(1)
@pytest.mark.gate
@pytest.mark.singly
@pytest.mark.parametrize("count", [1, 8, 13])
@pytest.mark.parametrize("cc", [(8, 0), (9, 0), (10, 0)])
@pytest.mark.parametrize("multiprocessors", [1, 132])
def test_a_network_gives_in_one_launch_what_the_definition_gives(cc, count, multiprocessors):
    check(network(*DEEP), count, Device(cc, multiprocessors=multiprocessors), way="whole")


@pytest.mark.at_most(1)
@pytest.mark.gate
@pytest.mark.gate_cases("alexnet*", "vgg16", "resnet14", "resnet18, *")
@pytest.mark.parametrize("name", NETWORKS)
def test_the_papers_networks_give_in_one_launch_what_the_definition_gives(name):
    check(NETWORKS[name](), 2, Device(multiprocessors=4), way="whole")


@pytest.mark.gate
@pytest.mark.gate_cases("stack-*", "*-deep")
@pytest.mark.parametrize("layers", [SMALL["residual of pools"], DEEP], ids=["small", "deep"])
@pytest.mark.parametrize("schedule", ["stack", "random"])
def test_the_order_of_blocks_changes_nothing(schedule, layers):
    check(network(*layers), 2, Device(multiprocessors=2, schedule=schedule), way="whole")


def test_one_table_of_steps_serves_bytes_and_another_floats():
    net = network(Signs((45,), RNG.integers(-1, 300, 45).astype(np.float32) / 2), dense(45, 3))
    prepared = gpu.bnn.prepare(net, way="whole", device=Device(multiprocessors=1))
    floats = np.float32([[-0.0, 0.0, 0.5] * 15, [149.5, -1.5, 1e-45] * 15])
    for given in (RNG.integers(0, 200, (2, 45), dtype=np.uint8), floats):
        np.testing.assert_array_equal(prepared.run(given).sums, reference.bnn.run(net, given).sums)


def test_steps_that_need_nothing_of_one_another_share_a_level():
    net = network(*SMALL["residual"])
    prepared = gpu.bnn.prepare(net, way="whole", device=Device(multiprocessors=1))
    kinds = [[operation.kind for operation in level] for level in prepared.whole._levels]
    assert kinds == [
        ["shorts_of_numbers"],
        ["products_of_numbers"],  # with the threshold of the body
        ["products_of_bits"],  # with the sum and the next threshold
        ["products_of_bits"],  # with the shortcut's windows and zeros, the sum and its threshold
        ["bits_flattened"],
        ["products_of_bits"],
        ["last_answer"],
    ]


@pytest.mark.parametrize(("value", "error"), [(np.nan, NotANumberError), (65.0, RangeError)])
def test_a_number_that_integers_cannot_hold_is_refused_in_one_launch(value, error):
    net = network(Reals((4,), fraction=9), dense(4, 2))
    prepared = gpu.bnn.prepare(net, way="whole", device=Device(multiprocessors=1))
    with pytest.raises(error, match=r"images\[0, 2\]"):
        prepared.run(np.array([[0, 0, value, 0]], np.float32))


def test_an_unknown_way_is_refused():
    net = network(pixels(4), dense(4, 2))
    with pytest.raises(SchemeError, match="way"):
        gpu.bnn.prepare(net, way="graph", device=Device())
