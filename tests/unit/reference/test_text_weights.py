"""The papers' text files of weights: each number finds its place, and other files are refused."""

from types import SimpleNamespace

import numpy as np
import pytest

import reference.bnn.text_weights as module
from reference import InputFileError, SchemeError, unpack, unpack_tensor
from reference.bnn import Conv, Dense, Pixels, Reals, Residual, Signs, Threshold, from_text, run
from reference.bnn.plans import plan_mlp, plan_resnet14, plan_vgg_cifar

SMALL = {
    "mlp": lambda: plan_mlp(64),
    "vgg-cifar": lambda: plan_vgg_cifar(8, 64),
    "resnet14": lambda form="code": plan_resnet14(form, "A", 8, 64),
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Networks a sixty-fourth as wide."""
    monkeypatch.setattr(
        module,
        "plans",
        SimpleNamespace(
            plan_mlp=SMALL["mlp"],
            plan_vgg_cifar=SMALL["vgg-cifar"],
            plan_resnet14=SMALL["resnet14"],
            plan_alexnet=None,
            plan_vgg16=None,
            plan_resnet18=None,
        ),
    )


def numbers(model):
    """As many numbers as a network needs: signs, and thresholds and scales that are binary fractions."""
    rng = np.random.default_rng(4)
    return rng.integers(-40, 41, module._numbers_of(SMALL[model]())) / 8


def written(path, values, between=" "):
    path.write_text(between.join(f"{value:g}" for value in values))
    return path


def flat(network):
    """The layers in the order of the file: inside a residual, those of the body."""
    for layer in network.layers:
        yield from flat(SimpleNamespace(layers=layer.body)) if isinstance(layer, Residual) else [layer]


def conv(x, w, stride):
    """Windows padded with zeros by half a filter."""
    pad = w.shape[0] // 2
    padded = np.pad(x, ((pad, pad), (pad, pad), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[:2], (0, 1))[::stride, ::stride]
    return np.einsum("pqcrs,rsco->pqo", windows, w)


def resnet14_by_hand(values, x):
    """Logits of one image, in floats, as the program has it but for the truncation of the shortcut."""
    rest = iter(values)

    def take(*shape):
        return np.array([next(rest) for _ in range(int(np.prod(shape)))]).reshape(shape)

    def sign(numbers):
        return np.where(numbers >= 0, 1, -1)

    x = conv(x, sign(take(3, 3, 3, 2)), 1)
    for stage, filters in enumerate((2, 4, 8)):
        for stride in (2 if stage else 1, 1):
            channels = x.shape[-1]
            y = conv(sign(x - take(channels)), sign(take(3, 3, channels, filters)), stride)
            y = conv(sign(y - take(filters)), sign(take(3, 3, filters, filters)), 1)
            if stride == 2:
                half = x.reshape(x.shape[0] // 2, 2, x.shape[1] // 2, 2, channels).max((1, 3))
                x = np.pad(half, ((0, 0), (0, 0), (0, filters - channels)))
            x = x + y
    y = sign(x - take(8)).reshape(-1)
    y = y @ sign(take(y.size, 8))
    y = sign(y - take(8)) @ sign(take(8, 10))
    return y * take(10) + take(10)


def test_a_converted_resnet_answers_as_the_program_does(tmp_path):
    values = numbers("resnet14")
    network = from_text(written(tmp_path / "x.csv", values), "resnet14")
    x = (np.random.default_rng(8).integers(-(2**14), 2**14, (5, 8, 8, 3)) / 2**13).astype(np.float32)
    logits = run(network, x).logits
    assert logits.std(axis=0).max() > 0
    np.testing.assert_array_equal(logits, [resnet14_by_hand(values, image.astype(float)) for image in x])


@pytest.mark.parametrize("model", SMALL)
@pytest.mark.parametrize("between", [" ", "\n", " \r\n\t"])
def test_numbers_are_weights_and_thresholds_in_the_order_of_the_layers(model, between, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 101)
    values = numbers(model)
    network = from_text(written(tmp_path / "x.csv", values, between), model)
    at, unit = 0, 1 if model == "mlp" else 2**13
    for layer in flat(network):
        if isinstance(layer, Conv | Dense):
            bits = unpack_tensor(layer.filters) if isinstance(layer, Conv) else unpack(layer.weights)
            np.testing.assert_array_equal(bits, values[at : at + bits.size].reshape(bits.shape) >= 0)
            at += bits.size
        if isinstance(layer, Threshold):
            limits = values[at : at + layer.flip.size]
            assert not layer.flip.any()
            assert layer.thresholds.tolist() in (np.ceil(limits * unit).tolist(), np.ceil(limits).tolist())
            at += limits.size
    np.testing.assert_array_equal(np.concatenate([network.scale, network.offset]), values[at:])


def test_images_are_normalised_by_the_user_or_by_the_network(tmp_path):
    path = written(tmp_path / "x.csv", numbers("vgg-cifar"))
    network = from_text(path, "vgg-cifar")
    assert isinstance(network.input, Reals)
    assert network.input.fraction == 13
    given = from_text(path, "vgg-cifar", images="bytes").input
    assert isinstance(given, Pixels)
    for byte in (0, 1, 127, 255):
        exact = (byte / 255 - np.array([0.4914, 0.4822, 0.4465])) / [0.2470, 0.2435, 0.2616]
        assert np.abs((given.scale * byte + given.offset) / 2**13 - exact).max() < 2**-6
    mlp = from_text(written(tmp_path / "y.csv", numbers("mlp")), "mlp").input
    assert isinstance(mlp, Signs)
    assert 33 < mlp.thresholds[0] < 34  # 33 / 255 < 0.1307 < 34 / 255


@pytest.mark.parametrize("missing", [1, 10, 700])
def test_a_short_file_is_refused_with_what_is_missing(missing, tmp_path):
    values = numbers("mlp")
    path = written(tmp_path / "x.csv", values[:-missing])
    with pytest.raises(InputFileError, match=f"needs {values.size}: {missing} are missing"):
        from_text(path, "mlp")


def test_a_long_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 101)
    values = numbers("mlp")
    path = written(tmp_path / "x.csv", [*values, *values])
    with pytest.raises(InputFileError, match=f"has {2 * values.size} numbers, and mlp needs {values.size}"):
        from_text(path, "mlp")


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("x", "'x'"),
        ("nan", "'nan'"),
        ("inf", "'inf'"),
        ("1,2", "'1,2'"),
        ("1e99", "'1e99'"),
        ("1" * 99, "'1{20}'"),
    ],
)
@pytest.mark.parametrize("at", [0, 50, -1])
def test_what_is_not_a_number_is_refused_with_its_place(word, shown, at, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 101)
    values = [f"{value:g}" for value in numbers("mlp")]
    values[at] = word
    (tmp_path / "x.csv").write_text(" ".join(values))
    with pytest.raises(InputFileError, match=f"number {at % len(values)} is {shown}, not a finite number"):
        from_text(tmp_path / "x.csv", "mlp")


def test_a_file_without_blanks_is_not_read_whole(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"1" * (3 << 20))
    with pytest.raises(InputFileError, match="number 0 is"):
        from_text(tmp_path / "x.csv", "mlp")
    (tmp_path / "x.csv").write_bytes(b"")
    with pytest.raises(InputFileError, match="has 0 numbers"):
        from_text(tmp_path / "x.csv", "mlp")


def test_progress_counts_the_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 1000)
    path = written(tmp_path / "x.csv", numbers("mlp"))
    told = []
    from_text(path, "mlp", progress=lambda *counts: told.append(counts))
    size = path.stat().st_size
    assert told[-1] == (size, size)
    assert len(told) == -(-size // 1000)


def test_unknown_models_forms_and_images_are_refused(tmp_path):
    for options, match in [
        ({"model": "lenet"}, "choose 'mlp' or"),
        ({"model": "mlp", "form": "paper"}, "there is no form='paper' of mlp"),
        ({"model": "resnet14", "form": "x"}, "choose 'code' or 'paper'"),
        ({"model": "mlp", "images": "x"}, "choose 'floats' or 'bytes'"),
    ]:
        with pytest.raises(SchemeError, match=match):
            from_text(tmp_path / "x.csv", **options)


def test_the_forms_are_those_of_the_networks(tmp_path):
    path = written(tmp_path / "x.csv", numbers("resnet14"))
    with pytest.raises(InputFileError, match="it is for another network"):
        from_text(path, "resnet14", form="paper")
