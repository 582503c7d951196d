"""What BSTC claims of its kernels (section 1): no divergence, no bank conflict, nothing loaded in vain."""

import numpy as np
import pytest

import gpu
from simwarp import Device

RNG = np.random.default_rng(5)


def observed():
    return Device(observe=("banks", "sectors", "divergence"))


def lines_of(counts, source):
    """The lines of a kernel's own file, and what is counted there."""
    return {line: counts[line] for line in counts if line.startswith(source)}


def check_lanes(report, source):
    found = lines_of(report.divergence, source)
    assert len(found) > 5
    assert sum(use.branches for use in found.values()) > 0
    assert [line for line, use in found.items() if use.divergent_branches] == []
    assert report.bank_conflicts.total == 0


@pytest.mark.slow
@pytest.mark.at_most(2)
@pytest.mark.parametrize("scheme", ["bmm32", "bmm64", "bmms32", "bmms64"])
def test_warps_of_a_product_neither_diverge_nor_load_in_vain(scheme):
    device = observed()
    a, b = (
        RNG.standard_normal((64, 192)).astype(np.float32),
        RNG.standard_normal((192, 64)).astype(np.float32),
    )
    gpu.bmm(a, b, scheme=scheme, thresholds=np.zeros(64, np.int32), device=device)
    check_lanes(device.report, "bmm/bmm.cu")
    sectors = device.report.sectors
    loads = [line for line in sectors if line.startswith("bmm/bmm.cu")]
    assert loads
    assert {sectors.counts(line).efficiency for line in loads} == {1}


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("scheme", ["bconv32", "bconv64"])
def test_warps_of_a_convolution_do_not_diverge(scheme):
    device = observed()
    x, w = RNG.standard_normal((1, 8, 8, 128)), RNG.standard_normal((3, 3, 128, 64))
    gpu.bconv2d(x, w, scheme=scheme, padding="VALID", thresholds=np.zeros(64, np.int32), device=device)
    check_lanes(device.report, "bconv/bstc.cu")
