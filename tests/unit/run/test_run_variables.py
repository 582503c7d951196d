"""Module variables: set from the host, or zero with a note; and compiler warnings."""

import json
from dataclasses import replace

import numpy as np
import pytest

import simwarp
from reference.errors import DtypeError, SchemeError
from simwarp.cli import main
from simwarp.cli.run_words import read_settings
from simwarp.faults import LaunchError
from simwarp.run import Out, load, run
from simwarp.run.variables import settings, with_values

SCALE = """\
__constant__ float c[4];
__device__ int d = 7;
namespace a { static __constant__ int n; __constant__ int given = 3; }
namespace b { __constant__ double n; }
__device__ __noinline__ double inner(int i) { return b::n; }
__global__ void scale(double* y) {
    int i = threadIdx.x; y[i] = c[i] + d + a::n + a::given + inner(i); }
__global__ void other(int* y) { *y = a::given + d; }
"""


@pytest.fixture
def source(tmp_path, monkeypatch):
    (tmp_path / "scale.cu").write_text(SCALE)
    monkeypatch.chdir(tmp_path)
    return load("scale.cu")


C = np.arange(4, dtype=np.float32)


def scale(source, **options):
    return run(source, "scale", grid=1, block=4, args=[Out("float64", 4, "y")], **options)


def test_module_variables_are_set(source):
    result = scale(source, set={"c": C, "d": 1, "a::n": np.int32(10), "_ZN1b1nE": 0.5})
    assert result.outputs["y"].tolist() == (C + 14.5).tolist()
    assert result.notes == ()
    assert scale(source, set={"c": C.reshape(2, 2)[:, ::-1]}).outputs["y"].tolist() == [11, 10, 13, 12]


def test_unset_constants_are_noted(source):
    result = scale(source)
    assert result.outputs["y"].tolist() == [10] * 4
    assert [note.partition(" ")[0] for note in result.notes] == ["c", "a::n", "b::n"]
    assert result.faults == []
    assert [note.partition(" ")[0] for note in scale(source, set={"c": C}).notes] == ["a::n", "b::n"]
    assert run(source, "other", grid=1, block=1, args=[Out("int32", 1)]).notes == ()


@pytest.mark.parametrize(
    ("values", "error", "part"),
    [
        ({"e": 1}, LaunchError, "there is no variable 'e'\nthere are c, d, a::n, a::given, b::n"),
        ({"n": 1}, LaunchError, "2 variables are called 'n'\nthere are a::n, b::n"),
        ({"d": 1, "_d": 2}, LaunchError, "there is no variable '_d'"),
        ({"b::n": 1, "_ZN1b1nE": 2}, LaunchError, "variable b::n is set twice"),
        ({"c": C[:3]}, LaunchError, "variable c has 16 bytes; 3 elements of float32 have 12\n"),
        ({"c": 1.5}, LaunchError, "variable c is an array of 16 bytes; 1.5 is not"),
        ({"c": [1, 2, 3, 4]}, DtypeError, "c is a list"),
        ({"d": 2.5}, LaunchError, "variable d is a .u32; 2.5 does not fit it"),
        ({"d": 2**32}, LaunchError, "does not fit it"),
        ({"c": np.ma.masked_array(C, mask=[1, 0, 0, 0])}, DtypeError, "c has a mask"),
    ],
)
def test_unsuitable_variables_are_refused(source, values, error, part):
    with pytest.raises(error) as caught:
        scale(source, set=values)
    assert part in str(caught.value)


def test_a_device_without_module_variables_is_accepted(source):
    class Module:
        def __init__(self, module):
            self.kernel = module.kernel

    class Hardware(simwarp.Device):
        def load(self, ptx):
            return Module(super().load(ptx))

    assert scale(source, device=Hardware()).outputs["y"].tolist() == [10] * 4
    assert scale(source, device=Hardware(), set={"d": 1}).outputs["y"].tolist() == [4] * 4


@pytest.mark.usefixtures("source")
def test_the_command_line_sets_variables(capsys):
    np.save("c.npy", C)
    command = ["run", "scale.cu", "--kernel=scale", "--grid=1", "--block=4", "--arg", "y=out:float64:4"]
    assert main([*command, "--set", "c=c.npy", "--set", "a::n=10", "--set=d=1"]) == 0
    assert np.load("y.npy").tolist() == (C + 14).tolist()
    printed = capsys.readouterr().err
    assert "note: b::n is zero" in printed
    assert "set it with --set b::n=FILE.npy" in printed
    assert "note: c" not in printed
    assert main([*command, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["notes"]) == 3
    for bad, part in (
        ("c", "--set c: not NAME=VALUE"),
        ("e=1", "no variable 'e'"),
        ("d=x", "--set d=x"),
    ):
        assert main([*command, "--set", bad]) == 2
        assert part in capsys.readouterr().err
    with pytest.raises(SchemeError, match="c is set twice"):
        read_settings(["c=1", "c=2"])


def test_compiler_warnings_are_returned(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.cu").write_text("__global__ void k(int* y) {\n int v;\n y[threadIdx.x] = v; }")
    for _ in range(2):  # compiled, and from the cache
        result = run("k.cu", grid=1, block=4, args=[Out("int32", 4)])
        assert 'k.cu(3): warning #549-D: variable "v" is used before its value is set' in result.warnings
    command = ["run", "k.cu", "--grid=1", "--block=4", "--arg", "out:int32:4"]
    assert main(command) == 1
    assert "k.cu(3): warning #549-D" in capsys.readouterr().err
    assert main([*command, "--json", "--partial"]) == 0
    assert "k.cu(3): warning #549-D" in json.loads(capsys.readouterr().out)["warnings"]


def test_a_device_that_sets_no_variables_gets_ptx_with_their_values(source):
    given = {"c": C, "d": 5, "a::n": 2, "b::n": 0.5}
    values = settings(source.module, given, source.variable_type)
    ptx = with_values(source.ptx, source.module, values)
    assert ptx.count("\n") == source.ptx.count("\n")
    expected = scale(source, set=given).outputs["y"]
    got = scale(replace(source, ptx=ptx)).outputs["y"]
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(got, C + 5 + 2 + 3 + 0.5)
    with pytest.raises(SchemeError, match=r"variable c cannot be set on this device\n.*\nleave out"):
        with_values(source.ptx.replace("c[16]", "C[16]"), source.module, {"c": values["c"]})
