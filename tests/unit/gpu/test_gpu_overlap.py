"""Launches that begin before earlier ones have ended: what they read of those is loaded in order.

ptxas may move a load of constant memory (``ld.global.nc``) before ``griddepcontrol.wait``, as it did in the
product of few rows. The simulator names such a load of what an overlapped launch wrote; here are also those
that no network of a test reaches.
"""

import numpy as np
import pytest

import gpu
import gpu.bnn
import simwarp
from gpu.bconv.geometry import conv_shape
from gpu.bconv.warpgroups import WARPGROUP_SCHEMES as CONVOLUTIONS
from gpu.bmm.skinny import OUTPUTS, SKINNY_SCHEMES
from gpu.bmm.warpgroups import TILES
from gpu.bmm.warpgroups import WARPGROUP_SCHEMES as PRODUCTS
from reference.bnn import alexnet, mlp, resnet14


def loads_of_constants(ptx):
    """The loads behind the first wait that may be moved before it."""
    _, wait, after = ptx.partition("griddepcontrol.wait")
    assert wait
    return [line for line in after.splitlines() if "ld.global.nc" in line]


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("m", [3, 90])
def test_products_of_few_rows_or_columns(m, output):
    plan = SKINNY_SCHEMES["skinny"].plan((m, 12, 3000), output, (9, 0), 132, early=True)
    assert loads_of_constants(plan.ptx) == []


@pytest.mark.parametrize("output", TILES)
def test_products_on_warpgroups(output):
    plan = PRODUCTS["wgmma"].plan((200, 200, 300), output, 132)
    assert loads_of_constants(plan.ptx) == []


@pytest.mark.at_most(3)
@pytest.mark.parametrize("output", ["int", "int16", "bits"])
@pytest.mark.parametrize("c", [64, 512, 1100])
def test_convolutions_on_warpgroups(c, output):
    shape = conv_shape((2, 9, 9, c), (3, 3, c, 70))
    plan = CONVOLUTIONS["wgmma"].plan(shape, output, "none", (9, 0), 132)
    assert loads_of_constants(plan.ptx) == []


@pytest.mark.at_most(1)
@pytest.mark.parametrize("make", [mlp, alexnet, resnet14])
def test_networks(make, monkeypatch):
    options = {"width": 16} if make is mlp else {"width": 16, "size": 32}
    network, found = make(**options), {}
    launch = simwarp.Device.launch
    monkeypatch.setattr(
        simwarp.Device,
        "launch",
        lambda self, plan, arrays: (
            found.setdefault((plan.ptx, plan.name), plan) and launch(self, plan, arrays)
        ),
    )
    images = np.zeros((1, *network.input.shape), np.uint8)
    gpu.bnn.prepare(network, device=simwarp.Device((9, 0))).run(images)
    overlapping = [plan for plan in found.values() if plan.dependent]
    assert len(overlapping) >= 3
    for plan in overlapping:
        assert loads_of_constants(plan.ptx) == [], plan.name
