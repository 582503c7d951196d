"""The benchmark of Hopper's products, on the simulator: it checks what it measures."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

import simwarp
from simwarp.tensormaps import encode

MODULES = ("common", "hopper", "bits", "tune")


def scripts():
    """The two scripts, as they run in their folder; other folders have modules of the same names."""
    before = {name: sys.modules.pop(name) for name in MODULES if name in sys.modules}
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    try:
        return import_module("bits"), import_module("tune")
    finally:
        del sys.path[0]
        for name in MODULES:
            sys.modules.pop(name, None)
        sys.modules.update(before)


bits, tune = scripts()


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """Nothing is timed, and tensor maps are the simulator's."""

    def once(_device, launch, **_):
        launch(None)
        return 1e-3

    monkeypatch.setattr(bits, "encoded", lambda tensor, _: encode(tensor))
    monkeypatch.setattr(bits, "seconds", once)
    monkeypatch.setattr(bits, "copy_of", lambda *_: lambda _: None)
    monkeypatch.setattr(bits, "_COLD", 1 << 12)
    monkeypatch.setattr(bits, "MEASUREMENTS", 1)
    return simwarp.Device((9, 0), multiprocessors=3)


@pytest.mark.parametrize("case", bits.TARGETS)
def test_products_are_measured_and_checked(device, monkeypatch, case):
    monkeypatch.setitem(bits.TARGETS, case, {256: 7.0})
    (row,) = bits.rows_of(device, [case], 0.0)
    assert (row.case, row.unit, row.target) == (f"{case}/256", "TOPS", 7.0)
    assert row.params["sets"] >= 2


def test_a_wrong_product_ends_the_run(device):
    product = bits.Product(device, (64, 64, 128), "int32")
    product.host[0][0][:] ^= 1
    with pytest.raises(SystemExit, match=r"\(64, 64, 128\) to int32: the answer is wrong"):
        product.check()


def test_packing_is_checked(device):
    assert [row.case for row in bits.pack_rows(device, 128)] == ["pack/f32", "pack/f16"]


def test_every_candidate_of_tuning_fits_and_runs(device):
    for output in ("words", "int32", "int16"):
        found = list(tune.candidates(output))
        assert len(found) == len(set(found)) >= 8
        assert all(tile.shared(output) <= tune.MOST_SHARED for tile in found)
    product = bits.Product(device, (64, 64, 128), "int16", found[-1])
    product.check()
