"""Parsing of the arguments of `simwarp run`: values, names, dimensions and checks."""

import numpy as np
import pytest

from reference.errors import SchemeError
from simwarp.checks import read_checks
from simwarp.cli.run_words import name_all, read_argument, read_extent


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [("7", "", 7), ("n=0x10", "n", 16), ("-3", "", -3), ("a=1e3", "a", 1000.0), ("a=-inf", "a", -np.inf)],
)
def test_numeric_arguments_are_parsed(text, name, value):
    word = read_argument(text)
    assert (word.name, word.value, type(word.value), word.written) == (name, value, type(value), False)


def test_file_arguments_are_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros(2))
    np.save("a=b.npy", np.zeros(2))
    for text, name, written in (
        ("x.npy", "x", False),
        ("./x.npy:inout", "x", True),
        ("first=x.npy:inout", "first", True),
        ("./a=b.npy", "a=b", False),
    ):
        word = read_argument(text)
        assert (word.name, word.written) == (name, written)
        assert isinstance(word.value, np.ndarray)


def test_duplicate_names_are_numbered():
    words = [read_argument(text) for text in ("out:int8:1", "1", "out:int8:2", "out2=3", "4")]
    assert list(name_all(words)) == ["out", "arg1", "out2", "out23", "arg4"]


@pytest.mark.parametrize(
    ("text", "dims"), [("4", (4, 1, 1)), ("4,2", (4, 2, 1)), ("4x2x3", (4, 2, 3)), ("4×2", (4, 2, 1))]
)
def test_extents_are_parsed(text, dims):
    assert read_extent("--grid", text) == dims


@pytest.mark.parametrize("text", ["", ",", "4,", "4,,2", "-1", "1.5", "1,2,3,4", "4 2"])
def test_bad_extents_are_refused(text):
    with pytest.raises(SchemeError, match="one to three positive integers"):
        read_extent("--grid", text)


@pytest.mark.parametrize("text", ["64x3", "64,3", "64×3", "64,3,"])
def test_shapes_of_outputs_have_either_separator(text):
    assert read_argument(f"out:float32:{text}").value.shape == (64, 3)
    with pytest.raises(SchemeError, match="64,,3 is not a shape"):
        read_argument("out:float32:64,,3")


def test_check_options_are_parsed():
    assert read_checks(["off"]) == "off"
    assert read_checks(["races=off", "bounds=report,freed=off"]) == {
        "races": "off",
        "bounds": "report",
        "freed": "off",
    }


def test_textures_and_surfaces(tmp_path):
    np.save(tmp_path / "image.npy", np.zeros((4, 4, 4), np.uint8))
    path = tmp_path / "image.npy"
    word = read_argument(f"t={path}:texture,linear,floats,normalized,wrap,4-channels")
    assert (word.name, word.key, word.written) == ("t", "t", False)
    assert (word.value.filter_mode, word.value.read_mode, word.value.channels) == ("linear", "normalized", 4)
    assert (word.value.address_mode, word.value.normalized, word.value.linear) == ("wrap", True, False)
    word = read_argument(f"{path}:surface,4-channels")
    assert (word.name, word.written, type(word.value).__name__) == ("image", True, "Surface")
    with pytest.raises(SchemeError, match="'linear' of a surface"):
        read_argument(f"{path}:surface,linear")
    with pytest.raises(SchemeError, match="'cubic' of a texture"):
        read_argument(f"{path}:texture,cubic")
