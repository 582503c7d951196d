"""The kernels of `examples/kernels` are bit-exact at ragged sizes and equal the recorded silicon outputs."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import simwarp
from reference.errors import InputFileError
from simwarp.lab import recording as lab
from simwarp.lab.subjects import kernels as recorder
from simwarp.testing import assert_same_bits
from simwarp.verify import Draw

ROOT = Path(__file__).resolve().parents[3]
NAMES, example = recorder.names(), partial(lab.example, "kernels")
common = example("common")

SIZES = (1, 2, 31, 32, 33, 127, 257, 521, 1031)
SHAPES = ((1, 1), (1, 33), (31, 1), (32, 32), (33, 31), (7, 129), (67, 5))


def reals(*shape, k=0):
    return common.reals(Draw(1, "examples", k), *shape)


def whole(n, end=2**32):
    return common.whole(Draw(1, "examples", 0), n, end)


# ---- float32, operation by operation, in the order in which the kernels take them ----------------------


def fma(a, b, c):
    """Result of a * b + c rounded once: computed in float64 with rounding to odd, then rounded to float32."""
    product, c = np.multiply(a, b, dtype=np.float64), np.asarray(c, np.float64)
    total = np.asarray(product + c)
    from_c = total - product
    error = (product - (total - from_c)) + (c - from_c)
    nearer = np.nextafter(total, np.copysign(np.inf, error))
    to_odd = (error != 0) & (total.view(np.int64) % 2 == 0)
    return np.where(to_odd, nearer, total).astype(np.float32)


def add_up(terms):
    """Sum along the first axis, term by term."""
    total = np.float32(0)
    for term in terms:
        total = total + term
    return total


def add_up_products(a, b):
    """Sum of products along the first axes, by fused multiply-adds."""
    total = np.float32(0)
    for x, y in zip(a, b, strict=True):
        total = fma(x, y, total)
    return total


def add_up_warps(x):
    """Sum along the last axis by repeatedly adding its halves, as a shuffle reduction does."""
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:]
    return x[..., 0]


def deal(x, threads):
    """Distribute the last axis over threads: (…, n) → (turns, …, threads), padded with zeros."""
    turns = -(-x.shape[-1] // threads)
    filled = np.zeros((*x.shape[:-1], turns * threads), x.dtype)
    filled[..., : x.shape[-1]] = x
    return np.moveaxis(filled.reshape(*x.shape[:-1], turns, threads), -2, 0)


def test_fma_rounds_once():
    a, b, c = (reals(300, k=k) for k in range(3))
    c[::3] *= np.float32(2**-30)
    c[1::3] *= np.float32(2**20)
    for x, y, z, got in zip(a, b, c, fma(a, b, c), strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        error = abs(Fraction(float(got)) - exact)
        for side in (-np.inf, np.inf):
            other = abs(Fraction(float(np.nextafter(got, np.float32(side)))) - exact)
            assert error < other or (error == other and got.view(np.uint32) % 2 == 0)


# ---- each kernel ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_transpose_equals_numpy(simwarp_device, shape):
    matrix = reals(*shape)
    got = example("transpose").transpose(simwarp_device, matrix)
    assert_same_bits(np.ascontiguousarray(matrix.T), got)


def reduced(x, blocks):
    """Expected output of one launch of `reduce`: the sum of each block."""
    shares = add_up(deal(x, 256 * blocks)).reshape(blocks, 8, 32)
    warps = np.zeros((blocks, 32), np.float32)
    warps[:, :8] = add_up_warps(shares)
    return add_up_warps(warps)


@pytest.mark.parametrize("n", [*SIZES, 5003])
def test_reduce_equals_its_model(simwarp_device, n):
    x = reals(n)
    right = reduced(reduced(x, min(-(-n // 256), 16)), 1)
    assert_same_bits(right, example("reduce").reduce(simwarp_device, x))


@pytest.mark.parametrize("n", [*SIZES, 512, 513, 5003])
def test_scan_equals_cumsum(simwarp_device, n):
    x = whole(n)
    assert_same_bits(np.cumsum(x, dtype=np.uint32), example("scan").scan(simwarp_device, x))


def test_scan_looks_back_at_finished_blocks():
    x = whole(3001)
    one_block_at_a_time = simwarp.Device(chunk_lanes=128)
    got = example("scan").scan(one_block_at_a_time, x)
    assert_same_bits(np.cumsum(x, dtype=np.uint32), got)


@pytest.mark.parametrize("n", [*SIZES, 5003])
def test_histogram_equals_bincount(simwarp_device, n):
    x = whole(n, 256).astype(np.uint8)
    right = np.bincount(x, minlength=256).astype(np.uint32)
    assert_same_bits(right, example("histogram").histogram(simwarp_device, x))


def test_histogram_counts_a_single_value(simwarp_device):
    counts = example("histogram").histogram(simwarp_device, np.full(1009, 255, np.uint8))
    assert counts[255] == counts.sum() == 1009


@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (1, 1, 31), (31, 33, 1), (16, 16, 16), (33, 31, 17), (17, 37, 53)]
)
def test_gemm_equals_sums_in_order(simwarp_device, m, n, k):
    a, b = reals(m, k), reals(k, n, k=1)
    right = add_up_products(a.T[:, :, None], b[:, None, :])
    assert_same_bits(right, example("gemm").gemm(simwarp_device, a, b))


TENSOR_SHAPES = [(1, 1, 1), (16, 8, 16), (33, 31, 17), (65, 70, 129), (64, 64, 64), (31, 130, 300)]


def half_exponents(x):
    """Binary exponents of float16 numbers; subnormals have the smallest normal exponent."""
    return np.maximum(np.frexp(x)[1] - 1, -14)


def add_up_in_tensor_core(a, b):
    """A product of float16 matrices, bit-exact as on Hopper, computed in float64 without rounding.

    An instruction adds 16 products to the accumulator: each is cut off 25 bits below the largest exponent
    among them, a product's exponent being the sum of its factors', and the sum after the 24 bits of float32.
    """
    sums = np.zeros((a.shape[0], b.shape[1]))
    for first in range(0, a.shape[1], 16):
        x, y = a[:, first : first + 16, None].astype(float), b[first : first + 16].astype(float)
        addends = np.concatenate([x * y, sums[:, None]], axis=1)
        exponents = np.concatenate(
            [half_exponents(x) + half_exponents(y), np.frexp(sums)[1][:, None] - 1], axis=1
        )
        unit = 2.0 ** (np.where(addends == 0, -200, exponents).max(axis=1, keepdims=True) - 25)
        total = np.trunc(addends / unit).sum(axis=1) * unit[:, 0] + 0.0
        significand, exponent = np.frexp(total)
        sums = np.ldexp(np.trunc(np.ldexp(significand, 24)), exponent - 24)
    return sums.astype(np.float32)


@pytest.mark.at_most(3)
@pytest.mark.parametrize(("m", "n", "k"), TENSOR_SHAPES)
def test_gemm_f16_equals_the_tensor_core_model(simwarp_device, m, n, k):
    a, b = reals(m, k).astype(np.float16), reals(k, n, k=1).astype(np.float16)
    right = add_up_in_tensor_core(a, b)
    assert_same_bits(right, example("gemm_f16").gemm_f16(simwarp_device, a, b))


def test_tensor_core_truncation_stays_within_its_bound():
    """The error is nonzero and within the bound of gemm_f16.py, since sums are truncated."""
    for seed in range(3):
        a, b = (matrix.astype(np.float64) for matrix in example("gemm_f16").draw(seed))
        right, bound = example("gemm_f16").expected(seed)["product"]
        lost = np.abs(right) - np.abs(add_up_in_tensor_core(a, b).astype(np.float64))
        assert np.all(np.abs(lost) <= bound)
        assert (lost > 0).mean() > 0.75


@pytest.mark.parametrize("name", ["gemm_f16", "gemm_b1"])
def test_shared_memory_accesses_have_no_bank_conflict(name):
    device = simwarp.Device(observe="banks")
    example(name).run(device)
    assert device.report.bank_conflicts.opcodes
    assert device.report.bank_conflicts.total == 0


@pytest.mark.parametrize(("m", "n", "k"), [*TENSOR_SHAPES, (3, 5, 2049)])
def test_gemm_b1_equals_numpy(simwarp_device, m, n, k):
    a, b = reals(m, k), reals(k, n, k=1)
    right = np.where(a >= 0, 1, -1).astype(np.int32) @ np.where(b >= 0, 1, -1).astype(np.int32)
    assert_same_bits(right, example("gemm_b1").gemm_b1(simwarp_device, a, b))


@pytest.mark.at_most(4)
@pytest.mark.parametrize(("m", "n", "k"), [*TENSOR_SHAPES, (48, 80, 32), (17, 24, 40)])
def test_gemm_s8_equals_numpy(simwarp_device, m, n, k):
    a, b = (
        whole(rows * columns, 256).astype(np.uint8).view(np.int8).reshape(rows, columns)
        for rows, columns in ((m, k), (k, n))
    )
    a.flat[::3], b.flat[::5] = -128, -128
    right = a.astype(np.int32) @ b.astype(np.int32)
    assert_same_bits(right, example("gemm_s8").gemm_s8(simwarp_device, a, b))


def exponential(x):
    """The exponential by the algorithm in the comment of softmax.cu."""
    n = np.rint(x * np.float32(1.44269504))
    r = fma(-n, float.fromhex("0x1.62e4p-1"), x)
    r = fma(-n, float.fromhex("0x1.7f7d1cp-20"), r)
    total = np.float32(1) / np.float32(5040)
    for factorial in (720, 120, 24, 6, 2, 1, 1):
        total = fma(total, r, np.float32(1) / np.float32(factorial))
    return np.where(x < -104, np.float32(0), np.ldexp(total, n.astype(np.int32)))


def test_exponential_is_within_one_ulp():
    x = (-np.abs(reals(100_000)) * np.float32(105)).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    ulp = np.maximum(np.spacing(exact.astype(np.float32)), np.float32(2**-149))
    assert np.all(np.abs(exponential(x) - exact) <= ulp)


def softmax(x):
    exponentials = exponential(x - x.max(axis=1, keepdims=True))
    return exponentials / add_up_warps(add_up(deal(exponentials, 32)))[:, None]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [1, 64])
def test_softmax_equals_its_model(simwarp_device, shape, scale):
    x = np.float32(scale) * reals(*shape)
    assert_same_bits(softmax(x), example("softmax").softmax(simwarp_device, x))


def test_softmax_of_masked_values_is_0(simwarp_device):
    x = np.full((2, 37), -np.inf, np.float32)
    x[0, 36] = x[1, 3:5] = 1
    got = example("softmax").softmax(simwarp_device, x)
    assert_same_bits(np.where(x == 1, np.float32([[1], [0.5]]), np.float32(0)), got)


def layer_norm(x, scale, shift, epsilon):
    def mean(sums):
        warps = add_up_warps(sums.reshape(-1, 4, 32))
        return add_up(warps.T)[:, None] / np.float32(x.shape[1])

    centred = x - mean(add_up(deal(x, 128)))
    deviation = np.sqrt(mean(add_up_products(deal(centred, 128), deal(centred, 128))) + epsilon)
    return fma(centred / deviation, scale, shift)


@pytest.mark.parametrize("shape", [*SHAPES, (3, 521)])
def test_layer_norm_equals_its_model(simwarp_device, shape):
    x, scale, shift = reals(*shape), reals(shape[1], k=1), reals(shape[1], k=2)
    epsilon = np.float32(1e-5)
    got = example("layer_norm").layer_norm(simwarp_device, x, scale, shift, epsilon)
    assert_same_bits(layer_norm(x, scale, shift, epsilon), got)


def spmv(row_starts, columns, values, x):
    rows = [slice(*row_starts[i : i + 2]) for i in range(row_starts.size - 1)]
    dealt = [(deal(values[row], 32), deal(x[columns[row]], 32)) for row in rows]
    lanes = [add_up_products(*pair) + np.zeros(32, np.float32) for pair in dealt]
    return add_up_warps(np.array(lanes))


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 131), (33, 31), (31, 1), (13, 521)])
def test_spmv_equals_its_model(simwarp_device, rows, columns):
    operands = example("spmv").draw(3, rows, columns)
    assert_same_bits(spmv(*operands), example("spmv").spmv(simwarp_device, *operands))


@pytest.mark.parametrize("n", [*SIZES, 512, 513, 3001])
def test_bitonic_sort_equals_numpy(simwarp_device, n):
    keys = whole(n)
    keys[n // 2 :: 3] = keys[0]
    keys[n // 3 :: 5] = 0xFFFFFFFF
    assert_same_bits(np.sort(keys), example("bitonic_sort").bitonic_sort(simwarp_device, keys))


def jacobi(plate, sweeps):
    """One Jacobi step, cell by cell."""
    change = np.float32(0)
    for _ in range(sweeps):
        old, changes = plate.copy(), [np.float32(0)]
        for i, j in np.ndindex(plate.shape):
            if 0 < i < plate.shape[0] - 1 and 0 < j < plate.shape[1] - 1:
                rows, columns = old[i - 1, j] + old[i + 1, j], old[i, j - 1] + old[i, j + 1]
                plate[i, j] = np.float32(0.25) * (rows + columns)
                changes.append(abs(plate[i, j] - old[i, j]))
        change = max(changes)
    return plate, np.array([change])


@pytest.mark.at_most(1)
@pytest.mark.parametrize(
    ("shape", "sweeps"), [((1, 1), 1), ((2, 5), 3), ((3, 3), 0), ((3, 3), 2), ((31, 33), 3), ((17, 37), 4)]
)
def test_jacobi_equals_its_model(simwarp_device, shape, sweeps):
    got = example("jacobi").jacobi(simwarp_device, reals(*shape), sweeps)
    for right, output in zip(jacobi(reals(*shape), sweeps), got, strict=True):
        assert_same_bits(right, output)


# ---- all of them ---------------------------------------------------------------------------------------


def test_every_kernel_has_a_script_and_a_test():
    assert len(NAMES) == 13
    folder = lab.examples("kernels")
    assert {path.stem for path in folder.glob("*.py")} == {*NAMES, "common"}
    tests = [name for name in globals() if name.startswith("test_")]
    assert [name for name in NAMES if not any(f"test_{name}_" in f"{test}_" for test in tests)] == []
    assert all(10 <= len((folder / f"{name}.py").read_text().splitlines()) <= 60 for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_ptx_specifies_every_rounding(name):
    text = common.ptx(name, (9, 0)).text
    assert re.findall(r"\S*(?:\.approx|\.ftz|\.full)\S*", text) == []
    assert re.findall(r"(?:atom|red)\.\S*\.f\d+", text) == []
    rounded = re.findall(r"\b(?:add|sub|mul|div|sqrt|fma)\.\S*f32", text)
    assert [opcode for opcode in rounded if ".rn" not in opcode] == []


@pytest.mark.at_most(3)
@pytest.mark.parametrize("name", NAMES)
def test_bits_do_not_depend_on_concurrent_blocks(name):
    together, apart = (example(name).run(simwarp.Device(chunk_lanes=lanes)) for lanes in (32768, 256))
    for key, output in together.items():
        assert_same_bits(output, apart[key])


@pytest.mark.parametrize("name", NAMES)
def test_the_script_succeeds(name, monkeypatch, capsys):
    assert run_script(name, monkeypatch, "--device", "sim", "--seed", "7") == 0
    assert capsys.readouterr().out.startswith(f"{name} on simwarp simulator (sm_90): right\n")


def run_script(name, monkeypatch, *args):
    """Exit status of a script that runs in this process."""
    path = lab.examples("kernels") / f"{name}.py"
    monkeypatch.syspath_prepend(str(path.parent))
    monkeypatch.setattr(sys, "argv", [str(path), *args])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(path), run_name="__main__")
    return stopped.value.code


@pytest.mark.gate
def test_a_script_runs_as_a_program():
    command = [sys.executable, "examples/kernels/histogram.py", "--device", "sim", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    printed = json.loads(done.stdout)
    assert (printed["kernel"], printed["right"]) == ("histogram", True)
    assert len(printed["sha256"]["counts"]) == 64


def test_a_script_reports_a_wrong_result(monkeypatch, capsys):
    honest = simwarp.device.DeviceArray.download

    def lying(array, stream=None):
        host = honest(array, stream)
        host.flat[-1] += 1
        return host

    monkeypatch.setattr(simwarp.device.DeviceArray, "download", lying)
    assert run_script("histogram", monkeypatch, "--device", "sim") == 1
    assert "WRONG" in capsys.readouterr().out


def test_results_are_compared_by_name_shape_and_elements():
    right = {"x": (np.zeros(3), 0.5)}
    assert common.is_right({"x": np.array([0, 0.5, -0.5])}, right)
    assert not common.is_right({"x": np.array([0, 0.5, -0.6])}, right)
    assert not common.is_right({"x": np.array([0, np.nan, 0])}, right)
    assert not common.is_right({"x": np.zeros((3, 1))}, right)
    assert not common.is_right({"x": np.zeros(3), "y": np.zeros(1)}, right)


def test_different_seeds_give_different_inputs():
    for name in NAMES:
        first, second = (np.concatenate([*map(np.ravel, drawn(name, seed))]) for seed in (0, 1))
        assert first.shape != second.shape or (first != second).any()


def drawn(name, seed):
    """The input arrays that an example draws."""
    inputs = example(name).draw(seed)
    return inputs if isinstance(inputs, tuple) else (inputs,)


# ---- what silicon answered -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def golden():
    return lab.recorded("kernels")


@pytest.mark.at_most(3)
@pytest.mark.parametrize("name", NAMES)
def test_the_simulator_reproduces_silicon_outputs(golden, name):
    expected = {key: output for key, output in golden.arrays.items() if key.split(".")[0] == name}
    got = {}
    for seed in golden.meta["seeds"]:
        got |= recorder.answers(simwarp.Device(), name, seed)
    assert got.keys() == expected.keys()
    for key, output in expected.items():
        assert_same_bits(output, got[key])


def test_the_golden_belongs_to_the_current_kernels(golden):
    meta = golden.meta
    assert meta["gpu"]["name"].startswith("NVIDIA")
    assert all(meta[key] for key in ("driver", "nvrtc", "date", "command"))
    assert meta["ptx"] == recorder.ptx_digests(tuple(meta["arch"])), (
        "the PTX is not what the golden was recorded from: record it again on a GPU with\n"
        "simwarp record kernels"
    )


class StandIn(simwarp.Device):
    """A simulator that reports a GPU's name."""

    name = "NVIDIA Test"
    uuid = "00112233445566778899aabbccddeeff"
    driver_version = "580.0"


def test_the_recording_holds_every_output(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "names", lambda: ["histogram", "transpose"])
    lab.record(recorder.SUBJECTS[0], lab.Asking(StandIn), tmp_path / "new")
    recording = lab.recorded("kernels", tmp_path / "new")
    meta, stored = recording.meta, recording.arrays
    assert sorted(stored) == sorted(
        f"{key}.{seed}" for key in ("histogram.counts", "transpose.transpose") for seed in range(3)
    )
    assert_same_bits(example("histogram").run(simwarp.Device())["counts"], stored["histogram.counts.0"])
    assert stored["histogram.counts.1"].shape == (32,)
    assert (stored["histogram.counts.1"] != stored["histogram.counts.2"]).any()
    assert meta["gpu"] == {"name": StandIn.name, "uuid": StandIn.uuid}
    assert meta["ptx"].keys() == {"histogram", "transpose"}


def test_a_recording_of_the_simulator_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "names", lambda: ["transpose"])
    lab.record(recorder.SUBJECTS[0], lab.Asking(simwarp.Device), tmp_path)
    with pytest.raises(InputFileError, match="is a trial on simwarp simulator"):
        lab.recorded("kernels", tmp_path)
