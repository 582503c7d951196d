"""Training of binarized models: the same by a seed, after an interrupt too; checkpoints that do not fit."""

from __future__ import annotations

import importlib

import pytest

from reference import InputFileError, SchemeError

torch = pytest.importorskip("torch", reason="simwarp.torch needs torch")
st = importlib.import_module("simwarp.torch")


def model(features=9):
    torch.manual_seed(5)
    return torch.nn.Sequential(
        st.ImagePixels(offset=-8),
        st.BinaryLinear(features, 12),
        torch.nn.BatchNorm1d(12),
        st.Sign(),
        st.BinaryLinear(12, 2),
        torch.nn.BatchNorm1d(2),
    )


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(0, 17, (60, 9), dtype=torch.uint8, generator=generator)
    return images, (images[:, 0] > images[:, 1]).long()


def noise(images):
    return (images + torch.randint(0, 2, images.shape)).to(torch.uint8)


def state(trained):
    return {name: tensor.tolist() for name, tensor in trained.state_dict().items()}


OPTIONS = {"epochs": 4, "batch": 16, "rate": 0.05, "seed": 3, "progress": False}


def test_a_model_learns_with_latent_weights_in_bounds(data):
    trained = model()
    history = st.train(trained, data, **OPTIONS | {"epochs": 30})
    assert len(history) == 30
    assert history[-1].accuracy > 0.85 > history[0].accuracy
    assert history[-1].loss < history[0].loss
    assert trained[1].weight.abs().max() <= 1
    assert not trained.training
    assert (st.predict(trained, data[0], batch=7) == data[1]).float().mean() > 0.8


def test_an_interrupted_training_ends_like_one_that_was_not(data, tmp_path):
    whole, parts = model(), model()
    expected = st.train(whole, data, augment=noise, **OPTIONS)
    path, steps = tmp_path / "x.pt", iter(range(8))

    def interrupted(images):
        if next(steps, None) is None:
            raise KeyboardInterrupt
        return noise(images)

    with pytest.raises(KeyboardInterrupt):
        st.train(parts, data, augment=interrupted, checkpoint=path, **OPTIONS)
    resumed = model()
    before = torch.random.get_rng_state()
    assert st.train(resumed, data, augment=noise, checkpoint=path, **OPTIONS) == expected
    assert torch.equal(before, torch.random.get_rng_state())
    assert state(resumed) == state(whole)
    assert [file.name for file in tmp_path.iterdir()] == ["x.pt"]
    assert st.train(resumed, data, checkpoint=path, **OPTIONS) == expected
    other = model()
    assert st.train(other, data, **OPTIONS | {"seed": 4}) != expected


def test_datasets_and_the_bar(data, capsys):
    dataset = torch.utils.data.TensorDataset(*data)
    history = st.train(model(), dataset, **OPTIONS | {"progress": True})
    assert history == st.train(model(), data, **OPTIONS)
    assert f"{history[-1].accuracy:.1%} right" in capsys.readouterr().out


def test_checkpoints_and_data_that_do_not_fit(data, tmp_path):
    path = tmp_path / "x.pt"
    st.train(model(), data, checkpoint=path, **OPTIONS | {"epochs": 1})
    with pytest.raises(SchemeError, match=r"'epochs': 1.*\nand this training has .*'epochs': 4"):
        st.train(model(), data, checkpoint=path, **OPTIONS)
    narrow = data[0][:, :8].contiguous(), data[1]
    with pytest.raises(SchemeError, match="checkpoint of another model"):
        st.train(model(8), narrow, checkpoint=path, **OPTIONS | {"epochs": 1})
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputFileError, match="cannot be read as a checkpoint"):
        st.train(model(), data, checkpoint=path, **OPTIONS)
    with pytest.raises(InputFileError, match="cannot be written"):
        st.train(model(), data, checkpoint=tmp_path / "no" / "x.pt", **OPTIONS)
    with pytest.raises(SchemeError, match="60 images, fewer than a batch of 64"):
        st.train(model(), data, **OPTIONS | {"batch": 64})
