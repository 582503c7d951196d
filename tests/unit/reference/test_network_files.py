"""Files of binarized networks: what is written is read again, and nothing else is."""

import json
import os
import sys
import types
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from reference import (
    FormatError,
    InputFileError,
    MissingExtraError,
    RangeError,
    SchemeError,
    pack,
    pack_tensor,
)
from reference.bnn import (
    Affine,
    BitPlanes,
    Clip,
    Conv,
    Dense,
    Flatten,
    Network,
    PadChannels,
    Pixels,
    Pool,
    Reals,
    Residual,
    Signs,
    Threshold,
    load,
    mlp,
    resnet14,
    run,
    save,
)
from reference.types.network_values import follow, input_value

numpy_files = pytest.importorskip("safetensors.numpy", reason="network files need simwarp[net]")
KEY = "simwarp.network"


def signs(rng, *shape):
    return rng.choice(np.array([-1, 1], np.int8), shape)


def ints(rng, channels, limit=9):
    return rng.integers(-limit, limit + 1, channels).astype(np.int32)


def inputs(rng, kind, shape):
    channels = shape[-1]
    return {
        "pixels": lambda: Pixels(shape, ints(rng, channels), ints(rng, channels, 300)),
        "reals": lambda: Reals(shape, int(rng.integers(0, 16))),
        "signs": lambda: Signs(shape, rng.normal(128, 40, channels).astype(np.float32)),
        "planes": lambda: BitPlanes(shape),
    }[kind]()


def threshold(rng, channels):
    return Threshold(ints(rng, channels), rng.random(channels) < 0.5)


def pointwise(rng, channels):
    return Conv(pack_tensor(signs(rng, 1, 1, channels, channels), layout="HWOI"))


FORMATS = [
    ("HWOI", 32, "lsb"),
    ("HWIO", 64, "msb"),
    ("HWOI-FSB", 32, "lsb"),
    ("HWOI", 64, "msb"),
    ("HWIO", 128, "msb"),
]


def layer(rng, value):
    """Any layer that fits a value of three dimensions."""
    channels = value.shape[-1]
    if value.kind == "bits" and rng.random() < 0.3:
        return Pool(str(rng.choice(["or", "and"])), (2, 1), (1, 2), ((0, 0), (0, 0)))
    if value.kind == "bits" or rng.random() < 0.3:
        layout, word, first = FORMATS[rng.integers(len(FORMATS))]
        weights = signs(rng, 3, 2, channels, int(rng.integers(1, 40)))
        packed = pack_tensor(weights, layout=layout, word=word, first=first)
        return Conv(packed, (1, int(rng.integers(1, 3))), ((1, 1), (1, int(rng.integers(2)))), (1, 1))
    return [
        lambda: threshold(rng, channels),
        lambda: Affine(ints(rng, channels, 3), ints(rng, channels)),
        lambda: Clip(-20, None if rng.random() < 0.5 else 30),
        lambda: PadChannels(1, 2),
        lambda: Pool("max" if rng.random() < 0.5 else "sum", (1, 2), (2, 1), ((0, 0), (1, 0))),
        lambda: Residual((threshold(rng, channels), pointwise(rng, channels)), (Clip(0),)),
    ][rng.integers(6)]()


def flowing(given, layers):
    """What the last layer gives."""
    value = input_value(given)
    for _, _, after in follow(types.SimpleNamespace(input=given, layers=layers)):
        value = after
    return value


def drawn(seed, kind, depth):
    """A network of any layers, and images for it."""
    rng = np.random.default_rng(seed)
    given = inputs(rng, kind, (3, 4, int(rng.integers(1, 5))))
    layers = ()
    for _ in range(depth):
        layers = (*layers, layer(rng, flowing(given, layers)))
    last = flowing(given, (*layers, Flatten()))
    form = {"layout": "row" if rng.random() < 0.8 else "column", "word": 128 if rng.random() < 0.5 else 32}
    weights = pack(signs(rng, last.shape[0], 3), **form)
    scale, offset = rng.standard_normal((2, 3)).astype(np.float32)
    classes = ("á", "b", "") if rng.random() < 0.5 else ()
    network = Network("drawn ±1", given, (*layers, Flatten(), Dense(weights)), scale, offset, classes, "α")
    floats = kind == "reals"
    shape = (2, *given.shape)
    images = rng.normal(0, 0.3, shape).astype(np.float32) if floats else rng.integers(0, 256, shape, np.uint8)
    return network, images


def parts(value):
    """All that a network holds, to be compared."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, tuple):
        return tuple(parts(one) for one in value)
    if hasattr(value, "__dataclass_fields__"):
        return type(value).__name__, tuple(parts(getattr(value, one.name)) for one in fields(value))
    return value


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["pixels", "reals", "signs", "planes"]), st.integers(0, 4))
def test_a_network_is_read_as_it_was_written(tmp_path_factory, seed, kind, depth):
    try:
        network, images = drawn(seed, kind, depth)
    except RangeError:  # its integers may reach beyond int32
        assume(False)
    path = tmp_path_factory.mktemp("networks") / "x.safetensors"
    save(network, path)
    again = load(path)
    assert parts(again) == parts(network)
    np.testing.assert_array_equal(run(again, images).logits, run(network, images).logits)


def test_the_papers_networks_are_read_as_they_were_written(tmp_path):
    for network in (mlp(width=32), *(resnet14(size=8, width=16, shortcut=s) for s in ("A", "B", "bireal"))):
        save(network, tmp_path / "x.safetensors")
        assert parts(load(tmp_path / "x.safetensors")) == parts(network)


def test_equal_networks_make_equal_files(tmp_path):
    for name in "ab":
        save(resnet14(size=8, width=32), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


# ---- damaged files -------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    """A small file with all kinds of fields."""
    rng = np.random.default_rng(2)
    network = Network(
        "small",
        Pixels((2, 3, 1), ints(rng, 1), ints(rng, 1)),
        (
            Conv(pack_tensor(signs(rng, 1, 2, 1, 3), layout="HWOI"), (1, 1), ((0, 0), (0, 0)), (1, 1)),
            Residual((Affine(ints(rng, 3), ints(rng, 3)),), (Clip(-3, 5),)),
            threshold(rng, 3),
            Pool("or", (1, 1), (1, 1)),
            Flatten(),
            Dense(pack(signs(rng, 12, 2), layout="row")),
        ),
        *rng.standard_normal((2, 2)).astype(np.float32),
        classes=("a", "b"),
    )
    save(network, tmp_path / "x.safetensors")
    return tmp_path / "x.safetensors"


def held(path):
    """The JSON and the arrays of a file."""
    from safetensors import safe_open

    with safe_open(str(path), "np") as file:
        return json.loads(file.metadata()[KEY]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def rewrite(path, described, arrays):
    rewrite_text(path, json.dumps(described), arrays)


def rewrite_text(path, text, arrays):
    path.write_bytes(numpy_files.save(arrays, metadata={KEY: text}))


def refused(path, match):
    with pytest.raises(InputFileError, match=match) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path} ")
    assert str(caught.value).endswith("give a file that reference.bnn.save wrote")


def test_a_file_cut_anywhere_is_refused(path):
    whole = path.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    ends = json.loads(whole[8:start])
    cuts = {0, 1, 7, 8, 9, start - 1, len(whole) - 1}
    cuts |= {
        start + offset
        for name, one in ends.items()
        if name != "__metadata__"
        for offset in one["data_offsets"]
    }
    for cut in sorted(cuts - {len(whole)}):
        path.write_bytes(whole[:cut])
        refused(path, "does not hold a network")
    path.write_bytes(whole + b"x")
    refused(path, "does not hold a network")


def places(value, at=()):
    """Every place in a JSON value."""
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places(one, (*at, key))


def changed(value, at, new):
    """A JSON value with a new value at a place, or without it."""
    if not at:
        return new
    copy = value.copy()
    if len(at) == 1 and new is ...:
        del copy[at[0]]
    else:
        copy[at[0]] = changed(value[at[0]], at[1:], new)
    return copy


TEXTS = {"name", "about", "classes"}
WRONG = {
    "nothing": (..., {"shortcut"}),
    "null": (None, {"low", "high"}),
    "true": (True, set()),
    "below 0": (-1, {"low", "high"}),
    "0": (0, {"padding", "low", "high"}),
    "2": (2, {"dilation", "low", "high", "input", "filters", "weights", "scale", "offset"}),
    "large": (10**9, {"dilation", "low", "high"}),
    "huge": (10**40, set()),
    "a fraction": (1.5, set()),
    "no text": ("", TEXTS),
    "a text": ("or", {*TEXTS, "kind"}),
    "half a letter": ("\ud800", set()),
    "no list": ([], {"classes", "shortcut"}),
    "lists": ([1, [2, [3]]], set()),
    "no object": ({}, set()),
    "an object": ({"type": "Conv"}, set()),
}
"""What is put in each place, and the fields in which it may make another network."""


@pytest.mark.at_most(5)
@pytest.mark.parametrize("what", WRONG)
def test_damage_in_any_place_is_refused_or_makes_another_network(path, what):
    new, fields_that_may = WRONG[what]
    described, arrays = held(path)
    for at in [at for at in places(described) if at or new is not ...]:
        rewrite(path, changed(described, at, new), arrays)
        try:
            load(path)
        except InputFileError:
            continue
        assert fields_that_may & set(at), at


def put(value, at, new):
    """A JSON value with a new value at a place, which need not exist."""
    if not at:
        return new
    copy = value.copy()
    copy[at[0]] = put(value[at[0]] if len(at) > 1 else None, at[1:], new)
    return copy


PLACES = [
    (
        ("layers", 1, "body", 0, "type"),
        "Softmax",
        r"layers.1.body.0 has the type 'Softmax': known are Conv, ",
    ),
    (("layers", 0, "strides"), [1, 1], "layers.0 has an unknown field 'strides'"),
    (("layers", 0, "stride"), [0, 1], r"layer 0 \(Conv\), given integers \(2, 3, 1\): stride is \(0, 1\)"),
    (("layers", 3, "padding"), [[0, 10**12]] * 2, "layer 3"),
    (("version",), 2, "it has version 2, and this simwarp reads version 1: install a newer simwarp"),
    (("version",), "1", "version is '1', not a number"),
    (("layers", 2, "thresholds"), 4, r"thresholds is I32 \(3,\), and its JSON says I32 \(4,\)"),
    (("layers", 5, "weights", "word"), 64, r"weights is U32 \(1, 2\), and its JSON says U64 \(1, 2\)"),
    (("layers", 5, "weights", "layout"), "NHWC", "there is no layout='NHWC'"),
    (("layers", 0, "filters", "layout"), "NHWC", "there is no layout='NHWC'"),
    (("name",), 3, "name is 3, not text"),
]


@pytest.mark.parametrize(("at", "new", "match"), PLACES, ids=[match for _, _, match in PLACES])
def test_an_error_names_the_place(path, at, new, match):
    described, arrays = held(path)
    rewrite(path, put(described, at, new), arrays)
    refused(path, match)


def test_a_missing_field_is_named(path):
    described, arrays = held(path)
    rewrite(path, changed(described, ("layers", 0, "stride"), ...), arrays)
    refused(path, "layers.0 lacks field 'stride'")


@pytest.mark.parametrize("size", [[10**6, 10**6], [2**40, 1], [1, 2**62], [12, 2**31]])
def test_a_size_that_the_file_does_not_hold_is_refused_before_it_is_allocated(path, size):
    described, arrays = held(path)
    rewrite(path, put(described, ("layers", 5, "weights", "shape"), size), arrays)
    refused(path, "its JSON says U32")


def test_arrays_and_json_belong_together(path):
    described, arrays = held(path)
    for name in arrays:
        rewrite(path, described, {key: array for key, array in arrays.items() if key != name})
        refused(path, f"it lacks the array {name}")
    rewrite(path, described, {**arrays, "layers.9.weights": np.zeros(3)})
    refused(path, "it has an unknown array 'layers.9.weights'")
    rewrite(path, described, {**arrays, "scale": arrays["scale"].astype(np.float64)})
    refused(path, r"scale is F64 \(2,\), and its JSON says F32 \(2,\)")
    rewrite(path, described, {**arrays, "scale": np.array([1, np.nan], np.float32)})
    refused(path, "scale has an element that is not finite")


@pytest.mark.parametrize(
    ("name", "bit"), [("layers.0.filters", 7), ("layers.5.weights", 0), ("layers.2.flip", 7)]
)
def test_bits_past_the_edge_are_refused(path, name, bit):
    described, arrays = held(path)
    words = arrays[name].copy()
    words.reshape(-1)[0] ^= words.dtype.type(1 << bit)
    rewrite(path, described, {**arrays, name: words})
    refused(path, f"{name} has .*bits ")


STRANGE = {
    "empty": ("", "its JSON cannot be read"),
    "lists": ("[" * 100_000, "its JSON cannot be read"),
    "objects": ('{"a":' * 100_000, "its JSON cannot be read"),
    "digits": ("9" * 5000, "its JSON cannot be read"),
    "NaN": ("NaN", "the network is nan, not an object"),
    "a list": ("[]", "not an object"),
    "long": (" " * (1 << 24) + "{}", "characters: up to"),
}


@pytest.mark.parametrize("what", STRANGE)
def test_json_of_strangers_is_refused(path, what):
    text, match = STRANGE[what]
    rewrite_text(path, text, held(path)[1])
    refused(path, match)


def nested(depth):
    layer = Clip(0)
    for _ in range(depth):
        layer = Residual((layer,))
    one = np.ones(2, np.int32)
    layers = (layer, Dense(pack(np.ones((2, 2), np.int8), layout="row")))
    return Network("deep", Pixels((2,), one, one), layers, np.ones(2, np.float32), np.ones(2, np.float32))


def test_residuals_nest_to_a_depth(path):
    save(nested(8), path)
    assert parts(load(path)) == parts(nested(8))
    described, arrays = held(path)
    layers = [{"type": "Residual", "body": described["layers"][:1], "shortcut": []}, described["layers"][1]]
    rewrite(path, {**described, "layers": layers}, arrays)
    refused(path, "more than 8 residuals are within one another")
    with pytest.raises(SchemeError, match="up to 8 residuals"):
        save(nested(9), path)


def test_other_files_are_refused(path, tmp_path):
    path.write_bytes(numpy_files.save({"x": np.ones(3)}))
    refused(path, "its metadata has no 'simwarp.network'")
    np.save(tmp_path / "x.npy", np.ones(3))
    refused(tmp_path / "x.npy", "header")
    refused(tmp_path, "Is a directory")
    refused(tmp_path / "none", "No such file")
    os.mkfifo(tmp_path / "fifo")
    refused(tmp_path / "fifo", "not a regular file")


def full_disk(_):
    raise OSError(28, "No space left on device")


def test_a_file_is_written_whole_or_not_at_all(path, tmp_path, monkeypatch):
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(InputFileError, match="cannot be written: No space left on device"):
        save(nested(0), path)
    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]


def test_weights_on_a_device_are_refused(tmp_path):
    network = nested(0)
    weights = replace(network.layers[1].weights, words=memoryview(b"12345678"))
    with pytest.raises(FormatError, match="copy them to the host"):
        save(replace(network, layers=(Dense(weights),)), tmp_path / "x")


def test_half_a_letter_is_not_written(tmp_path):
    for texts in ({"name": "\ud800"}, {"about": "\ud800"}, {"classes": ("a", "\ud800")}):
        with pytest.raises(FormatError, match="not text"):
            save(replace(nested(0), **texts), tmp_path / "x")


def test_without_safetensors_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    for act in (lambda: load(tmp_path / "x"), lambda: save(nested(0), tmp_path / "x")):
        with pytest.raises(MissingExtraError, match=r"pip install 'simwarp\[net\]'"):
            act()
