"""examples/networks/accuracy.py on small files in the formats of MNIST and CIFAR-10."""

import gzip
import runpy

import numpy as np
import pytest

from support.sources import ROOT

SCRIPT = runpy.run_path(str(ROOT / "examples" / "networks" / "accuracy.py"))


def idx(array):
    return b"\0\0\x08" + bytes([array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def drawn(shape, count, seed):
    """Images of ten classes, each a pattern with noise."""
    random = np.random.default_rng(seed)
    patterns = np.random.default_rng(0).integers(0, 2, (10, *shape)) * 200
    classes = np.arange(count) % 10
    return (patterns[classes] + random.integers(0, 56, (count, *shape))).astype(np.uint8), classes


@pytest.fixture
def mnist(tmp_path):
    for part, count in (("train", 640), ("t10k", 40)):
        images, classes = drawn((28, 28), count, seed=count)
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx(classes.astype(np.uint8)))
    return tmp_path


@pytest.fixture
def cifar10(tmp_path):
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        images, classes = drawn((32, 32, 3), 40, seed=len(name))
        records = np.concatenate([classes[:, None], images.transpose(0, 3, 1, 2).reshape(40, -1)], axis=1)
        (tmp_path / f"{name}.bin").write_bytes(records.astype(np.uint8).tobytes())
    return tmp_path


def test_files_of_mnist_are_read(mnist):
    (images, classes), (unseen, truth) = SCRIPT["mnist"](mnist)
    np.testing.assert_array_equal(images[..., 0], drawn((28, 28), 640, seed=640)[0])
    assert (unseen.shape, classes[:12].tolist()) == ((40, 28, 28, 1), [*range(10), 0, 1])
    assert truth.dtype == np.int64


def test_files_of_cifar10_are_read(cifar10):
    (images, classes), (unseen, _) = SCRIPT["cifar10"](cifar10)
    assert (images.shape, unseen.shape, classes[11]) == ((200, 32, 32, 3), (40, 32, 32, 3), 1)
    np.testing.assert_array_equal(unseen, drawn((32, 32, 3), 40, seed=len("test_batch"))[0])


def test_files_that_lack_or_are_cut_off_are_named(mnist):
    path = mnist / "t10k-labels-idx1-ubyte"
    for data in (path.read_bytes()[:-1], b"", b"\0\0\x08\x02\0\0", b"\0\0\x0d\x01" + bytes(8)):
        path.write_bytes(data)
        with pytest.raises(SystemExit, match="t10k-labels-idx1-ubyte is not an array of bytes"):
            SCRIPT["mnist"](mnist)
    path.unlink()
    with pytest.raises(SystemExit, match="has no t10k-labels-idx1-ubyte"):
        SCRIPT["mnist"](mnist)
    (mnist / "data_batch_1.bin").write_bytes(bytes(100))
    with pytest.raises(SystemExit, match=r"has no data_batch_2\.bin"):
        SCRIPT["cifar10"](mnist)


@pytest.mark.parametrize("options", [[], ["--bits"]])
def test_the_mlp_trains_with_torch_and_its_export_names_the_classes(mnist, options, capsys):
    pytest.importorskip("torch", reason="simwarp.torch needs torch")
    SCRIPT["main"](["mnist", str(mnist), "--epochs", "3", "--width", "8", *options])
    printed = capsys.readouterr().out
    assert printed.startswith("mnist: 100.00 % of 40 are right, printed 97.6 %")
    assert (mnist / "mnist.safetensors").exists()


@pytest.mark.parametrize("options", [[], ["--bits"]])
def test_the_vgg_trains_with_torch(cifar10, options, capsys):
    pytest.importorskip("torch", reason="simwarp.torch needs torch")
    SCRIPT["main"](["cifar10", str(cifar10), "--epochs", "2", "--width", "32", *options])
    assert "% of 40 are right, printed 88.7 %" in capsys.readouterr().out
