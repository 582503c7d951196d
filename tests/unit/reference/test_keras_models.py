"""Keras models with layers of larq as networks: drawn ones, beside Keras's definitions in float64.

Files are made here, as Keras 2 lays them out. Parameters are dyadic, so that float64 does not round and
answers must be equal.
"""

from __future__ import annotations

import json
import sys
import zipfile
from fractions import Fraction

import numpy as np
import pytest

from reference import ExportError, InputFileError, MissingExtraError, SchemeError, ShapeError
from reference.bnn import Pixels, Reals, Signs, Threshold, from_keras, run
from reference.threshold import integer_thresholds
from reference.types.network_values import follow

SIGN = {"class_name": "Larq>SteSign", "config": {"name": "ste_sign", "clip_value": 1.0}}


class Made:
    """A functional model of Keras, layer by layer: its JSON and its arrays."""

    def __init__(self, shape, seed=0):
        self.rng = np.random.default_rng(seed)
        self.shape = list(shape)
        self.layers, self.arrays, self.last = [], {}, ""
        self.add("InputLayer", inputs=(), batch_input_shape=[None, *shape])

    def add(self, kind, inputs=None, arrays=(), **settings):
        """A layer after the last one, or after others."""
        name = f"layer_{len(self.layers)}"
        inputs = [self.last] if inputs is None else inputs
        nodes = [[[one, 0, 0, {}] for one in inputs]] if inputs else []
        self.layers.append(
            {"class_name": kind, "name": name, "inbound_nodes": nodes, "config": {"name": name, **settings}}
        )
        self.arrays |= {(name, key): np.asarray(array, np.float32) for key, array in dict(arrays).items()}
        self.last = name
        return name

    def choose(self, values, *shape):
        return self.rng.choice(np.asarray(values, np.float32), shape)

    def latent(self, *shape):
        return self.choose([-1, -0.5, -0.0, 0.0, 0.25, 1], *shape)

    def conv(self, channels, filters, size=(3, 3), quantizer=SIGN, bias=False, **settings):
        arrays = {"kernel": self.latent(*size, channels, filters)}
        arrays |= {"bias": self.choose(np.arange(-8, 8) / 4, filters)} if bias else {}
        sizes = {"filters": filters, "kernel_size": list(size), "strides": [1, 1], "padding": "valid"}
        quantizers = {"kernel_quantizer": "ste_sign", "input_quantizer": quantizer, "use_bias": bias}
        self.add("Larq>QuantConv2D", arrays=arrays, **(sizes | quantizers | settings))
        return self

    def dense(self, features, units, quantizer=SIGN, **settings):
        self.add(
            "Larq>QuantDense",
            arrays={"kernel": self.latent(features, units)},
            **{"units": units, "kernel_quantizer": SIGN, "input_quantizer": quantizer, "use_bias": False},
            **settings,
        )
        return self

    def norm(self, channels, scale=True, center=True, spread=40, **settings):
        arrays = {
            "moving_mean": self.choose(np.arange(-spread, spread) / 4, channels),
            "moving_variance": self.choose([0.25, 1, 4, 16], channels),
        }
        arrays |= {"gamma": self.choose([-2, -1, -0.5, 0, 0.25, 1], channels)} if scale else {}
        arrays |= {"beta": self.choose(np.arange(-8, 8) / 4, channels)} if center else {}
        self.add("BatchNormalization", arrays=arrays, epsilon=0, scale=scale, center=center, **settings)
        return self

    def pool(self, kind="MaxPooling2D", **settings):
        self.add(kind, **settings)
        return self

    @property
    def json(self):
        outputs = [[self.last, 0, 0]]
        return {
            "class_name": "Functional",
            "config": {"name": "made", "layers": self.layers, "output_layers": outputs},
        }

    @property
    def sequence(self):
        """The same as a sequential model, whose input is a setting of the first layer."""
        first, *others = json.loads(json.dumps(self.layers))
        others[0]["config"]["batch_input_shape"] = first["config"]["batch_input_shape"]
        layers = [{"class_name": one["class_name"], "config": one["config"]} for one in others]
        return {"class_name": "Sequential", "config": {"name": "made", "layers": layers}}


def to_npz(path, made, config=None):
    arrays = {f"{layer}/{name}": array for (layer, name), array in made.arrays.items()}
    np.savez(path, model_config=json.dumps(config or made.json), **arrays)
    return path


def to_hdf5(path, made, config=None, weights_only=False):
    """The file of ``model.save``, or of ``model.save_weights``."""
    h5py = pytest.importorskip("h5py", reason="HDF5 files need simwarp[net]")
    with h5py.File(path, "w") as file:
        root = file if weights_only else file.create_group("model_weights")
        if not weights_only:
            file.attrs["model_config"] = json.dumps(config or made.json).encode()
        for one in made.layers:
            group = root.create_group(one["name"])
            held = [(key[1], array) for key, array in made.arrays.items() if key[0] == one["name"]]
            paths = [f"{one['name']}/{name}:0" for name, _ in held]
            group.attrs["weight_names"] = [path.encode() for path in paths]
            for (_, array), inside in zip(held, paths, strict=True):
                group.create_dataset(inside, data=array)
    return path


# --------------------------------------------------------------------------------------------------
# Keras by its definitions, in float64
# --------------------------------------------------------------------------------------------------


def sign(x):
    return np.where(x >= 0, 1.0, -1.0)


def padded(x, settings, window, strides, value):
    """TensorFlow's documented formula of "same", which looks at the remainder of the size."""
    if settings.get("padding", "valid") == "valid":
        return x
    sides = [(0, 0)]
    for size, span, step in zip(x.shape[1:3], window, strides, strict=True):
        total = max(span - (step if size % step == 0 else size % step), 0)
        sides.append((total // 2, total - total // 2))
    return np.pad(x, [*sides, (0, 0)], constant_values=value)


def windows(x, window, strides, dilation=(1, 1)):
    """(N, P, Q, rows, columns, C)."""
    spans = [(n - 1) * d + 1 for n, d in zip(window, dilation, strict=True)]
    found = np.lib.stride_tricks.sliding_window_view(x, spans, axis=(1, 2))
    found = found[:, :: strides[0], :: strides[1], :, :: dilation[0], :: dilation[1]]
    return found.transpose(0, 1, 2, 4, 5, 3)


def by_definition(made, images):
    """The logits, before a softmax."""
    values = {}
    for layer in made.layers:
        name, settings = layer["name"], layer["config"]
        held = {key[1]: array.astype(np.float64) for key, array in made.arrays.items() if key[0] == name}
        given = [values[node[0]] for nodes in layer["inbound_nodes"] for node in nodes]
        values[name] = _layer(layer["class_name"], settings, held, given or [images])
    return values[made.last]


def _layer(kind, settings, held, given):
    x = given[0]
    if settings.get("input_quantizer"):
        x = sign(x)
    match kind:
        case "InputLayer" | "Dropout" | "Softmax":
            return x
        case "Add":
            return sum(given)
        case "Flatten":
            return x.reshape(len(x), -1)
        case "Activation":
            return {"ste_sign": sign, "relu": lambda x: np.maximum(x, 0), "softmax": lambda x: x}[
                settings["activation"]
            ](x)
        case "Larq>QuantDense":
            return x @ sign(held["kernel"])
        case "BatchNormalization":
            scaled = (x - held["moving_mean"]) / np.sqrt(held["moving_variance"] + settings["epsilon"])
            return scaled * held.get("gamma", 1) + held.get("beta", 0)
        case "GlobalAveragePooling2D":
            return x.mean((1, 2))
    if kind == "Larq>QuantConv2D":
        size, strides, dilation = (
            settings.get(n, [1, 1]) for n in ("kernel_size", "strides", "dilation_rate")
        )
        spans = [(n - 1) * d + 1 for n, d in zip(size, dilation, strict=True)]
        x = padded(x, settings, spans, strides, settings.get("pad_values", 0))
        groups = settings.get("groups", 1)
        parts = (np.split(each, groups, axis=-1) for each in (x, sign(held["kernel"])))
        y = [
            np.einsum("npqrsc,rsco->npqo", windows(part, size, strides, dilation), kernel)
            for part, kernel in zip(*parts, strict=True)
        ]
        return np.concatenate(y, axis=-1) + held.get("bias", 0)
    size = settings["pool_size"]
    strides = settings.get("strides") or size
    if kind == "MaxPooling2D":
        return windows(padded(x, settings, size, strides, -np.inf), size, strides).max((3, 4))
    assert kind == "AveragePooling2D"
    return windows(x, size, strides).mean((3, 4))


def check(network, made, images, given=None):
    """The network's logits are Keras's, and they depend on the images."""
    expected = by_definition(made, images.astype(np.float64))
    found = run(network, images if given is None else given).logits
    np.testing.assert_array_equal(found, expected.astype(np.float32))
    assert len(np.unique(expected)) > 1


def quarters(rng, *shape):
    return (rng.integers(-16, 17, shape) / 4).astype(np.float32)


# --------------------------------------------------------------------------------------------------
# Models
# --------------------------------------------------------------------------------------------------


def binary_alexnet():
    """The layers of larq-zoo's BinaryAlexNet, with few filters and small images."""
    made = Made((29, 27, 3), seed=3)
    made.conv(3, 6, (5, 5), quantizer=None, strides=[4, 4], padding="same")
    made.pool(pool_size=[3, 3], strides=[2, 2]).norm(6, scale=False)
    made.conv(6, 8, (5, 5), padding="same").norm(8, scale=False, axis=[3])
    made.conv(8, 5, padding="same").pool(pool_size=[2, 2], strides=None).norm(5, scale=False, spread=8)
    made.pool("Flatten")
    made.dense(5, 9).norm(9, scale=False, spread=8).dense(9, 4).norm(4, scale=False)
    made.pool("Activation", activation="softmax")
    return made


@pytest.mark.parametrize("form", ["npz", "h5", "sequential", "weights"])
def test_binary_alexnet_from_each_kind_of_file(form, tmp_path):
    made = binary_alexnet()
    if form in ("npz", "sequential"):
        path = to_npz(tmp_path / "x.npz", made, made.sequence if form == "sequential" else None)
    else:
        path = to_hdf5(tmp_path / "x.h5", made, weights_only=form == "weights")
    if form == "weights":
        (tmp_path / "x.json").write_text(json.dumps(made.json))
        with pytest.raises(InputFileError, match=r"has no model_config: pass config="):
            from_keras(path)
    network = from_keras(path, config=tmp_path / "x.json" if form == "weights" else None)
    assert network.name == "made"
    kinds = [type(layer).__name__ for layer in network.layers]
    assert kinds[:4] == ["Conv", "Threshold", "Pool", "Conv"]
    assert kinds[-6:] == ["Threshold", "Pool", "Flatten", "Dense", "Threshold", "Dense"]
    check(network, made, quarters(np.random.default_rng(1), 5, 29, 27, 3))


def drawn(seed):
    """A model of drawn layers, and images."""
    rng = np.random.default_rng(seed)
    height, width, channels = (int(n) for n in (*rng.integers(9, 14, 2), rng.integers(1, 4)))
    made = Made((height, width, channels), seed)

    def pair(low, high):
        return rng.integers(low, high, 2).tolist()

    for at in range(int(rng.integers(1, 4))):
        filters = int(rng.integers(1, 7))
        made.conv(
            channels,
            filters,
            tuple(pair(1, 4)),
            quantizer=SIGN if at else None,
            bias=bool(rng.integers(2)),
            padding="same",
            **({"dilation_rate": pair(1, 3)} if rng.integers(2) else {"strides": pair(1, 4)}),
        )
        if at:
            made.layers[-1]["config"]["pad_values"] = float(rng.integers(-1, 2))
        if rng.integers(2):
            made.pool(pool_size=pair(1, 4), strides=pair(1, 3), padding="same")
        made.norm(filters, *map(bool, rng.integers(0, 2, 2)))
        if rng.integers(3) == 0:
            made.pool("Activation", activation="relu")
        if rng.integers(3) == 0:
            made.pool("Dropout", rate=0.5)
        channels = filters
    images = quarters(rng, 3, *made.shape)
    features = by_definition(made, images)[0].size
    made.pool("Flatten").dense(features, 5).norm(5)
    return made, images


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0])
def test_convolutions_in_groups(value, tmp_path):
    """The latent kernel has the channels of one group; padding with ±1 is put right for each filter."""
    made = Made((5, 4, 4)).conv(2, 6, quantizer=None, padding="same", groups=2).norm(6)
    made.conv(2, 9, (2, 3), padding="same", pad_values=value, groups=3).norm(9)
    made.conv(1, 18, groups=9, bias=True, kernel_size=[3, 3]).norm(18).pool("Flatten").dense(108, 5).norm(5)
    network = from_keras(to_npz(tmp_path / "x.npz", made))
    assert [layer.groups for layer in network.layers if hasattr(layer, "groups")] == [2, 3, 9]
    check(network, made, quarters(np.random.default_rng(2), 4, 5, 4, 4))


@pytest.mark.parametrize("seed", range(40))
def test_drawn_models(seed, tmp_path):
    made, images = drawn(seed)
    network = from_keras(to_npz(tmp_path / "x.npz", made))
    expected = by_definition(made, images.astype(np.float64))
    np.testing.assert_array_equal(run(network, images).logits, expected.astype(np.float32))


def test_branches_are_added_and_averaged(tmp_path):
    made = Made((8, 8, 2)).conv(2, 4, quantizer=None, padding="same")
    start = made.last
    ways = []
    for _ in range(2):
        made.last = start
        ways.append(made.conv(4, 4, padding="same").last)
    made.add("Add", inputs=[start, *ways])
    made.pool("AveragePooling2D", pool_size=[2, 2], strides=[2, 2])
    made.norm(4, scale=False).conv(4, 4, padding="same")
    made.pool("GlobalAveragePooling2D", keepdims=False).dense(4, 3)
    network = from_keras(to_npz(tmp_path / "x.npz", made))
    check(network, made, quarters(np.random.default_rng(5), 9, 8, 8, 2))


def test_values_that_flow_on_are_refused_or_rounded(tmp_path):
    made = Made((3, 3, 1)).conv(1, 2, quantizer=None).norm(2)
    made.layers[-1]["config"]["epsilon"] = 0.001
    made.conv(2, 2, (1, 1), quantizer=None).pool("Flatten")
    path = to_npz(tmp_path / "x.npz", made)
    with pytest.raises(ExportError, match=r"(?s)^layer layer_3 \(QuantConv2D\): .*give fixed_point=16"):
        from_keras(path)
    network = from_keras(path, fixed_point=12, about="Mine.")
    assert network.about.startswith("Mine.\nValues that flow on are multiples of 2**-12")
    images = quarters(np.random.default_rng(2), 4, 3, 3, 1)
    np.testing.assert_allclose(run(network, images).logits, by_definition(made, images), atol=0.2)


def test_thresholds_are_those_of_integer_thresholds(tmp_path):
    """Parameters as training leaves them, whose roots are irrational."""
    rng, made = np.random.default_rng(8), Made((6, 6, 8)).conv(8, 32, padding="same", quantizer=None)
    made.norm(32).pool("Flatten").dense(32 * 36, 2)
    name = made.layers[2]["name"]
    made.layers[2]["config"]["epsilon"] = 1e-3
    held = {key: rng.standard_normal(32).astype(np.float32) for key in ("gamma", "beta", "moving_mean")}
    held["moving_variance"] = rng.uniform(1, 99, 32).astype(np.float32)
    made.arrays |= {(name, key): array for key, array in held.items()}
    ones = Pixels((6, 6, 8), np.ones(8, np.int32), np.zeros(8, np.int32))
    network = from_keras(to_npz(tmp_path / "x.npz", made), images=ones)
    (rule,) = [layer for _, layer, _ in follow(network) if isinstance(layer, Threshold)]
    expected = integer_thresholds(
        held["gamma"], held["beta"], held["moving_mean"], held["moving_variance"], 1e-3
    )
    np.testing.assert_array_equal(rule.thresholds, expected.thresholds)
    np.testing.assert_array_equal(rule.flip, expected.flip)


def test_kinds_of_images(tmp_path):
    made = (
        Made((4, 4, 2)).conv(2, 3, quantizer=None).norm(3, scale=False, spread=3).pool("Flatten").dense(12, 3)
    )
    path = to_npz(tmp_path / "x.npz", made)
    images = np.random.default_rng(3).integers(0, 256, (6, 4, 4, 2), dtype=np.uint8)
    check(from_keras(path, images="bytes"), made, (2 * images.astype(np.float64) - 255) / 255, images)
    one, none = np.full(2, 3, np.int32), np.full(2, -300, np.int32)
    halves = from_keras(path, images=Pixels((4, 4, 2), one, none), unit=Fraction(1, 64))
    check(halves, made, (3 * images.astype(np.float64) - 300) / 64, images)
    bits = from_keras(path, images=Signs((4, 4, 2), np.full(2, 128, np.float32)))
    check(bits, made, np.where(images >= 128, 1, -1), images)
    made.layers[0]["config"]["batch_input_shape"] = [None, None, None, 2]
    free = to_npz(tmp_path / "free.npz", made)
    check(from_keras(free, images=Reals((4, 4, 2), 2)), made, quarters(np.random.default_rng(4), 6, 4, 4, 2))
    with pytest.raises(ExportError, match=r"of any size\npass images=Reals"):
        from_keras(free)
    with pytest.raises(ExportError, match=r"images \(None, None, 2\), and the input has shape \(4, 4, 3\)"):
        from_keras(free, images=Reals((4, 4, 3), 2))
    with pytest.raises(SchemeError, match="images is 'words'"):
        from_keras(path, images="words")


# --------------------------------------------------------------------------------------------------
# What is refused
# --------------------------------------------------------------------------------------------------

REFUSED = {
    "class": ({"class_name": "Lambda"}, "(Lambda): networks of ±1 do not have it"),
    "float weights": ({"class_name": "Conv2D"}, "(Conv2D): its weights are not ±1"),
    "latent": ({"kernel_quantizer": None}, "(QuantConv2D): its weights are not ±1: kernel_qu"),
    "scaled": ({"kernel_quantizer": "magnitude_aware_sign"}, "(QuantConv2D): its weights are not ±1"),
    "heaviside": ({"input_quantizer": "ste_heaviside"}, "(QuantConv2D): input_quantizer is 'ste_heaviside'"),
    "groups": ({"groups": 2}, "(QuantConv2D): groups is 2, with 2 channels and 3 filters"),
    "layout": ({"data_format": "channels_first"}, "(QuantConv2D): data_format is 'channels_first'"),
    "padding": ({"padding": "causal"}, "(QuantConv2D): padding is 'causal'"),
    "halves": ({"padding": "same", "pad_values": 0.5}, "(QuantConv2D): pad_values is 0.5"),
    "padded floats": ({"padding": "same", "pad_values": 1.0}, "(QuantConv2D): padding with 1 of a tensor"),
    "activation": ({"activation": "tanh"}, "(QuantConv2D): the activation 'tanh'"),
    "window": ({"kernel_size": [9, 1]}, "(QuantConv2D): layer 0 (Conv)"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_network_cannot_express_is_named(case, tmp_path):
    changed, message = REFUSED[case]
    made = Made((4, 4, 2)).conv(2, 3, quantizer=None).pool("Flatten").dense(12, 2)
    made.layers[1] |= {key: changed[key] for key in changed if key == "class_name"}
    made.layers[1]["config"] |= {key: changed[key] for key in changed if key != "class_name"}
    if case == "window":
        made.arrays["layer_1", "kernel"] = np.ones((9, 1, 2, 3), np.float32)
    with pytest.raises((ExportError, ShapeError)) as caught:
        from_keras(to_npz(tmp_path / "x.npz", made))
    assert str(caught.value).startswith(f"layer layer_1 {message}")
    assert getattr(caught.value, "path", "layer_1") == "layer_1"


def test_other_layers_that_are_refused(tmp_path):
    def message(made):
        with pytest.raises(ExportError) as caught:
            from_keras(to_npz(tmp_path / "x.npz", made))
        return str(caught.value)

    def start():
        return Made((4, 4, 2)).conv(2, 3, quantizer=None)

    assert "axis is [1]" in message(start().norm(3, axis=[1]))
    assert "takes vectors (F,): put Flatten" in message(start().dense(3, 2))
    assert "a softmax before other" in message(start().pool("Softmax").pool("Flatten"))
    average = {"pool_size": [2, 2], "strides": [1, 1], "padding": "same"}
    assert "smaller divisor" in message(start().pool("AveragePooling2D", **average))
    assert "the output, of layer layer_1: the model gives (2, 2, 3)" in message(start())
    assert "(ReLU): threshold is 1" in message(start().pool("ReLU", threshold=1))
    twice = start()
    twice.layers[1]["inbound_nodes"] *= 2
    assert "is used more than once" in message(twice)
    made = start().norm(3)
    made.arrays["layer_2", "moving_variance"][0] = -1
    assert "a variance plus epsilon is -1" in message(made)


def change(made, *path):
    """Set an entry of a model's JSON."""
    *path, key, value = path
    inside = made
    for step in path:
        inside = inside[step]
    inside[key] = value
    return made


LAYER = ("config", "layers", 1)
BROKEN = {
    "a list": ([], "no class_name and config of the model"),
    "no layers": (("config", "layers", []), "its model has no layers"),
    "a custom model": (("class_name", "Mine"), "its model is a 'Mine'"),
    "a layer without a class": ((*LAYER, "class_name", 3), "no class_name and config of a layer"),
    "no name": ((*LAYER, "config", "name", ""), "has a layer 'QuantConv2D' without a name"),
    "one name twice": ((*LAYER, "config", "name", "layer_2"), "two layers have the name 'layer_2'"),
    "nodes of Keras 3": ((*LAYER, "inbound_nodes", [{"args": []}]), "are not those of Keras 2"),
    "a cycle": ((*LAYER, "inbound_nodes", [[["layer_3", 0, 0, {}]]]), "is not an earlier layer"),
    "no filters": ((*LAYER, "config", "filters", None), "filters is None: positive integers"),
    "negative strides": ((*LAYER, "config", "strides", [-1, 1]), "strides is [-1, 1]"),
    "a text for a flag": ((*LAYER, "config", "use_bias", "no"), "use_bias is 'no'"),
    "many filters": ((*LAYER, "config", "filters", 2**31 - 1), "kernel of layer 'layer_1' has shape"),
    "a bias": ((*LAYER, "config", "use_bias", True), "not ['bias', 'kernel']"),
    "an activation": ((*LAYER, "config", "activation", [1]), "activation is [1]: a name is needed"),
    "a large image": (("config", "layers", 0, "config", "batch_input_shape", [1, 2**20, 2**20, 2]), "up to"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_wrong_json_is_refused(case, tmp_path):
    path, message = BROKEN[case]
    made = Made((4, 4, 2)).conv(2, 3, quantizer=None).pool("Flatten").dense(12, 2)
    config = change(json.loads(json.dumps(made.json)), *path) if path else ["not a model"]
    with pytest.raises(InputFileError) as caught:
        from_keras(to_npz(tmp_path / "x.npz", made, config))
    assert str(caught.value).startswith(f"{tmp_path / 'x.npz'} does not hold a Keras model: ")
    assert message in str(caught.value)


def test_nothing_deep_or_without_an_end_is_followed(tmp_path):
    for text, message in (("[" * 100_000, "cannot be read"), ("{", "cannot be read"), ("", "cannot be read")):
        np.savez(tmp_path / "x.npz", model_config=text)
        with pytest.raises(InputFileError, match=message):
            from_keras(tmp_path / "x.npz")


def test_wrong_arrays_are_refused(tmp_path):
    def message(**arrays):
        made = Made((4,)).dense(4, 2, quantizer=None)
        made.arrays = {("layer_1", name): array for name, array in arrays.items()}
        with pytest.raises(InputFileError) as caught:
            from_keras(to_npz(tmp_path / "x.npz", made))
        return str(caught.value)

    good = np.ones((4, 2), np.float32)
    assert "for layer 'layer_1' it has the arrays [], not ['kernel']" in message()
    assert "the arrays ['bias', 'kernel']" in message(kernel=good, bias=good[0])
    assert "(4, 3): (4, 2) is needed" in message(kernel=np.ones((4, 3)))
    assert "an element that is not finite" in message(kernel=good * np.nan)
    assert "is of int64: floats are needed" in message(kernel=good.astype(np.int64))
    assert "does not hold an array object" in message(kernel=np.full((4, 2), None))


def test_npz_files_that_are_not_whole_are_refused(tmp_path):
    path = to_npz(tmp_path / "x.npz", Made((4,)).dense(4, 2, quantizer=None))
    data = path.read_bytes()
    for cut in range(0, len(data), 7):
        path.write_bytes(data[:cut])
        with pytest.raises(InputFileError):
            from_keras(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("model.weights.h5", b"")
    with pytest.raises(InputFileError, match=r"it is a \.keras archive"):
        from_keras(path)
    with pytest.raises(InputFileError, match="cannot be read: No such file"):
        from_keras(tmp_path / "none.h5")


def test_npz_files_that_hold_less_than_they_say_are_refused(tmp_path):
    made = Made((4,)).dense(4, 2, quantizer=None)
    arrays = {f"{layer}/{name}": array for (layer, name), array in made.arrays.items()}
    np.savez_compressed(tmp_path / "x.npz", model_config=json.dumps(made.json), **arrays)
    with pytest.raises(InputFileError, match=r"is compressed: write the file with numpy\.savez"):
        from_keras(tmp_path / "x.npz")
    made.layers[1]["config"]["units"] = 2**40
    data = to_npz(tmp_path / "x.npz", made).read_bytes()
    header = b"'shape': (4, 2), }"
    longer = b"'shape': (4,2**40)"
    (tmp_path / "x.npz").write_bytes(data.replace(header, longer))
    with pytest.raises(InputFileError):
        from_keras(tmp_path / "x.npz")


def test_hdf5_arrays_must_lie_in_the_file(tmp_path):
    h5py = pytest.importorskip("h5py", reason="HDF5 files need simwarp[net]")
    made = Made((4,)).dense(4, 2, quantizer=None)
    inside = "model_weights/layer_1/layer_1/kernel:0"
    other = to_hdf5(tmp_path / "other.h5", made)

    def message(replace):
        path = to_hdf5(tmp_path / "x.h5", made)
        with h5py.File(path, "a") as file:
            del file[inside]
            replace(file)
        with pytest.raises(InputFileError) as caught:
            from_keras(path)
        return str(caught.value)

    def put(**options):
        return lambda file: file.create_dataset(inside, (4, 2), "f4", **options)

    def linked(link):
        return lambda file: file.__setitem__(inside, link)

    def virtual(file):
        layout = h5py.VirtualLayout((4, 2), "f4")
        layout[...] = h5py.VirtualSource(other, inside, (4, 2))
        file.create_virtual_dataset(inside, layout)

    assert "is compressed, or not in one piece" in message(put(compression="gzip", data=np.ones((4, 2))))
    assert "is compressed, or not in one piece" in message(put())  # no bytes were ever written
    assert "is compressed, or not in one piece" in message(put(external=[(tmp_path / "bytes", 0, 32)]))
    assert "is compressed, or not in one piece" in message(virtual)
    assert "is a link" in message(linked(h5py.ExternalLink(str(other), inside)))
    assert "is a link" in message(linked(h5py.SoftLink("/model_weights")))
    assert "is broken" in message(lambda file: file.create_group(inside))
    data = other.read_bytes()
    for cut in range(8, len(data), 997):
        (tmp_path / "x.h5").write_bytes(data[:cut])
        with pytest.raises(InputFileError):
            from_keras(tmp_path / "x.h5")


def test_without_h5py_the_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "x.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'simwarp\[net\]'"):
        from_keras(tmp_path / "x.h5")
