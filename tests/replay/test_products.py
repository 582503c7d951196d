"""±1 products of random shapes: the H200's equal NumPy's, and the simulator gives the same small ones."""

import numpy as np
import pytest

import simwarp
from simwarp.lab.recording import GOLDEN, recorded
from simwarp.lab.subjects import products

awaits = pytest.mark.skipif(
    not (GOLDEN / "sm_90" / "products.json").exists(), reason="awaits its recording on a GPU"
)


@pytest.fixture(scope="module")
def answers():
    return products.digest(simwarp.Device())


@awaits
def test_enough_products_of_each_kind_were_recorded_without_a_difference():
    meta = recorded("products").meta
    assert meta["products"] >= 5_000
    assert meta["many tiles shapes"] >= 500
    assert min(meta["few shapes"], meta["long shapes"]) >= 200
    assert min(meta[f"to {output}"] for output in products.OUTPUTS) >= 500
    assert meta["mismatches"] == meta["lost"] == 0


@pytest.mark.slow
@awaits
def test_the_simulator_reproduces_the_recorded_products(answers):
    assert recorded("products").meta["first"] == answers


@pytest.mark.parametrize("number", products.REPLAYED[::5])
def test_the_simulator_agrees_with_numpy(number):
    item = products.drawn(number)
    np.testing.assert_array_equal(
        products.answer(simwarp.Device(), item), products.expected(item), strict=True
    )


@pytest.mark.slow
def test_a_wrong_product_is_described_with_its_number(monkeypatch):
    answer = products.answer

    def wrong(device, item):
        found = answer(device, item)
        found.ravel()[:1] += 1
        return found

    monkeypatch.setattr(products, "answer", wrong)
    counts, (difference, *_) = products.compare(simwarp.Device(), 0, small=True)
    assert counts["mismatches"] == counts["products"] == 8
    assert difference.startswith("product 6, tiny: 31 x 2 by 2 x 26 to int32, wgmma: [1, 1] elements differ")
