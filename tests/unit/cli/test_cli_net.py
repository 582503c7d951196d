"""`simwarp net`: what a network is, what it says of images, and the papers' weights."""

import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import reference.bnn.text_weights as text_weights
import simwarp.cli.images as images_module
from reference import InputFileError, MissingExtraError, NoGpuError
from reference.bnn import Pixels, Reals, load, mlp, resnet14, run, save
from reference.bnn.plans import plan_mlp
from simwarp.cli import main

pytest.importorskip("typer", reason="the command line needs simwarp[cli]")
pytest.importorskip("safetensors", reason="network files need simwarp[net]")
PIL = pytest.importorskip("PIL.Image", reason="image files need simwarp[net]")

NETWORK = resnet14(size=16, width=16)
RNG = np.random.default_rng(6)
IMAGES = RNG.integers(0, 256, (5, 16, 16, 3), dtype=np.uint8)


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def path(tmp_path):
    save(replace(NETWORK, classes=tuple(f"kind {i}" for i in range(10))), tmp_path / "net.safetensors")
    return tmp_path / "net.safetensors"


@pytest.fixture
def folder(tmp_path):
    """Images as files, whose names are not in the order in which they were made, and one other file."""
    made = tmp_path / "images"
    made.mkdir()
    for i, image in enumerate(IMAGES):
        PIL.fromarray(image).save(made / f"{9 - i}.{'png' if i % 2 else 'BMP'}")
    (made / "labels.txt").write_text("0 1 2")
    return made


def reported(capsys, *arguments):
    assert main(["net", *map(str, arguments), "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


def refused(capsys, *arguments):
    assert main(["net", *map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_info_counts_weights_and_multiply_adds(path, capsys):
    facts = reported(capsys, "info", path)
    assert facts["bytes"] == path.stat().st_size
    assert (facts["name"], facts["classes"], facts["input"]["shape"]) == ("resnet14", 10, [16, 16, 3])
    rows = {row["path"]: row for row in facts["layers"]}
    assert rows["0"]["weights"] == 27 * 8
    assert rows["0"]["multiply_adds"] == 27 * 8 * 16**2
    assert rows["3.body.1"]["detail"] == "3×3, stride 2×2"
    assert rows["3.shortcut.0"] | {"path": ""} == {
        "path": "",
        "type": "Pool",
        "detail": "max of 2×2, stride 2×2",
        "gives": "integers",
        "shape": [8, 8, 8],
        "weights": 0,
        "thresholds": 0,
        "multiply_adds": 0,
    }
    assert facts["weights"] == sum(row["weights"] for row in rows.values())
    assert main(["net", "info", str(path)]) == 0
    printed = capsys.readouterr().out
    for part in ("resnet14, 10 classes", f"{facts['multiply_adds']} multiply-adds", "3.shortcut.1", "4×4×32"):
        assert part in printed


def test_run_gives_the_answers_of_the_reference(path, tmp_path, capsys, monkeypatch):
    np.save(tmp_path / "x.npy", IMAGES)
    monkeypatch.setattr(images_module, "_AT_ONCE", 2 * IMAGES[0].size)
    found = reported(capsys, "run", path, tmp_path / "x.npy", "--top", 3)
    expected = run(NETWORK, IMAGES)
    assert [row["image"] for row in found["images"]] == list("01234")
    for i, row in enumerate(found["images"]):
        assert len(row["classes"]) == 3
        best = row["classes"][0]
        assert best["class"] == expected.classes[i]
        assert best["name"] == f"kind {best['class']}"
        for one in row["classes"]:
            assert one["logit"] == expected.logits[i, one["class"]]
            assert one["sum"] == expected.sums[i, one["class"]]
        logits = [one["logit"] for one in row["classes"]]
        assert logits == sorted(expected.logits[i].tolist(), reverse=True)[:3]


def test_the_simulator_gives_the_same_answers(tmp_path, capsys):
    pytest.importorskip("cuda.bindings", reason="compiling needs simwarp[compile]")
    save(mlp(width=64), tmp_path / "mlp")
    np.save(tmp_path / "x.npy", RNG.integers(0, 256, (9, 28, 28, 1), dtype=np.uint8))
    found = [
        reported(capsys, "run", tmp_path / "mlp", tmp_path / "x.npy", "--device", device)
        for device in ("reference", "sim")
    ]
    assert [one.pop("device") for one in found] == ["reference", "sim"]
    assert found[0] == found[1]


def test_without_a_gpu_cuda_is_refused(path, tmp_path, capsys, monkeypatch):
    def nothing():
        raise NoGpuError("no CUDA device can be used: none found")

    monkeypatch.setattr("gpu.cuda.default_device", nothing)
    np.save(tmp_path / "x.npy", IMAGES)
    message = refused(capsys, "run", path, tmp_path / "x.npy", "--device", "cuda")
    assert "give --device sim" in message


def test_run_takes_an_image_or_a_folder_in_the_order_of_the_names(path, folder, capsys):
    expected = run(NETWORK, IMAGES[::-1]).classes.tolist()
    found = reported(capsys, "run", path, folder)["images"]
    assert [row["image"] for row in found] == [str(one) for one in sorted(folder.iterdir())[:5]]
    assert [row["classes"][0]["class"] for row in found] == expected
    alone = reported(capsys, "run", path, folder / "8.png")["images"]
    assert [row["classes"][0]["class"] for row in alone] == [expected[3]]
    assert main(["net", "run", str(path), str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "8.png" in printed
    assert f"kind {expected[0]}" in printed


def test_grey_and_transparent_images_get_the_channels_that_are_needed(tmp_path, capsys):
    save(mlp(width=64), tmp_path / "mlp.safetensors")
    colours = RNG.integers(0, 256, (28, 28, 4), dtype=np.uint8)
    PIL.fromarray(colours).save(tmp_path / "x.png")
    grey = np.asarray(PIL.fromarray(colours).convert("L"))[None, :, :, None]
    found = reported(capsys, "run", tmp_path / "mlp.safetensors", tmp_path / "x.png")["images"][0]["classes"]
    assert found[0]["class"] == run(mlp(width=64), grey).classes[0]
    assert found[0]["name"] is None


def test_images_that_do_not_fit_are_refused_with_advice(path, folder, tmp_path, capsys):
    PIL.fromarray(IMAGES[0, :8]).save(folder / "0.png")
    assert "0.png is 16 × 8 pixels, and the network takes 16 × 16\ncrop and scale" in refused(
        capsys, "run", path, folder
    )
    for array, message in [
        (IMAGES[0], "(16, 16, 3), and the network takes (N, 16, 16, 3)\ncrop and scale images as"),
        (IMAGES[:, :8], "holds an array (5, 8, 16, 3)"),
        (IMAGES[:0], "holds an array (0, 16, 16, 3)"),
        (np.float32(1), "holds an array ()"),
        (IMAGES.astype(np.float32), "images are of float32, and Pixels takes uint8"),
    ]:
        np.save(tmp_path / "x.npy", array)
        assert message in refused(capsys, "run", path, tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", IMAGES[0])
    assert "add an axis, images[None]" in refused(capsys, "run", path, tmp_path / "x.npy")
    assert "cannot be read as an image" in refused(capsys, "run", path, folder / "labels.txt")
    assert "cannot be read as an image: No such file" in refused(capsys, "run", path, tmp_path / "none.png")
    whole = (folder / "8.png").read_bytes()
    (folder / "8.png").write_bytes(whole[: len(whole) // 2])
    assert "8.png cannot be read as an image" in refused(capsys, "run", path, folder / "8.png")
    (tmp_path / "empty").mkdir()
    assert "has no images" in refused(capsys, "run", path, tmp_path / "empty")


def test_a_network_of_floats_takes_no_bytes(tmp_path, folder, capsys):
    save(replace(NETWORK, input=Reals((16, 16, 3), 6)), tmp_path / "x.safetensors")
    message = refused(capsys, "run", tmp_path / "x.safetensors", folder)
    assert "the network takes float32 (N, 16, 16, 3)" in message
    np.save(tmp_path / "x.npy", IMAGES.astype(np.float32) / 256)
    assert len(reported(capsys, "run", tmp_path / "x.safetensors", tmp_path / "x.npy")["images"]) == 5


def test_a_picture_of_two_channels_is_refused(tmp_path, folder):
    given = Pixels((16, 16, 2), np.ones(2, np.int32), np.ones(2, np.int32))
    with pytest.raises(InputFileError, match="the network takes 2 channels"):
        next(images_module.open_images(folder, given).parts())


def test_without_pillow_the_extra_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'simwarp\[net\]'"):
        next(images_module.open_images(folder, NETWORK.input).parts())


def test_texts_of_strangers_do_not_move_the_cursor(tmp_path, capsys):
    save(replace(NETWORK, name="a\x1b[2Jb", about="[bold]c"), tmp_path / "x.safetensors")
    assert main(["net", "info", str(tmp_path / "x.safetensors")]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "[bold]c" in printed


def test_other_files_are_refused(tmp_path, capsys):
    (tmp_path / "x").write_bytes(b"x" * 99)
    for command in (["info", tmp_path / "x"], ["run", tmp_path / "x", tmp_path / "x.npy"]):
        assert "does not hold a network" in refused(capsys, *command)


@pytest.fixture
def text(tmp_path, monkeypatch):
    """The weights of a narrow MLP."""
    monkeypatch.setattr(
        text_weights,
        "plans",
        SimpleNamespace(
            **{
                **vars(text_weights.plans),
                "plan_mlp": lambda: plan_mlp(64),
            }
        ),
    )
    values = RNG.integers(-3, 4, text_weights._numbers_of(plan_mlp(64)))
    (tmp_path / "mlp.csv").write_text(" ".join(map(str, values)))
    return tmp_path / "mlp.csv"


def test_convert_writes_a_network(text, tmp_path, capsys):
    found = reported(capsys, "convert", "mlp", text, tmp_path / "x.safetensors")
    assert found["output"] == str(tmp_path / "x.safetensors")
    assert found["weights"] == 784 * 16 + 2 * 16**2 + 160
    images = RNG.integers(0, 256, (3, 28, 28, 1), dtype=np.uint8)
    np.testing.assert_array_equal(
        run(load(tmp_path / "x.safetensors"), images).logits,
        run(text_weights.from_text(text, "mlp"), images).logits,
    )
    assert main(["net", "convert", "mlp", str(text), str(tmp_path / "y")]) == 0
    assert (tmp_path / "y").read_bytes() == (tmp_path / "x.safetensors").read_bytes()
    assert f"wrote {tmp_path / 'y'}: mlp" in capsys.readouterr().err


def test_a_refused_conversion_writes_nothing(text, tmp_path, capsys):
    text.write_text(text.read_text().rpartition(" ")[0])
    assert "1 are missing" in refused(capsys, "convert", "mlp", text, tmp_path / "x")
    assert "there is no --form paper of mlp" in refused(
        capsys, "convert", "mlp", text, tmp_path / "x", "--form", "paper"
    )
    assert [*tmp_path.iterdir()] == [text]


@pytest.fixture
def keras(tmp_path):
    """A model of one layer."""
    settings = {"name": "classes", "units": 2, "kernel_quantizer": "ste_sign", "use_bias": False}
    settings["batch_input_shape"] = [None, 3]
    layers = [{"class_name": "QuantDense", "config": settings}]
    model = {"class_name": "Sequential", "config": {"name": "one layer", "layers": layers}}
    kernel = np.array([[1, -1], [-1, 1], [1, 1]], np.float32)
    np.savez(tmp_path / "x.npz", model_config=json.dumps(model), **{"classes/kernel": kernel})
    return tmp_path / "x.npz"


def test_convert_reads_models_of_keras(keras, tmp_path, capsys):
    found = reported(capsys, "convert", "keras", keras, tmp_path / "x", "--images", "bytes")
    assert (found["name"], found["input"]["type"], found["weights"]) == ("one layer", "Pixels", 6)
    answer = run(load(tmp_path / "x"), np.array([[255, 0, 255]], np.uint8))
    np.testing.assert_allclose(answer.logits, [[3, -1]], rtol=1e-6)  # the unit is 1 / 255


def test_options_of_other_models_are_refused(keras, text, tmp_path, capsys):
    others = ["--config", text], ["--fixed-point", 9]
    for options in others:
        message = refused(capsys, "convert", "mlp", text, tmp_path / "x", *options)
        assert "--config and --fixed-point are for keras" in message
    message = refused(capsys, "convert", "keras", keras, tmp_path / "x", "--form", "paper")
    assert "there is no --form paper of keras" in message
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_ctrl_c_leaves_nothing(tmp_path):
    source = tmp_path / "vgg16.csv"
    source.write_text("1 " * 20_000_000)
    process = subprocess.Popen(
        [sys.executable, "-m", "simwarp", "net", "convert", "vgg16", str(source), str(tmp_path / "x")],
        stderr=subprocess.PIPE,
        text=True,
    )
    while not has_open(process, source):
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.endswith("stopped\n")
    assert [*tmp_path.iterdir()] == [source]


def has_open(process, path):
    """Whether a process has a file open."""
    with suppress(OSError):  # a file that is closed meanwhile
        return any(entry.resolve() == path for entry in Path(f"/proc/{process.pid}/fd").iterdir())
    return False
