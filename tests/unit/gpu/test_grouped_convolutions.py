"""Convolutions in groups: a group is a convolution over a slice of the channels, in every tier and scheme."""

from pathlib import Path
from shutil import copytree

import numpy as np
import pytest

import gpu
import gpu.bnn
import gpu.compile
import reference
import simwarp
from gpu.bconv.schemes import EVERY_SCHEME
from reference import FormatError, SchemeError, ShapeError, pack, pack_tensor
from reference.bnn import (
    BitPlanes,
    Conv,
    Dense,
    Flatten,
    Network,
    Pixels,
    Pool,
    Residual,
    Threshold,
    load,
    run,
    save,
    values,
)
from reference.types.network_values import after, input_value, multiply_adds

SKEWED = {"stride": (1, 2), "padding": ((1, 0), (2, 1)), "dilation": (2, 1)}
SIZES = [(6, 4, 2), (66, 70, 2), (96, 33, 3), (5, 10, 5)]
"""Channels, filters and groups: parts of a word, across words, whole words, and a channel for each group."""


def signs(*shape, seed=0):
    return np.random.default_rng(seed).choice(np.array([-1, 1], np.int8), shape)


def by_loops(x, w, groups, stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1)):
    """The sums, one after the other; taps outside the image are left out."""
    (n, height, width, _), (rows, columns, channels, filters) = x.shape, w.shape
    (top, bottom), (left, right) = padding
    down = (height + top + bottom - (rows - 1) * dilation[0] - 1) // stride[0] + 1
    across = (width + left + right - (columns - 1) * dilation[1] - 1) // stride[1] + 1
    y = np.zeros((n, down, across, filters), np.int64)
    for p, q, r, s, o in np.ndindex(down, across, rows, columns, filters):
        row, column = p * stride[0] - top + r * dilation[0], q * stride[1] - left + s * dilation[1]
        if 0 <= row < height and 0 <= column < width:
            first = o // (filters // groups) * channels
            y[:, p, q, o] += x[:, row, column, first : first + channels].astype(int) @ w[r, s, :, o].astype(
                int
            )
    return y


def operands(channels, filters, groups):
    return signs(2, 5, 4, channels), signs(3, 2, channels // groups, filters, seed=1)


def halves():
    """Images of ones, 2 * 4 channels, and six filters: the first half of ones, the second of -1."""
    w = np.ones((3, 3, 4, 6), np.int8)
    w[..., 3:] = -1
    return np.ones((1, 4, 5, 8), np.int8), w


# --------------------------------------------------------------------------------------------------
# bconv2d
# --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_each_half_of_the_filters_reads_its_half_of_the_channels():
    x, w = halves()
    wanted = np.broadcast_to([36, 36, 36, -36, -36, -36], (1, 2, 3, 6))
    np.testing.assert_array_equal(reference.bconv2d(x, w, groups=2, padding="VALID"), wanted)
    y = gpu.bconv2d(x, w, groups=2, padding="VALID", device=simwarp.Device())
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("sizes", [*SIZES, (8, 8, 8), (64, 2, 1)])
def test_the_reference_is_the_sum_of_each_group(sizes):
    x, w = operands(*sizes)
    wanted = by_loops(x, w, sizes[2], **SKEWED)
    np.testing.assert_array_equal(reference.bconv2d(x, w, groups=sizes[2], **SKEWED), wanted)
    packed = pack_tensor(x, layout="NHWC", word=64), pack_tensor(w, layout="HWIO", first="msb")
    np.testing.assert_array_equal(reference.bconv2d(*packed, groups=sizes[2], **SKEWED), wanted)


def test_torch_has_the_same_sums():
    torch = pytest.importorskip("torch")
    for channels, filters, groups in SIZES:
        x, w = operands(channels, filters, groups)
        images, kernels = torch.from_numpy(x).permute(0, 3, 1, 2), torch.from_numpy(w).permute(3, 2, 0, 1)
        y = torch.nn.functional.conv2d(images.double(), kernels.double(), padding=(1, 2), groups=groups)
        found = reference.bconv2d(x, w, padding=(1, 2), groups=groups)
        np.testing.assert_array_equal(found, y.permute(0, 2, 3, 1).numpy())


@pytest.mark.slow
@pytest.mark.at_most(2)
@pytest.mark.parametrize("scheme", EVERY_SCHEME)
@pytest.mark.parametrize("sizes", SIZES)
def test_every_scheme_and_output(scheme, sizes):
    x, w = operands(*sizes)
    options = {**SKEWED, "groups": sizes[2], "scheme": scheme, "device": simwarp.Device()}
    wanted = by_loops(x, w, sizes[2], **SKEWED).astype(np.int32)
    np.testing.assert_array_equal(gpu.bconv2d(x, w, **options), wanted)
    limits, flip = np.arange(sizes[1], dtype=np.int32) % 7 - 3, np.arange(sizes[1]) % 3 == 0
    for pool in (None, "or", "and"):
        bits = gpu.bconv2d(x, w, thresholds=limits, flip=flip, pool=pool, **options)
        expected = reference.threshold_tensor(wanted, limits, flip, pool=pool)
        assert bits.shape == expected.shape
        np.testing.assert_array_equal(bits.words, expected.words)


@pytest.mark.slow
def test_shorts_of_warpgroups():
    x, w = operands(6, 4, 2)
    y = gpu.bconv2d(x, w, groups=2, scheme="wgmma", dtype=np.int16, device=simwarp.Device(), **SKEWED)
    assert y.dtype == np.int16
    np.testing.assert_array_equal(y, by_loops(x, w, 2, **SKEWED))


@pytest.mark.parametrize("word", [32, 64, 128])
@pytest.mark.parametrize("scheme", ["bconv32", "bconv64"])
def test_packed_operands_of_host_and_device(word, scheme):
    x, w = operands(66, 4, 2)
    device, wanted = simwarp.Device(), by_loops(x, w, 2, **SKEWED)
    packed = [pack_tensor(one, layout=of, word=word) for one, of in ((x, "NHWC"), (w, "HWOI"))]
    options = {**SKEWED, "groups": 2, "scheme": scheme}
    np.testing.assert_array_equal(gpu.bconv2d(*packed, device=device, **options), wanted)
    there = [
        reference.types.PackedTensor(device.upload(p.words, "p"), p.shape, p.layout, word, "lsb")
        for p in packed
    ]
    y = gpu.bconv2d(*there, **options)
    np.testing.assert_array_equal(y.download(), wanted)


def test_operands_that_cannot_be_cut_are_refused():
    x, w = operands(6, 4, 2)
    device = simwarp.Device()
    ready = gpu.prepare(x, "x", scheme="bconv32", device=device)
    with pytest.raises(SchemeError, match=r"x is prepared, and groups is not 1\n.*\ngive the tensor"):
        gpu.bconv2d(ready, w, groups=2)
    with pytest.raises(FormatError, match=r"x of .* is packed with layout='HWNC'"):
        gpu.bconv2d(pack_tensor(x, layout="HWNC"), w, groups=2, device=device)
    with pytest.raises(
        ShapeError, match=r"groups=4: x has 6 channels, w 4 filters of 3\n.*\ngive w of shape"
    ):
        gpu.bconv2d(x, w, groups=4, device=device)
    with pytest.raises(ShapeError, match=r"w 3 filters of 3"):
        gpu.bconv2d(x, w[..., :3], groups=2, device=device)


FAULTS = {
    "nothing": ("unsigned bits = 0;\n    if (first", "unsigned bits = 0;\n    if (first"),
    "bits of the next word are lost": ("if (shift + count > word_bits)", "if (false)"),
    "bits of the next group are kept": ("return bits & mask;", "return bits;"),
    "all groups have the first channels": ("group * channels + first", "first"),
    "all groups have the first filters": ("(tap * groups + group) * filters", "tap * groups * filters"),
    "AND as OR": ("(ones == window * window)", "(ones != 0)"),
}


@pytest.mark.at_most(3)
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault, tmp_path, monkeypatch):
    sources = Path(gpu.compile.__file__).parent
    for part in ("bmm", "bconv", "include"):
        copytree(sources / part, tmp_path / part)
    file, (old, new) = tmp_path / "bconv" / "groups.cu", FAULTS[fault]
    assert file.read_text().count(old) == 1
    file.write_text(file.read_text().replace(old, new))
    monkeypatch.setattr(gpu.compile, "_PACKAGE", tmp_path)
    x, w = operands(66, 6, 2)
    rule = {"thresholds": np.zeros(6, np.int32), "pool": "and", "scheme": "bconv32"}
    found = gpu.bconv2d(x, w, groups=2, **rule, **SKEWED, device=simwarp.Device())
    wanted = reference.bconv2d(x, w, groups=2, **SKEWED)
    wanted = reference.threshold_tensor(wanted, rule["thresholds"], pool="and")
    assert np.array_equal(found.words, wanted.words) == (fault == "nothing")


# --------------------------------------------------------------------------------------------------
# Networks
# --------------------------------------------------------------------------------------------------


def conv(rows, columns, channels, filters, groups, **options):
    weights = signs(rows, columns, channels // groups, filters, seed=channels + filters)
    return Conv(pack_tensor(weights, layout="HWOI"), groups=groups, **options)


def threshold(channels, most):
    rng = np.random.default_rng(most)
    return Threshold(rng.integers(-most, most, channels).astype(np.int32), rng.integers(0, 2, channels) == 1)


def network(given, *layers):
    value = input_value(given)
    for layer in layers:
        value = after(layer, value)
    size = int(np.prod(value.shape))
    dense = Dense(pack(signs(size, 3), layout="row"))
    return Network(
        "groups", given, (*layers, Flatten(), dense), np.ones(3, np.float32), np.zeros(3, np.float32)
    )


PIXELS = Pixels((5, 4, 4), np.array([1, -2, 3, 1], np.int32), np.array([9, 250, -300, 0], np.int32))
NETWORKS = {
    "of the image": (
        PIXELS,
        conv(3, 3, 4, 6, 2, padding=1),
        threshold(6, 900),
        conv(2, 2, 6, 9, 3, stride=(1, 2)),
    ),
    "of integers": (PIXELS, conv(3, 3, 4, 6, 2), conv(3, 2, 6, 6, 3, padding=1, dilation=(1, 2))),
    "a channel each, pooled": (
        BitPlanes((5, 4, 1)),
        conv(3, 3, 8, 16, 8, padding=1),
        threshold(16, 3),
        Pool("or"),
        conv(1, 1, 16, 70, 2),
    ),
    "of a residual": (
        PIXELS,
        conv(3, 3, 4, 66, 1, padding=1),
        Residual((threshold(66, 900), conv(3, 3, 66, 66, 2, padding=1))),
        threshold(66, 900),
    ),
}


@pytest.mark.slow
@pytest.mark.at_most(3)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(
    "options",
    [{}, {"way": "whole"}, {"schemes": {"Conv": "btc2"}}, {"cc": (8, 0)}],
    ids=["", "whole", "btc2", "sm_80"],
)
def test_networks_have_the_values_of_the_reference(name, options):
    net = network(*NETWORKS[name])
    images = np.random.default_rng(1).integers(0, 256, (2, *net.input.shape), dtype=np.uint8)
    options = dict(options)
    device = simwarp.Device(cc=options.pop("cc", (9, 0)))
    prepared, wanted = gpu.bnn.prepare(net, device=device, **options), dict(values(net, images))
    for path, value in prepared.values(images):
        np.testing.assert_array_equal(value, wanted[path], err_msg=path)
    for _ in range(2):  # the second run is a graph
        np.testing.assert_array_equal(prepared.run(images).sums, run(net, images).sums)


def test_a_network_has_the_sums_of_each_group():
    images = np.random.default_rng(1).integers(0, 256, (2, 5, 4, 4), dtype=np.uint8)
    layer = conv(3, 2, 4, 6, 2, **SKEWED)
    found = dict(values(network(PIXELS, layer), images))
    filters = 2 * reference.unpack_tensor(layer.filters).astype(int) - 1
    np.testing.assert_array_equal(found["0"], by_loops(found["input"], filters, 2, **SKEWED))


def test_groups_of_a_layer_are_checked_counted_and_named():
    value = input_value(PIXELS)
    layer = conv(3, 3, 4, 6, 2)
    assert multiply_adds(layer, after(layer, value)) == 9 * 2 * 6 * 3 * 2
    assert layer.detail == "3×3, stride 1×1, 2 groups"
    assert after(layer, value).high == 9 * 2 * max(abs(value.low), value.high)
    with pytest.raises(
        ShapeError,
        match=r"the input has 4 channels, for 6 filters of 2 channels in 4 groups\n.*\n"
        "give filters",
    ):
        after(Conv(layer.filters, groups=4), value)
    with pytest.raises(
        ShapeError,
        match=r"the input has 4 channels, for 5 filters of 2 channels in 2 "
        "groups",
    ):
        after(Conv(pack_tensor(signs(3, 3, 2, 5), layout="HWOI"), groups=2), value)
    with pytest.raises(ShapeError, match="groups is 0: give an integer of at least 1"):
        after(Conv(layer.filters, groups=0), value)


def test_files_have_groups_where_there_are_some(tmp_path):
    """A file without groups is as it was before there were any."""
    path = tmp_path / "net.safetensors"
    net = network(PIXELS, conv(3, 3, 4, 6, 2), threshold(6, 900), conv(1, 1, 6, 4, 1))
    save(net, path)
    assert [layer.groups for layer in load(path).layers if isinstance(layer, Conv)] == [2, 1]
    assert path.read_bytes().count(b'groups\\":') == 1
