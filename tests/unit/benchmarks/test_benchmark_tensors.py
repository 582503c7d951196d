"""The benchmark tensors are those for which figures were published."""

import hashlib
import json
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest

from reference.sparse import read_tensor, read_tns

tensors = run_path("benchmarks/tensors.py")
make = tensors["make"]

PINNED = {
    ("nell2", 0.001): ((12092, 9184, 28818), 20096, "d073893f7e7fb63c", "19f8ef7f7738c34f"),
    ("darpa", 0.001): ((22476, 22476, 2377607), 10103, "3f9a26149d3827e0", "05804bb9f7ea46de"),
    ("fr_s", 0.001): ((3900000, 3900000, 532), 14256, "c685509f63d9ae33", "87a4e40a6543d9fb"),
    ("flick4d", 0.001): ((319686, 2815304, 160712, 731), 10003, "1713aced6b0db20d", "190bee3e48d60953"),
    ("uber4d", 0.001): ((183, 24, 1140, 1717), 3433, "1d49936372de50f5", "d3d3cc05de598c0d"),
    ("small3", 0.1): ((700, 500, 3000), 12069, "2424553d5a61ec4a", "c9c462ce300c851b"),
    ("small4", 0.1): ((61, 24, 301, 517), 11001, "e68b5f788d416c8f", "8c47205936b0f05e"),
}
"""Name and scale: shape, nonzeros, and the beginnings of the sha256 of coordinates and of values (seed 1)."""
DRAWN = "482d1ae8235e23ac"
"""The beginning of the sha256 of what NumPy 2.4 drew when the tensors were pinned."""


def digest(*arrays):
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
    return sha.hexdigest()[:16]


def drawn():
    """Some numbers from each generator method that is used to draw tensors."""
    random = np.random.default_rng(2026)
    return digest(
        random.random(1000),
        random.integers(0, 65, 1000),
        random.permutation(1000),
        np.rint(random.normal(600.0, 45.0, 1000)),
        np.rint(random.pareto(1.5, 1000)),
        random.multinomial(1000, np.full(100, 0.01)),
    )


def test_numpy_draws_the_pinned_random_numbers():
    assert drawn() == DRAWN, (
        f"NumPy {np.__version__} draws other random numbers than 2.4: it promises no stream across versions\n"
        "so these are no longer the tensors of the published figures\n"
        "make them with NumPy 2.4, or measure and pin again"
    )


@pytest.mark.at_most(3)
@pytest.mark.parametrize(("name", "scale"), PINNED)
def test_tensors_equal_the_pinned_tensors(name, scale):
    tensor = make(name, scale)
    assert (tensor.coords.dtype, tensor.values.dtype) == (np.uint32, np.float32)
    same = (tensor.shape, tensor.values.size, digest(tensor.coords), digest(tensor.values)) == PINNED[
        name, scale
    ]
    assert same or drawn() != DRAWN, f"{name} has changed, and not because of NumPy {np.__version__}"


@pytest.mark.parametrize("name", tensors["TENSORS"])
def test_coordinates_are_distinct_and_sorted(name):
    coords = make(name, 0.0005, seed=4).coords.astype(np.int64)
    first = np.argmax(coords[:, 1:] != coords[:, :-1], axis=0)
    assert (np.take_along_axis(np.diff(coords), first[None], axis=0) > 0).all()


@pytest.mark.parametrize(("suffix", "read"), [(".tns", read_tns), (".npz", read_tensor)])
def test_the_command_writes_the_tensor(suffix, read, tmp_path, monkeypatch, capsys):
    path = tmp_path / f"small4{suffix}"
    monkeypatch.setattr("sys.argv", ["tensors.py", "small4", str(path), "--scale", "0.01", "--seed", "7"])
    tensors["main"]()
    made, again = make("small4", 0.01, seed=7), read(path)
    assert f"{made.values.size:,} nonzeros" in capsys.readouterr().out
    assert (again.coords == made.coords).all()
    assert (again.values == made.values).all()


def test_an_unknown_suffix_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["tensors.py", "small4", str(tmp_path / "small4.csv")])
    with pytest.raises(SystemExit) as caught:
        tensors["main"]()
    assert caught.value.code == 2
    assert ".tns, .npz" in capsys.readouterr().err


# The page of the formats shows what benchmarks/storage.py has measured.

PAGE = Path("docs/sparse-formats.md").read_text()
ROWS = {
    row["case"]: row for row in json.loads(Path("benchmarks/results/cpu/storage.json").read_text())["rows"]
}
NAMES = ("nell2", "darpa", "fr_s", "flick4d", "uber4d")
LABELS = ("coo", "csf-one", "csf-all", "b-csf-one", "b-csf", "hicoo", "f-coo", "mm-csf-static", "mm-csf")


def line(label, cells):
    return "| " + " | ".join([f"`{label}`", *cells]) + " |"


@pytest.mark.parametrize("label", LABELS)
def test_the_page_lists_the_measured_storage(label):
    best = {name: min(ROWS[f"storage/{name}/{other}"]["ours"] for other in LABELS) for name in NAMES}

    def cell(name):
        row = ROWS[f"storage/{name}/{label}"]
        size = f"**{row['ours']:.1f}**" if row["ours"] == best[name] else f"{row['ours']:.1f}"
        return f"{size} ({row['params']['held']:.1f})"

    assert line(label, map(cell, NAMES)) in PAGE.splitlines()


@pytest.mark.parametrize("label", LABELS)
def test_the_page_lists_the_measured_seconds(label):
    cells = (f"{ROWS[f'storage/{name}/{label}']['params']['core_seconds']:.1f}" for name in NAMES)
    assert line(label, cells) in PAGE.splitlines()


@pytest.mark.parametrize("label", ["b-csf", "b-csf-one", "mm-csf"])
def test_the_page_lists_the_measured_fibers(label):
    def cell(name):
        row = ROWS[f"fibers/{name}/{label}"]
        params, (paper,) = row["params"], [*row["peers"].values()] or [None]
        ours = f"{row['ours'] / 1e6:.3g}, {round(params['reduction'])} %"
        return ours + (f" ({paper / 1e6:.3g}, {params['paper_reduction']} %)" if paper else "")

    assert line(label, map(cell, NAMES)) in PAGE.splitlines()


@pytest.mark.parametrize("case", [case for case, row in ROWS.items() if row["target"]])
def test_storage_equals_that_of_an_independent_program(case):
    """The storage sizes equal the printed output of an independent program to the last digit."""
    assert f"{ROWS[case]['ours']:.1f}" == f"{ROWS[case]['target']:.1f}"
