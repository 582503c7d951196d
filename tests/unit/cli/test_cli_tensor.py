"""`simwarp tensor`: information about sparse tensor files, and conversion between them."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest

import simwarp.cli.tensor as command_module
from reference.errors import InputFileError, NotANumberError, SchemeError, ShapeError
from reference.sparse import (
    FORMATS,
    coalesce,
    fiber_lengths,
    index_bytes,
    length_histogram,
    mttkrp_work,
    slice_lengths,
)
from reference.sparse.files import read_tensor, write_tensor
from reference.sparse.tns import read_tns, write_tns
from reference.types import Coo
from simwarp.cli.tensor import tensor_app

pytest.importorskip("typer", reason="the command line needs simwarp[cli]")


def command(*arguments):
    return tensor_app([str(argument) for argument in arguments], standalone_mode=False)


@pytest.fixture
def tensor():
    """A tensor with unsorted coordinates and empty last slices in every mode."""
    rng = np.random.default_rng(3)
    places = rng.permutation(5 * 7 * 11)[:97]
    coords = np.array(np.unravel_index(places, (5, 7, 11)), np.uint32)
    return Coo(coords, rng.random(97).astype(np.float32), (6, 9, 13))


@pytest.fixture
def text(tensor, tmp_path):
    write_tns(tmp_path / "x.tns", tensor, header=True)
    return tmp_path / "x.tns"


@pytest.fixture
def binary(tensor, tmp_path):
    write_tensor(tmp_path / "x.npz", tensor)
    return tmp_path / "x.npz"


def reported(capsys, *arguments):
    assert command(*arguments, "--json") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


def same(first, second):
    assert first.shape == second.shape
    assert first.coords.tolist() == second.coords.tolist()
    assert first.values.tolist() == second.values.tolist()


# --------------------------------------------------------------------------------------------------
# info
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["text", "binary"])
def test_info_reports_shape_values_and_storage(capsys, request, tensor, form):
    report = reported(capsys, "info", request.getfixturevalue(form))
    facts = {name: report[name] for name in ("shape", "order", "nonzeros", "duplicates", "indices", "values")}
    assert facts == {
        "shape": [6, 9, 13],
        "order": 3,
        "nonzeros": 97,
        "duplicates": 0,
        "indices": "uint32",
        "values": "float64" if form == "text" else "float32",
    }
    assert report["density"] == 97 / (6 * 9 * 13)
    places = set(zip(*tensor.coords.tolist(), strict=True))
    for mode, row in enumerate(report["modes"]):
        slices = Counter(place[mode] for place in places)
        fibers = Counter(place[:mode] + place[mode + 1 :] for place in places)
        assert (row["mode"], row["dimension"]) == (mode, tensor.shape[mode])
        for name, lengths in (("slices", slices), ("fibers", fibers)):
            assert row[name] == len(lengths)
            assert row[f"{name}_longest"] == max(lengths.values())
            assert row[f"{name}_deviation"] == pytest.approx(np.std([*lengths.values()]))
            assert row[f"{name}_histogram"] == [len(lengths), 0, 0, 0]
    assert report["storage"] == [
        {"format": name, "paper": index_bytes(make(tensor)), "held": index_bytes(make(tensor), by="held")}
        for name, make in FORMATS.items()
    ]


def test_info_reports_the_work_of_every_format(capsys, binary, tensor):
    report = reported(capsys, "info", binary, "--rank", 5, "--bounds", "1,2")
    assert (report["rank"], report["bounds"]) == (5, [1, 2])
    for mode, row in enumerate(report["modes"]):
        assert row["fibers_histogram"] == [*length_histogram(fiber_lengths(tensor, mode), (1, 2))]
        assert row["slices_histogram"] == [*length_histogram(slice_lengths(tensor, mode), (1, 2))]
        assert sum(row["fibers_histogram"][1:]) > 0
    assert [row["format"] for row in report["work"]] == list(FORMATS)
    for row in report["work"]:
        made = FORMATS[row["format"]](tensor)
        assert {**asdict(mttkrp_work(made, 5)), "format": row["format"], "table": row["table"]} == row
        if row["format"] in ("f-coo", "hicoo"):
            assert row["table"] is None
        else:
            assert row["table"] == asdict(mttkrp_work(made, 5, by="paper"))


def test_table_3_is_left_out_for_other_orders(capsys, tmp_path):
    (tmp_path / "x.tns").write_text("1 2 5\n2 1 6\n")
    report = reported(capsys, "info", tmp_path / "x.tns")
    assert {row["table"] for row in report["work"]} == {None}
    assert command("info", tmp_path / "x.tns") == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["mm-csf", "384", "128", "128", "-", "-", "-"]


@pytest.mark.parametrize("bounds", ["a", "2,1", ""])
def test_bounds_that_do_not_ascend_are_refused(binary, bounds):
    with pytest.raises((SchemeError, ShapeError), match="bounds"):
        command("info", binary, "--bounds", bounds)


def test_large_tensors_use_the_compiled_builders(capsys, monkeypatch, binary):
    expected = reported(capsys, "info", binary)
    used = []
    noted = {name: lambda coo, name=name: used.append(name) or FORMATS[name](coo) for name in FORMATS}
    monkeypatch.setattr("gpu.mttkrp.formats", SimpleNamespace(FORMATS=noted, coalesce=coalesce))
    monkeypatch.setattr(command_module, "_MANY_NONZEROS", 97)
    assert reported(capsys, "info", binary) == expected
    assert used == list(FORMATS)


def test_info_prints_shape_values_and_storage(capsys, text):
    assert command("info", text) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{text}: 6 × 9 × 13, 97 nonzeros"
    assert lines[1] == "density 0.138, uint32 indices, float64 values"
    assert lines[2].split() == ["mode", "dimension", "slices", "fibers", "nonzeros", "of", "a", "fiber"]
    assert [line.split()[:3] for line in lines[3:6]] == [["0", "6", "5"], ["1", "9", "7"], ["2", "13", "11"]]
    assert lines[6].split()[:6] == ["nonzeros", "of", "up", "to", "100", "up"]
    assert lines[7].split()[:5] == ["slices", "of", "mode", "0", "5"]
    assert lines[12].split()[:4] == ["fibers", "along", "mode", "2"]
    storage, work = lines[14 : 14 + len(FORMATS)], lines[15 + len(FORMATS) :]
    assert [line.split()[0] for line in storage] == list(FORMATS) == [line.split()[0] for line in work]
    assert storage[0].split() == ["coo", "1164", "1164", "12"]
    assert work[0].split() == ["coo", *(str(n * 97 * 32) for n in (9, 6, 3, 9, 6, 3))]


def test_duplicate_coordinates_are_counted_and_summed(capsys, tmp_path):
    (tmp_path / "x.tns").write_text("2 2 1\n1 1 2\n1 1 3\n1 2 4\n1 1 5\n")
    report = reported(capsys, "info", tmp_path / "x.tns")
    assert (report["nonzeros"], report["duplicates"], report["density"]) == (5, 2, 0.75)
    assert [row["fibers"] for row in report["modes"]] == [2, 2]
    assert [row["slices_longest"] for row in report["modes"]] == [2, 2]
    assert report["storage"][0]["paper"] == 3 * 8
    assert command("info", tmp_path / "x.tns") == 0
    assert "2 duplicates; storage is that of their sums" in capsys.readouterr().out


def test_a_density_beyond_64_bits_is_printed(capsys, tmp_path):
    big = 2**63 - 1
    (tmp_path / "x.tns").write_text(
        f"8\n{' '.join([str(big)] * 8)}\n{' '.join(['1'] * 8)} 1\n{' '.join(['7'] * 8)} 1\n"
    )
    report = reported(capsys, "info", tmp_path / "x.tns")
    assert report["density"] == pytest.approx(2 / float(big) ** 8)
    assert report["indices"] == "int64"
    assert [(row["slices"], row["fibers"]) for row in report["modes"]] == [(2, 2)] * 8
    assert {row["paper"] for row in report["storage"]} == {None}
    assert {row["why"] for row in report["storage"]} == {f"mode 0 has dimension {big}"}
    assert command("info", tmp_path / "x.tns") == 0
    captured = capsys.readouterr().out
    assert "density 3.82e-152" in captured
    assert f"mode 0 has dimension {big}" in captured


# --------------------------------------------------------------------------------------------------
# convert
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["y.tns", "y.tns.gz", "y.npz"])
@pytest.mark.parametrize("form", ["text", "binary"])
def test_every_format_converts_to_every_other(capsys, request, tmp_path, tensor, form, name):
    source, target = request.getfixturevalue(form), tmp_path / name
    assert command("convert", source, target, "--to-header") == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"wrote {target}: 6 × 9 × 13, 97 nonzeros\n"
    back = read_tensor(target) if name == "y.npz" else read_tns(target, dtype=np.float32)
    same(back, tensor if back.values.dtype == np.float32 else read_tns(source))
    assert target.read_bytes().startswith(b"\x1f\x8b") == (name == "y.tns.gz")


def test_a_conversion_is_reported(capsys, text, tmp_path):
    report = reported(capsys, "convert", text, tmp_path / "y.npz", "--dtype", "float32")
    assert report == {
        "output": str(tmp_path / "y.npz"),
        "bytes": (tmp_path / "y.npz").stat().st_size,
        "shape": [6, 9, 13],
        "order": 3,
        "nonzeros": 97,
        "duplicates": 0,
        "density": 97 / (6 * 9 * 13),
        "indices": "uint32",
        "values": "float32",
    }


def test_a_conversion_to_text_warns_of_the_missing_shape(capsys, binary, tmp_path):
    assert command("convert", binary, tmp_path / "y.tns") == 0
    assert "the file lacks its shape" in capsys.readouterr().err
    assert read_tns(tmp_path / "y.tns").shape == (5, 7, 11)


def test_options_for_text_files_reach_the_reader(tmp_path):
    (tmp_path / "x.tns").write_text("2 2 1\n1 2 3\n")
    command("convert", tmp_path / "x.tns", tmp_path / "y.tns", "--base", "0", "--to-base", "0", "--to-header")
    assert (tmp_path / "y.tns").read_text() == "2\n3 3\n2 2 1.0\n1 2 3.0\n"
    command("convert", tmp_path / "y.tns", tmp_path / "z.tns", "--header", "yes", "--base", "0")
    assert (tmp_path / "z.tns").read_text() == "3 3 1.0\n2 3 3.0\n"
    with pytest.raises(InputFileError, match="line 1: 1 field\n"):
        command("convert", tmp_path / "y.tns", tmp_path / "z.tns", "--header", "no")


def test_the_type_of_a_binary_file_changes(binary, tensor, tmp_path):
    command("convert", binary, tmp_path / "y.npz", "--dtype", "float64")
    wide = read_tensor(tmp_path / "y.npz")
    assert wide.values.dtype == np.float64
    same(wide, tensor)
    write_tensor(binary, Coo([[0], [0]], [1e39], (1, 1)))
    with pytest.raises(NotANumberError, match=r"is inf as float32\nleave --dtype float32 out$"):
        command("convert", binary, tmp_path / "z.npz", "--dtype", "float32")


def test_nonfinite_values_need_an_option(tmp_path):
    (tmp_path / "x.tns").write_text("1 1 nan\n")
    with pytest.raises(InputFileError, match="line 1: the value is nan as float64\npass --nonfinite if"):
        command("convert", tmp_path / "x.tns", tmp_path / "y.npz")
    assert command("convert", tmp_path / "x.tns", tmp_path / "y.npz", "--nonfinite") == 0
    assert np.isnan(read_tensor(tmp_path / "y.npz").values).all()


@pytest.mark.parametrize("form", ["tns", "npz"])
def test_duplicates_are_summed_or_kept(tmp_path, form):
    repeated = Coo([[1, 0, 1], [1, 0, 1]], [1.0, 2.0, 3.0], (2, 2))
    source, target = tmp_path / f"x.{form}", tmp_path / "y.npz"
    (write_tns if form == "tns" else write_tensor)(source, repeated)
    repeated_by = "line 3: line 1 has" if form == "tns" else "nonzeros 0 and 2 have"
    with pytest.raises(InputFileError, match=rf"{repeated_by} the same coordinates, \(1, 1\)"):
        command("convert", source, target)
    assert not target.exists()
    command("convert", source, target, "--duplicates", "sum")
    same(read_tensor(target), coalesce(repeated))
    command("convert", source, target, "--duplicates", "keep")
    same(read_tensor(target), repeated)


def test_a_file_converts_to_itself(binary, tensor):
    assert command("convert", binary, binary) == 0
    same(read_tensor(binary), tensor)


def test_a_refused_conversion_keeps_the_old_file(binary, tmp_path):
    target = tmp_path / "y.npz"
    target.write_bytes(b"precious")
    (tmp_path / "bad.tns").write_text("1 1 x\n")
    (tmp_path / "bad.gz").write_bytes(gzip.compress(b"1 1 1\n" * 99)[:-9])
    for source in ("bad.tns", "bad.gz", "none.tns", "."):
        with pytest.raises(
            InputFileError, match=source.replace(".", r"\.") if source != "." else str(tmp_path)
        ):
            command("convert", tmp_path / source, target)
    with pytest.raises(SchemeError, match="has an unknown suffix"):
        command("convert", binary, tmp_path / "y.swt")
    for option in (["--base", "1"], ["--header", "no"]):
        with pytest.raises(SchemeError, match=r"is not a \.tns file"):
            command("convert", binary, target, *option)
    with pytest.raises(InputFileError, match="cannot be written"):
        command("convert", binary, tmp_path / "no" / "y.npz")
    assert target.read_bytes() == b"precious"
    assert {path.name for path in tmp_path.iterdir()} == {"x.npz", "y.npz", "bad.tns", "bad.gz"}


# --------------------------------------------------------------------------------------------------
# Stopped
# --------------------------------------------------------------------------------------------------

READY = """
import sys
import simwarp.cli.commands
from simwarp.cli import main
print("ready", flush=True)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_conversion_stopped_by_ctrl_c_ends_with_130(tmp_path):
    count = 400_000
    indices = np.arange(count, dtype=np.uint32)
    write_tensor(tmp_path / "x.npz", Coo(np.array([indices] * 3), np.sqrt(indices), (count,) * 3))
    (tmp_path / "y.tns.gz").write_bytes(b"precious")
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", READY, "tensor", "convert", "x.npz", "y.tns.gz"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    while process.poll() is None and not list(tmp_path.glob(".y.tns.gz.*")):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert (tmp_path / "y.tns.gz").read_bytes() == b"precious"
    assert {path.name for path in tmp_path.iterdir()} == {"x.npz", "y.tns.gz"}


@pytest.mark.parametrize("content", [b"garbage", b"", b"1 1 2.5\n"])
def test_a_text_file_named_npz_is_refused(tmp_path, content):
    """The message does not complain about the first line of a text."""
    (tmp_path / "bad.npz").write_bytes(content)
    with pytest.raises(InputFileError, match=r"bad\.npz does not hold a sparse tensor: it begins with b'"):
        command("info", tmp_path / "bad.npz")


def test_the_former_binary_form_is_refused_with_advice(tmp_path):
    (tmp_path / "x.swt").write_bytes(b"\x93SWT\r\n\x1a\n" + bytes(120))
    with pytest.raises(InputFileError, match=r"x\.swt is a \.swt file\n.*\n.*simwarp tensor convert"):
        command("info", tmp_path / "x.swt")


def test_duplicate_coordinates_are_reported_with_the_option(tmp_path):
    (tmp_path / "x.tns").write_text("1 1 1\n1 1 2\n")
    with pytest.raises(InputFileError, match="\n--duplicates sum adds the values"):
        command("convert", tmp_path / "x.tns", tmp_path / "y.npz")
