"""Outputs of ``simwarp run`` compared with expected arrays."""

import json
from pathlib import Path

import numpy as np
import pytest

from simwarp.cli import main
from simwarp.cli.run_expect import Expected, compare
from simwarp.run.tolerance import Tolerance, _of_product

HALVE = """__global__ void halve(float* y) { y[threadIdx.x] = threadIdx.x * 0.5f; }
__global__ void count(unsigned long long* y) { y[threadIdx.x] = ~0ull - threadIdx.x; }
__global__ void wild(int* y) { y[1000] = 1; }
"""
LANES = np.arange(32)


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("k.cu").write_text(HALVE)


def run(kernel, expected, *options, argument="y=out:float32:8x4"):
    np.save("ref.npy", expected)
    launch = ["run", "k.cu", "--kernel", kernel, "--grid", "1", "--block", "32"]
    return main([*launch, "--arg", argument, "--expect", "y=ref.npy", *options])


def test_an_output_as_expected_ends_with_0(capsys):
    assert run("halve", (LANES * 0.5).reshape(8, 4)) == 0
    assert "y is as expected by ref.npy exactly" in capsys.readouterr().err
    assert run("halve", (LANES * 0.5 + 1e-6).reshape(8, 4), "--atol", "1e-5") == 0
    printed = capsys.readouterr().err
    assert "y is as expected by ref.npy; the largest error is 1e-06, within 1e-05 plus 1e-05 of" in printed


def test_differences_are_counted_and_shown(capsys):
    wrong = (LANES * 0.5).reshape(8, 4)
    wrong[2, 1] += 0.25
    wrong[7, 3] -= 2
    assert run("halve", wrong) == 1
    printed = capsys.readouterr().err.splitlines()
    assert printed[:2] == [
        "y: 2 of 32 elements differ from ref.npy, the first is y[2, 1]",
        "expected 4.75, got 4.5; the largest error is 2, at y[7, 3]",
    ]
    assert np.load("y.npy")[7, 3] == 15.5
    assert run("halve", wrong, "--atol", "1") == 1
    assert "1 of 32 elements differs" in capsys.readouterr().err
    assert run("halve", wrong, "--rtol", "0.5") == 0


def test_json_has_the_comparison(capsys):
    wrong = (LANES * 0.5).reshape(8, 4)
    wrong[0, 3] = np.nan
    assert run("halve", wrong, "--json") == 1
    (found,) = json.loads(capsys.readouterr().out)["outputs"]["y"]["expected"]
    assert found == {
        "array": "y",
        "file": "ref.npy",
        "count": 1,
        "size": 32,
        "first": [0, 3],
        "got": 1.5,
        "expected": "nan",
        "error": "inf",
        "worst": [0, 3],
        "tolerance": {
            "atol": 2 * 2.0**-24 * 15.5,
            "rtol": 1e-5,
            "reason": "2 * sqrt(1) roundings of f32 at 15.5",
        },
    }


def test_integers_are_compared_exactly(capsys):
    expected = np.uint64(2**64 - 1) - LANES.astype(np.uint64)
    assert run("count", expected, argument="y=out:uint64:32") == 0
    expected[31] -= np.uint64(1)
    assert run("count", expected, "--rtol", "1", "--atol", "9", argument="y=out:uint64:32") == 1
    assert (
        f"expected {2**64 - 33}, got {2**64 - 32}; the largest error is 1, at y[31]"
        in capsys.readouterr().err
    )
    assert run("count", LANES, argument="y=out:uint64:32") == 1  # as numbers: no overflow of int64
    assert f"the largest error is {float(2**64 - 1):.6g}, at y[0]" in capsys.readouterr().err


SUMS = """\
__global__ void fir(const float* x, const float* h, float* y) {
    int i = threadIdx.x;
    float s = 0;
    for (int k = 0; k < 7; ++k) s += h[k] * (i >= k ? x[i - k] : 0.0f);
    y[i] = s;
}
__global__ void product(const float* a, const float* b, float* c) {
    int i = threadIdx.y, j = threadIdx.x;
    float s = 0;
    for (int k = 0; k < 256; ++k) s += a[i * 256 + k] * b[k * 32 + j];
    c[i * 32 + j] = s;
}
__global__ void total(const float* x, float* y) {
    float s = 0;
    for (int i = 0; i < 5000; ++i) s += x[i];
    *y = s;
}
__global__ void halves(const float* x, __half* y) { y[threadIdx.x] = __float2half(x[threadIdx.x] / 3); }
"""


def sums(kernel, block, expected, *arguments, out="float32"):
    """The exit code of a comparison of ``y``."""
    Path("k.cu").write_text("#include <cuda_fp16.h>\n" + SUMS)
    np.save("ref.npy", expected)
    names = []
    for number, array in enumerate(arguments):
        np.save(f"in{number}.npy", array)
        names += ["--arg", f"{number}=in{number}.npy"]
    shape = "x".join(map(str, np.shape(expected)))
    output = ["--arg", f"{len(arguments)}=out:{out}:{shape}", "--expect", "out=ref.npy"]
    return main(["run", "k.cu", "--kernel", kernel, "--grid", "1", "--block", block, *names, *output])


def test_honest_sums_of_float32_are_as_expected_and_wrong_ones_are_not(capsys):
    random = np.random.default_rng(0)
    x, h = random.standard_normal(1000).astype(np.float32), random.standard_normal(7).astype(np.float32)
    exact = np.convolve(x.astype(np.float64), h)[:1000]
    assert sums("fir", "1000", exact, x, h) == 0
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((32, 256), (256, 32)))
    exact = a.astype(np.float64) @ b
    assert sums("product", "32,32", exact, a, b) == 0
    assert "within" in (printed := capsys.readouterr().err)
    assert "2 * sqrt(512) roundings of f32 at" in printed
    assert sums("product", "32,32", exact.astype(np.float32), a, b) == 0
    typical = np.unravel_index(np.argmin(abs(abs(exact) - 1)), exact.shape)
    wrong = exact.copy()
    wrong[typical] *= 1.001
    assert sums("product", "32,32", wrong, a, b) == 1
    assert "\nfloats may differ by 0.0001" in capsys.readouterr().err
    wrong = exact.copy()
    wrong[3, [4, 5]] = wrong[3, [5, 4]]
    assert sums("product", "32,32", wrong, a, b) == 1
    assert "2 of 1024 elements differ" in capsys.readouterr().err


@pytest.mark.slow
def test_a_long_sum_of_one_sign_and_small_numbers(capsys):
    x = np.full(5000, 0.1, np.float32)
    exact = np.full(1, x.astype(np.float64).sum())
    assert sums("total", "1", exact, x) == 0
    assert sums("total", "1", exact * 1.001, x) == 1
    assert sums("total", "1", exact * 1e-9, x * np.float32(1e-9)) == 0
    assert (
        sums("total", "1", exact * 1.1e-9, x * np.float32(1e-9)) == 1
    )  # by more than an atol of 1e-8 allowed


def test_halves_are_compared_as_halves():
    x = np.random.default_rng(1).standard_normal(64).astype(np.float32)
    assert sums("halves", "64", x.astype(np.float64) / 3, x, out="float16") == 0
    assert sums("halves", "64", x.astype(np.float64) / 3 * 1.003, x, out="float16") == 1


def test_what_tensor_cores_and_atomics_round_counts():
    text = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
    assert _of_product(text, 128) == ("f32", 128)
    assert _of_product("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", 32)[0] == ""
    halves = Tolerance.of(np.zeros(4), np.ones(4), {"f16": 16})
    assert halves.atol == 2 * 2 * 2.0**-11
    unknown = Tolerance.of(np.zeros(4), np.ones(4), None)
    assert str(unknown) == "3.81e-06 = 2 * sqrt(1024) roundings of f32 at 1 plus 6.1e-05 of each element"


def test_a_fault_ends_without_a_comparison(capsys):
    assert run("wild", np.zeros(4), argument="y=out:int32:4") == 1
    assert "expected by" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [
        ([np.nan, 1], [np.nan, 1], 0),
        ([np.inf, -np.inf], [np.inf, np.inf], 1),
        ([np.inf, 1], [1, np.inf], 2),
        ([0.0, 1], [-0.0, 1], 0),
        ([1 + 2j, 1], [1 + 2j, 1 + 1e-9j], 0),
        ([1 + 2j, 1], [1 - 2j, 1], 1),
        ([True, False], [True, True], 1),
        ([1, 2], [1.0, 2.5], 1),
        ([], [], 0),
    ],
)
def test_numbers_that_are_equal_or_differ(one, other, count):
    found = compare(np.array(one), Expected("y", Path("r.npy"), np.array(other), 1e-5, 1e-8))
    assert (found.count, found.size) == (count, len(one))


@pytest.mark.parametrize(
    ("option", "parts"),
    [
        ("y", "not NAME=FILE.npy"),
        ("z=ref.npy", "no output array is called z\nthere are y\n"),
        ("y=k.cu", "does not hold an array"),
        ("y=words.npy", "elements of <U1"),
        ("y=flat.npy", "the shapes differ\ny has 8 x 4, flat.npy has 32\n"),
    ],
)
def test_wrong_requests_are_refused_before_the_run(capsys, option, parts):
    np.save("words.npy", np.array(["a"]))
    np.save("flat.npy", np.zeros(32))
    assert run("halve", np.zeros((8, 4)), "--expect", option) == 2
    assert parts in capsys.readouterr().err
    assert not Path("y.npy").exists()
