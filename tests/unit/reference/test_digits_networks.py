"""The digits' networks that examples/networks/digits.py trained: the classes of PyTorch, without PyTorch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from reference.bnn import load, run

pytest.importorskip("safetensors", reason="network files need simwarp[net]")

FOLDER = Path(__file__).parents[3] / "examples" / "networks"
EXPECTED = json.loads((FOLDER / "digits.json").read_text())


@pytest.mark.at_most(1)
@pytest.mark.parametrize(("name", "accuracy"), [("digits-mlp", 0.98), ("digits-conv", 0.99)])
def test_held_back_digits_have_the_classes_of_pytorch(name, accuracy):
    datasets = pytest.importorskip("sklearn.datasets", reason="the digits are scikit-learn's")
    pixels, labels = datasets.load_digits(return_X_y=True)
    network = load(FOLDER / f"{name}.safetensors")
    answer = run(network, pixels[3::4].astype(np.uint8).reshape(-1, 8, 8, 1))
    assert answer.classes.tolist() == EXPECTED[name]
    right = (answer.classes == labels[3::4]).mean()
    assert right >= accuracy
    assert f"{right:.1%} of the others are right" in network.about
    assert network.classes == tuple("0123456789")
