"""The benchmark of level-3 BLAS: its rows on GPUs that are not there, its checks, its model."""

import ctypes
import time

import numpy as np
import pytest

import simwarp
from benchmark_scripts import scripts
from gpu.cuda_machine.cublas import type_of
from simwarp.machine import H200x2
from support.fake_gpus import gpus

__all__ = ["gpus"]

blas3, cases, peers, probe = scripts("blas3", "blas3_cases", "blas3_peers", "blas3_probe")


class Clocked(simwarp.Machine):
    """A simulated machine without values, whose probe reads its clock."""

    def __init__(self, topology, monkeypatch):
        super().__init__(topology, values=False)
        monkeypatch.setattr(time, "perf_counter", self.seconds)

    def name(self, device):
        return "simulated"


@pytest.mark.at_most(3)
@pytest.mark.parametrize("kind", cases.CALLS)
@pytest.mark.parametrize("prefix", cases.DTYPES)
def test_answers_are_checked(kind, prefix):
    case = cases.Case(cases.Operands(70, prefix), kind)
    machine = simwarp.Machine()
    for _ in range(2):
        samples = case.sample()
        case.run(machine, tile=32)
        assert samples.check(case.name) < 0.5
    samples.result[samples.rows[0], samples.columns[0]] *= 1.001
    with pytest.raises(SystemExit, match="the answer is wrong"):
        samples.check(case.name)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("row", ["dgemm/96", "dtrmm/96", "dtrsm/96/2"])
def test_a_row_has_times_peers_and_bytes(gpus, monkeypatch, row):
    gpus(2)
    monkeypatch.setitem(blas3.TARGETS, row, None)
    monkeypatch.setattr(blas3, "TILES", ())
    monkeypatch.setattr(blas3, "Xt", lambda *_: type("Xt", (), {"close": lambda self: None})())
    monkeypatch.setattr(blas3, "SIDE", 16)
    bench = blas3.Bench(2, True, 32)
    found = bench.row(row)
    assert found.ours > 0
    assert found.peers["in-core"] > 0
    assert found.params["bytes_in"] + found.params["bytes_out"] >= found.params["bytes_least"]
    assert found.params["devices"] == 1 + row.endswith("/2")
    assert found.params["model_seconds"] > 0
    assert found.params["probed"]["in of device 0"] > 0
    assert bench.row(row).params["pinning_seconds"] >= 0


def test_arguments_of_cublasxt_are_those_of_its_header():
    """Flags, sizes and pointers in the order of ``cublasXt.h``."""
    letters = {ctypes.c_int: "i", ctypes.c_int64: "z", ctypes.c_void_p: "p"}
    operands = cases.Operands(8, "d")
    kinds = ("gemm", "symm", "syrk", "syr2k", "trmm", "trsm")
    found = {kind: peers.arguments(cases.Case(operands, kind)) for kind in kinds}
    assert {kind: "".join(letters[type_of(name)] for name in names) for kind, names in found.items()} == {
        "gemm": "iizzzppzpzppz",
        "symm": "iizzppzpzppz",
        "syrk": "iizzppzppz",
        "syr2k": "iizzppzpzppz",
        "trmm": "iiiizzppzpzpz",
        "trsm": "iiiizzppzpz",
    }


def test_a_simulated_machine_is_probed_as_it_is(monkeypatch):
    found = probe.Probe(Clocked(H200x2, monkeypatch), 1024).topology()
    for route, link in H200x2.routes().items():
        assert found.link(route).bytes_per_second == pytest.approx(
            link.bytes_per_second, rel=0.15
        )  # of latencies
    assert found.gpus[1].rates["float32"] == pytest.approx(52.4e12, rel=0.2)  # with launches
    (_, both), *_, everything = ((one.routes, one.bytes_per_second) for one in found.shared)
    assert both == pytest.approx(100.5e9, rel=0.02)
    assert everything[1] == pytest.approx(2 * 100.5e9, rel=0.04)


def test_the_model_predicts_rows_without_matrices(monkeypatch):
    monkeypatch.setitem(blas3.TARGETS, "dsyrk/2048/2", None)
    (row,) = blas3.predictions(["dsyrk/2048/2"], 512)
    assert 0 < row.ours < 120
    assert row.params["seconds"] == pytest.approx(2048**3 / row.ours / 1e12, rel=1e-2)


def test_targets_are_those_of_the_peers_where_none_is_given():
    assert blas3.target_of("dsyrk/16384/2", {"cublasXt": 46.0, "in-core": 47.6}, 2) == 62.1
    assert blas3.target_of("dgemm/16384", {"cublasXt": 38.0, "in-core": 56.0}, 1) == 51.0
    assert blas3.target_of("dsyrk/16384", {}, 1) is None


def test_matrices_are_filled_by_seed():
    one, other = (cases.filled(33, 20, np.float32, 5, threads) for threads in (1, 3))
    assert one.flags.f_contiguous
    assert one.shape == other.shape == (33, 20)
    assert abs(one).max() <= 0.5
