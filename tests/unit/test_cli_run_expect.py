"""Outputs of ``simwarp run`` compared with expected arrays."""

import json
from pathlib import Path

import numpy as np
import pytest

from simwarp.cli import main
from simwarp.cli.run_expect import Expected, compare

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
    assert "y is as expected by ref.npy; the largest error is 1e-06" in capsys.readouterr().err


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
