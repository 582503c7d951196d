"""A sparse tensor is checked once, where it enters: its kind and fields, and its arrays."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import gpu
import simwarp
from gpu.cpd import cpd_als
from gpu.mttkrp import FORMATS, checks, plan
from reference.types import Coo, sparse

COO = Coo([[0, 1], [2, 0], [1, 1]], [5.0, 7.0], (2, 3, 4))
FACTORS = [np.ones((n, 2)) for n in COO.shape]
PER_MODE = ("csf-all", "fibers-all", "b-csf", "f-coo")


@pytest.fixture
def passes(monkeypatch):
    """How often a tensor's kind is asked for, and the arrays of a format are read by its checks."""
    counts = Counter()

    def counted(function, name):
        def call(*arguments):
            counts[name] += 1
            return function(*arguments)

        return call

    monkeypatch.setattr(checks, "read_sparse", counted(checks.read_sparse, "kind"))
    for kind in sparse.SparseFormat.__subclasses__():
        monkeypatch.setattr(kind, "check_arrays", counted(kind.check_arrays, "arrays"))
    monkeypatch.setattr(sparse, "_check_indices", counted(sparse._check_indices, "indices"))
    return counts


@pytest.mark.parametrize("name", FORMATS)
def test_a_call_checks_a_tensor_once(passes, name):
    tensor, device = FORMATS[name](COO), simwarp.Device()
    once = {"kind": 1, "arrays": 1}
    for call in (
        lambda: gpu.mttkrp(tensor, FACTORS, 0, device=device),
        lambda: plan(tensor, 0, 2, np.float64, device),
    ):
        passes.clear()
        call()
        assert passes == once
    passes.clear()
    prepared = gpu.prepare(tensor, device=device)
    assert passes == once | ({"arrays": 3} if name in PER_MODE else {})
    passes.clear()
    for mode in range(3) if name != "csf-one" else (0,):
        gpu.mttkrp(prepared, FACTORS, mode)
    assert not passes


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_built_from_a_checked_tensor_is_not_checked(passes, name):
    gpu.prepare(COO, scheme=name, device=simwarp.Device())
    assert (passes["kind"], passes["arrays"]) == (1, 0)


def test_a_decomposition_checks_a_tensor_once(passes):
    tensor = FORMATS["mm-csf"](COO)
    passes.clear()
    cpd_als(tensor, 1, iterations=2, device=simwarp.Device())
    assert passes["kind"] == 1
    assert passes["arrays"] == len(tensor.parts)
