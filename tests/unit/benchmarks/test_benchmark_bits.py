"""The benchmark of Hopper's products and convolutions, on the simulator: it checks what it measures."""

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import simwarp
from benchmark_scripts import scripts
from simwarp.tensormaps import encode

bits, cases, peers, rivals, common, first_call, tune = scripts(
    "bits", "bits_cases", "bits_peers", "bits_rivals", "common", "first_call", "tune"
)


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """Nothing is timed, and tensor maps are the simulator's."""

    def once(_device, launch, **_):
        launch(None)
        return 1e-3

    monkeypatch.setattr(cases, "encoded", lambda tensor, _: encode(tensor))
    monkeypatch.setattr(cases, "_COLD", 1 << 13)
    monkeypatch.setattr(cases, "seconds", once)
    monkeypatch.setattr(cases, "MEASUREMENTS", 1)
    return simwarp.Device((9, 0), multiprocessors=3)


@pytest.mark.at_most(2)
@pytest.mark.parametrize("kind", bits.PRODUCTS)
def test_products_are_measured_and_checked(device, monkeypatch, kind):
    monkeypatch.setitem(bits.PRODUCTS, kind, {128: 7.0})
    monkeypatch.setattr(cases, "MEASUREMENTS", 2)
    (row,) = bits.rows_of(device, [kind], 0.0)
    assert (row.case, row.unit, row.target) == (f"{kind}/128", "TOPS", 7.0)
    assert row.params["sets"] == 2
    assert row.params["runs"] == [row.ours] * 2


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.parametrize("kind", bits.CONVOLUTIONS)
def test_convolutions_are_measured_and_checked(device, monkeypatch, kind):
    monkeypatch.setitem(bits.CONVOLUTIONS, kind, {128: 7.0})
    monkeypatch.setattr(cases, "MEASUREMENTS", 2)
    (row,) = bits.convolution_rows(device, kind, images=(2, 5, 6))
    assert (row.case, row.unit, row.target) == (f"{kind}/128", "TOPS", 7.0)
    assert row.params["sets"] == 9
    assert row.params["dependent"]


@pytest.mark.slow
def test_other_kernels_are_measured_and_checked(device, monkeypatch):
    monkeypatch.setattr(bits, "FLOATS", {"rows": (128, 0, None), "columns": (128, 1, 7.0)})
    monkeypatch.setattr(bits, "SKINNY_SIZES", ((3, 64, 256),))
    found = [*bits.float_rows(device), *bits.skinny_rows(device), *bits.pack_rows(device, 128)]
    assert [row.case for row in found] == [
        *("rows/128", "columns/128"),
        *("bmm-skinny/3x64x256", "bmm-skinny-int32/3x64x256"),
        *("pack/f32", "pack/f16"),
    ]


@pytest.mark.at_most(3)
@pytest.mark.parametrize(
    ("make", "spoil"),
    [
        (lambda d: cases.Product(d, (64, 64, 128), "int32"), lambda case: case.host[0][0]),
        (
            lambda d: cases.Product(d, (3, 64, 128), "words", scheme=cases.SKINNY),
            lambda case: case.host[0][1],
        ),
        (lambda d: cases.Convolution(d, 128, "int", images=(1, 4, 4)), lambda case: case.weights),
        (lambda d: cases.Packing(d, np.float16, 128), lambda case: case.host.view(np.int16)),
        (lambda d: cases.Whole(d, np.float16, 128, 1), lambda case: case.packings[0].host.view(np.int16)),
        (lambda d: cases.Copy(d, 4096), lambda case: case.host),
    ],
)
def test_a_wrong_answer_ends_the_run(device, make, spoil):
    case = make(device)
    case.check()
    spoil(case)[:] ^= np.array(-1).astype(spoil(case).dtype)
    with pytest.raises(SystemExit, match="the answer is wrong"):
        case.check()


@pytest.mark.parametrize("kind", [rivals.Xnor, rivals.U4])
@pytest.mark.parametrize("n", [33, 600])
def test_rivals_give_the_product_and_a_wrong_one_ends_the_run(device, kind, n):
    case = kind(device, n)
    case.check()
    case.host[0][0][0, 0] ^= 1
    case.host[0][0][0, 1] ^= 2
    with pytest.raises(SystemExit, match="the answer is wrong"):
        case.check()


def test_reals_are_numbers_of_both_signs():
    found = cases.reals((1000,), np.float16)
    assert np.isfinite(found).all()
    assert 300 < (found >= 0).sum() < 700


def test_the_first_call_is_checked_and_its_parts_are_added(monkeypatch):
    parts = first_call.measure(lambda: simwarp.Device((9, 0)), 32)
    assert set(parts) == {"imports", "context", "call"}
    calls = iter([9.0, 0.5, 0.25, 0.75])
    monkeypatch.setattr(
        bits, "first_call", lambda folder: {"imports": 1.0, "context": 3.0, "call": next(calls)}
    )
    warm, cold = bits.first_call_rows()
    assert (warm.case, warm.ours, warm.target) == ("first-call", 1.5, 1.0)
    assert (cold.case, cold.ours, cold.target) == ("first-call-cold", 10.0, None)
    assert warm.params["context"] == 3.0


def test_a_process_of_a_first_call_has_caches_of_its_own(monkeypatch, tmp_path):
    def run(command, env, **_):
        assert env["SIMWARP_CACHE"].startswith(str(tmp_path))
        assert env["CUDA_CACHE_PATH"].startswith(str(tmp_path))
        return SimpleNamespace(returncode="x" in failing, stdout='{"call": 1.0}', stderr="no GPU")

    failing = ""
    monkeypatch.setattr(bits.subprocess, "run", run)
    assert bits.first_call(tmp_path) == {"call": 1.0}
    failing = "x"
    with pytest.raises(SystemExit, match="no GPU"):
        bits.first_call(tmp_path)


def written(path, ours, **meta):
    """A result of one row."""
    row = common.Row("a", {"runs": [ours]}, "TOPS", "higher", ours, {"peer": ours / 2}, target=5.0)
    common.write(path, {"commit": "c", "gpu": "H200", **meta}, [row])
    return path


def test_parts_of_one_commit_are_merged(tmp_path):
    paths = [written(tmp_path / f"{x}.json", x) for x in (1.0, 9.0, 4.0)]
    common.write(
        tmp_path / "b.json", {"commit": "c", "gpu": "H200"}, [common.Row("b", {}, "s", "lower", 1.0)]
    )
    meta, (a, b) = common.merged([*paths, tmp_path / "b.json"])
    assert (a.ours, a.target, a.peers) == (4.0, 5.0, {"peer": 2.0})
    assert a.params == {"runs": [1.0, 9.0, 4.0], "calls": [1.0, 9.0, 4.0]}
    assert (b.case, b.params) == ("b", {})
    assert meta == {"commit": "c", "gpu": "H200", "parts": 4}


@pytest.mark.parametrize("what", ["commit", "gpu"])
def test_parts_of_different_commits_or_chips_are_refused(tmp_path, what):
    paths = [written(tmp_path / f"{x}.json", 1.0, **{what: x}) for x in ("one", "two")]
    with pytest.raises(SystemExit, match=f"{what} is one in one file and two in another"):
        common.merged(paths)


def test_the_command_merges_files(tmp_path, monkeypatch):
    path = written(tmp_path / "part.json", 1.0)
    out = tmp_path / "all.json"
    monkeypatch.setattr(sys, "argv", ["bits.py", "--merge", str(path), "--json", str(out)])
    bits.main()
    assert json.loads(out.read_text())["meta"]["parts"] == 1


@pytest.mark.slow
def test_rows_name_the_peers_that_take_the_same_operands(device, monkeypatch):
    monkeypatch.setitem(bits.PRODUCTS, "bmm-int32", {128: 7.0})
    monkeypatch.setitem(bits.CONVOLUTIONS, "bconv-int32", {128: 7.0})
    monkeypatch.setattr(bits, "FLOATS", {"rows": (128, 0, None)})
    products = {"cuBLASLt f16": 2.0, "fp-cuda": 3.0}
    others = SimpleNamespace(
        numbers=lambda n: products,
        products=lambda n: products,
        convolutions=lambda channels: {"cuDNN": channels},
    )
    (product,) = bits.product_rows(device, "bmm-int32", 0.0, others)
    (convolution,) = bits.convolution_rows(device, "bconv-int32", others, images=(1, 4, 4))
    (of_floats,) = bits.float_rows(device, others)
    assert product.peers == products
    assert convolution.peers == {"cuDNN": 128}
    assert of_floats.peers == {"cuBLASLt f16": 2.0}


def test_who_cannot_be_had_is_left_out_with_a_reason(device, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    found = peers.Peers(device, fp_cuda=tmp_path)
    assert found.products(32).keys() == found.products(33).keys() == {"xnor", "u4"}
    assert found.convolutions(128) == {}
    torch, cutlass, fp_cuda = capsys.readouterr().out.splitlines()
    assert torch.startswith("torch is left out: ")
    assert cutlass == "CUTLASS is left out: its headers are not given with --cutlass"
    assert fp_cuda == f"fp-cuda is left out: {tmp_path / 'matmul_b1.cu'} does not exist"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FileNotFoundError(), "nvcc is not installed"),
        (subprocess.CalledProcessError(1, "nvcc", stderr="no such header"), "no such header"),
    ],
)
def test_a_peer_that_does_not_compile_is_left_out(tmp_path, monkeypatch, error, reason):
    def run(*_, **__):
        raise error

    monkeypatch.setattr(peers.subprocess, "run", run)
    with pytest.raises(peers.LeftOutError, match=reason):
        peers.cutlass_library(tmp_path)


def test_operands_of_fp_cuda_are_tiles_of_a_step_along_k():
    lines = np.arange(3 * 36, dtype=np.uint32).reshape(3, 36)
    tiles = peers.tiles_of(lines, 2, 4)
    assert tiles.shape == (2, 2, 2, 32)
    assert (tiles[0, 1, 0] == lines[2, :32]).all()
    assert (tiles[1, 0, 1, :4] == lines[1, 32:]).all()
    assert not tiles[1, :, :, 4:].any()
    assert not tiles[:, 1, 1].any()


class Library:
    """CUTLASS's, as far as the benchmark knows it; its second tile is wrong."""

    def tile_name(self, tile):
        return [b"right", b"wrong", None][tile]

    def cutlass_b1(self, tile, *_):
        case = self.case
        ones = [cases.bits_of(lines, case.n).astype(np.int32) for lines in case.host[0]]
        case._c.upload(ones[0] @ ones[1].T + tile)
        return 0


def test_products_of_cutlass_are_checked(device):
    library = Library()
    case = library.case = peers.Cutlass(device, library, 128)
    case.check()
    case.tile = 1
    with pytest.raises(SystemExit, match="CUTLASS, 128 x 128: the answer is wrong"):
        case.check()
    library.cutlass_b1 = lambda *_: 7
    with pytest.raises(SystemExit, match="status 7"):
        case.check()


def test_products_of_fp_cuda_are_checked(device, monkeypatch):
    def launch_of(_device, plan, arrays):
        assert (plan.grid, plan.args[3:]) == ((2, 1, 1), (2, 2, 384, 1024))  # tiles of A and B, rows, K
        return lambda stream, *, dependent: None

    monkeypatch.setattr(peers, "launch_of", launch_of)
    case = peers.FpCuda(device, "", 256)
    a, b = (cases.bits_of(lines, 256).astype(np.int32) for lines in case.host[0])
    answer = np.zeros(case._c.shape, np.uint32)
    answer[:256] = np.packbits(a @ b.T & 1, axis=1, bitorder="little").view(np.uint32)
    case._c.upload(answer)
    case.check()
    case._c.upload(~answer)
    with pytest.raises(SystemExit, match="fp-cuda, 256 x 256: the answer is wrong"):
        case.check()


@pytest.mark.slow
def test_every_candidate_of_tuning_fits_and_runs(device):
    for output in ("words", "int32", "int16"):
        found = list(tune.candidates(output))
        assert len(found) == len(set(found)) >= 8
        assert all(tile.shared(output) <= tune.MOST_SHARED for tile in found)
    cases.Product(device, (64, 64, 128), "int16", found[-1]).check()
