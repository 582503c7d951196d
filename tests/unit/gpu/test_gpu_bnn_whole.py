"""Whole networks in one launch on CUDA cores (SBNN) and in FSB, on the simulator."""

import numpy as np
import pytest

import gpu.bnn
from gpu.bnn import forms, tiles
from gpu.bnn.forms import InTiles, OnWords
from gpu.bnn.operations import KINDS
from gpu.bnn.plan import values_of
from reference import SchemeError, pack, pack_tensor
from reference.bnn import Flatten, Signs
from simwarp import Device
from support.bnn_networks import DEEP, NETWORKS, SMALL, check, conv, dense, network, pixels, signs, threshold

SBNN = {
    "SBNN-32": {"Conv": "bconv32", "Dense": "bmm32"},
    "SBNN-32-Fine": {"Conv": "bconv32", "Dense": "bmms32"},
    "SBNN-64": {"Conv": "bconv64", "Dense": "bmm64"},
    "SBNN-64-Fine": {"Conv": "bconv64", "Dense": "bmms64"},
}
FSB = {"Conv": "btc2", "Dense": "btc3"}
MIXED = {"Conv": "bconv64", "6.body.1": "bconv32", "7.body.1": "bconv32", "Dense": "bmm32", "12": "bmms64"}
EVERY = SBNN | {"mixed": MIXED, "FSB": FSB}
CHIPS = {name: ((7, 5), (8, 0), (9, 0)) if name == "FSB" else ((7, 5), (9, 0)) for name in EVERY}


def two_layers():
    """A convolution of bits with its pool, and a dense layer."""
    zeros = np.zeros(40, np.float32)
    return network(Signs((2, 2, 40), zeros), conv(1, 1, 40, 70), threshold(70), Flatten(), dense(280, 3))


def whole(net, cc=(9, 0), multiprocessors=4, **options):
    return gpu.bnn.prepare(
        net, way="whole", device=Device(cc, multiprocessors=multiprocessors), **options
    ).whole


# --------------------------------------------------------------------------------------------------
# Answers
# --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.at_most(4)
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("form", EVERY)
def test_a_layer_gives_in_one_launch_what_the_definition_gives(name, form):
    schemes = {key: value for key, value in EVERY[form].items() if key in ("Conv", "Dense")}
    check(network(*SMALL[name]), 3, Device((7, 5), multiprocessors=2), way="whole", schemes=schemes)


@pytest.mark.parametrize("form", ["SBNN-64", "FSB"])
def test_vectors_are_flat(form):
    layers = dense(9, 40), threshold(40), Flatten(), dense(40, 3)
    net = network(Signs((9,), np.zeros(9, np.float32)), *layers)
    check(net, 3, Device((8, 0), multiprocessors=2), way="whole", schemes=EVERY[form])


@pytest.mark.gate
@pytest.mark.parametrize("count", [1, 8, 13])
@pytest.mark.parametrize(("form", "cc"), [(form, cc) for form, several in CHIPS.items() for cc in several])
def test_a_network_gives_in_one_launch_what_the_definition_gives(form, cc, count):
    check(network(*DEEP), count, Device(cc, multiprocessors=2), way="whole", schemes=EVERY[form])


@pytest.mark.gate
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("form", ["SBNN-32", "SBNN-64-Fine", "FSB"])
def test_the_papers_networks_give_in_one_launch_what_the_definition_gives(name, form):
    net = NETWORKS[name]()
    kinds = {type(layer).__name__ for layer in net.layers}
    schemes = {kind: scheme for kind, scheme in EVERY[form].items() if kind in kinds | {"Conv"}}
    check(net, 2, Device((7, 5), multiprocessors=4), way="whole", schemes=schemes)


@pytest.mark.gate
@pytest.mark.parametrize("schedule", ["stack", "random"])
@pytest.mark.parametrize("form", ["mixed", "FSB"])
def test_the_order_of_blocks_changes_nothing(schedule, form):
    device = Device((7, 5), multiprocessors=2, schedule=schedule)
    check(network(*DEEP), 2, device, way="whole", schemes=EVERY[form])


@pytest.mark.gate
@pytest.mark.parametrize(
    ("form", "threads"), [("", 64), ("", 512), ("SBNN-64", 256), ("FSB", 32), ("FSB", 512)]
)
@pytest.mark.parametrize("blocks", [1, 2])
def test_any_blocks_and_threads_give_the_same(form, threads, blocks):
    schemes = EVERY.get(form, {})
    device = Device((9, 0), multiprocessors=2)
    check(network(*DEEP), 3, device, way="whole", schemes=schemes, threads=threads, blocks=blocks)


@pytest.mark.slow
def test_long_products_take_their_fallback_in_one_launch():
    k = 2**16
    net = network(Signs((k,), np.zeros(k, np.float32)), dense(k, 1))
    prepared = check(net, 1, Device((7, 5)), way="whole", schemes={"Dense": "bmm64"})
    assert [operation.kind for operation in prepared.whole._lowering.operations][-1] == "bmms64"


# --------------------------------------------------------------------------------------------------
# Which kernel
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cc", "schemes", "source", "kinds"),
    [
        ((7, 5), {}, "whole_words", ("bconv64", "bmms64")),
        ((8, 0), {}, "whole", ("products_of_bits", "products_of_bits")),
        ((9, 0), {"Dense": "auto"}, "whole", ("products_of_bits", "products_of_bits")),
        ((9, 0), SBNN["SBNN-32"], "whole_words", ("bconv32", "bmm32")),
        ((7, 5), SBNN["SBNN-64"], "whole_words", ("bconv64", "bmm64")),
        ((9, 0), {"Dense": "bmms32"}, "whole_words", ("bconv64", "bmms32")),
        ((9, 0), {"0": "bconv32", "3": "bmms64"}, "whole_words", ("bconv32", "bmms64")),
        ((7, 5), {"Conv": "btc2"}, "whole_fsb", ("products_of_tiles", "products_of_tiles")),
        ((9, 0), {"Dense": "btc3"}, "whole_fsb", ("products_of_tiles", "products_of_tiles")),
    ],
)
def test_schemes_choose_the_kernel(cc, schemes, source, kinds):
    made = whole(two_layers(), cc, schemes=schemes)
    found = tuple(each.kind for each in made._lowering.operations if each.kind not in KINDS[2:])
    assert (made.form.source, found) == (source, kinds)


@pytest.mark.parametrize(
    ("schemes", "message"),
    [
        ({"0": "bmms32"}, "^scheme of layer 0 with way=\"whole\"='bmms32'\n.*\nchoose one of bconv32"),
        ({"Dense": "wgmma"}, "(?s)^scheme of layer 3 .*bmms64, btc3, auto$"),
        (
            {"Conv": "bconv32", "Dense": "btc3"},
            r"^layer 3 \(Dense\): scheme='btc3' .* layer 0 has 'bconv32'\n",
        ),
        ({"Conv": "btc2", "3": "bmm64"}, "\none kernel computes all layers: in tiles .* or on CUDA cores\n"),
        ({"5": "bmm32"}, "^schemes for 5: "),
    ],
)
def test_schemes_that_one_kernel_does_not_have_are_refused_by_the_layer(schemes, message):
    with pytest.raises(SchemeError, match=message):
        whole(two_layers(), schemes=schemes)


def test_fine_grained_products_have_more_tiles():
    made = {name: whole(two_layers(), schemes=schemes) for name, schemes in SBNN.items()}
    tiles_of = {name: each.form.tiles(each._lowering.operations[-1], 100) for name, each in made.items()}
    assert tiles_of == {"SBNN-32": 4, "SBNN-32-Fine": 7, "SBNN-64": 2, "SBNN-64-Fine": 7}


# --------------------------------------------------------------------------------------------------
# Blocks and threads
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schemes", [{}, SBNN["SBNN-32"], FSB], ids=["", "SBNN-32", "FSB"])
def test_blocks_are_as_many_as_asked_or_as_are_resident(schemes):
    net = two_layers()
    threads = forms.form_of(net, schemes, Device()).threads
    resident = 4 * forms.blocks_at_once(threads)
    for blocks in (None, 1, 3, resident):
        made = whole(net, schemes=schemes, blocks=blocks)
        assert made._table(2000, "float32", keep=False, waits=True).blocks == (blocks or resident)
    with pytest.raises(
        SchemeError, match=f"(?s)blocks={resident + 1} of {threads} threads.*\ngive 1 to {resident}$"
    ):
        whole(net, schemes=schemes, blocks=resident + 1)


def test_threads_decide_how_many_blocks_are_resident():
    for threads, blocks in ((32, 64), (64, 32), (256, 8), (512, 4)):
        assert whole(two_layers(), schemes=FSB, threads=threads).geometry == forms.Geometry(threads, blocks)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 32}, "^threads=32\n.*\nchoose one of 64, 128, 256, 512$"),
        ({"threads": 48, "schemes": FSB}, "^threads=48\n.*\nchoose one of 32, 64"),
        ({"threads": 1024}, "^threads=1024\n"),
        ({"blocks": 0}, "^blocks=0 of 256 threads"),
        ({"blocks": True}, "^blocks=True"),
        ({"blocks": 2.0}, r"^blocks=2\.0"),
    ],
)
def test_blocks_and_threads_that_cannot_be_are_refused(options, message):
    with pytest.raises(SchemeError, match=message):
        whole(two_layers(), **options)


@pytest.mark.parametrize("name", ["blocks", "threads"])
def test_blocks_and_threads_are_for_one_launch(name):
    with pytest.raises(SchemeError, match=f'^{name}=64 with way="layers"'):
        gpu.bnn.prepare(two_layers(), device=Device(), **{name: 64})


# --------------------------------------------------------------------------------------------------
# Layouts
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", [32, 64])
def test_filters_in_words_are_those_of_the_listings(word):
    matrix = signs(70, 5)
    words = tiles.words_of_bits((matrix > 0).astype(np.uint8)[None, None], word)
    np.testing.assert_array_equal(words[:, :5], pack(matrix, layout="row", word=word, first="lsb").words)
    assert words.shape == (-(-70 // word), 64)
    assert not words[:, 5:].any()


def test_filters_in_tiles_are_those_of_fsb():
    filters = signs(2, 3, 130, 41)
    tiled = tiles.tiles_of_bits((filters > 0).astype(np.uint8))  # (groups of 32, pieces, 4, 8, 4)
    fsb = pack_tensor(filters, layout="HWOI-FSB").words  # (R, S, O / 8, units, 8, 4)
    expected = fsb.transpose(2, 0, 1, 3, 4, 5).reshape(6, 12, 8, 4)
    got = tiled.transpose(0, 2, 1, 3, 4).reshape(8, 12, 8, 4)
    np.testing.assert_array_equal(got[:6], expected)
    assert not got[6:].any()


@pytest.mark.parametrize("batch", [1, 8, 13])
def test_values_in_tiles_are_those_of_fsb(batch):
    images = signs(batch, 3, 2, 130)
    value = values_of(network(Signs((3, 2, 130), np.zeros(130, np.float32)), Flatten(), dense(780, 1)))[
        "input"
    ]
    memory = pack_tensor(images, layout="HWNC-FSB").words.reshape(-1).view(np.uint8)
    form = InTiles({}, Device())
    np.testing.assert_array_equal(form.bits(memory, value, batch), images > 0)


def test_kernels_read_steps_as_the_host_writes_them():
    """The sizes of the structures: 4 bytes a field."""
    fields = {"whole": forms.Form, "words": OnWords, "FSB": InTiles}
    sizes = {name: form.step.itemsize // 4 for name, form in fields.items()}
    assert sizes["words"] == sizes["FSB"] == sizes["whole"] + 4
    assert all(len(form.step.names) == sizes[name] for name, form in fields.items())


def test_an_integer_layer_has_no_scheme():
    made = whole(network(pixels(4), dense(4, 2), threshold(2), dense(2, 2)), schemes={"Dense": "bmm32"})
    kinds = [operation.kind for operation in made._lowering.operations]
    assert kinds == ["shorts_of_numbers", "numbers_by_bytes", "bmm32"]
