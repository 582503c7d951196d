"""The compiler's options of ``simwarp run``, and the PTX that it writes."""

from pathlib import Path

import numpy as np
import pytest

from reference.errors import SchemeError
from simwarp.cli import main
from simwarp.cli.run_compiler import CompilerOptions, write_ptx
from simwarp.run import Out, load
from simwarp.run import run as run_in_python

NEVER = "__global__ void f(int* y) {\n    int v;\n    y[threadIdx.x] = v;\n}\n"
STANDARD = "__global__ void f(long* y) { y[threadIdx.x] = __cplusplus; }"
FUSED = (
    "__global__ void f(float* y) { float x = 1.0f + threadIdx.x / 4096.0f; y[threadIdx.x] = x * x - 1.0f; }"
)
ADVICE = "compile with -G"


def run(source, *options, dtype="int32"):
    Path("f.cu").write_text(source)
    return main(["run", "f.cu", "--grid", "1", "--block", "32", "--arg", f"y=out:{dtype}:32", *options])


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_g_finds_a_variable_without_a_value_that_the_optimiser_removes(capsys):
    assert run(NEVER) == 1
    without = capsys.readouterr().err
    assert "v" in without
    assert ADVICE in without
    assert "nothing wrote" not in without
    assert run(NEVER, "-G") == 1
    debugged = capsys.readouterr().err
    assert "nothing wrote" in debugged
    assert ADVICE not in debugged


def test_python_has_the_advice_in_the_log():
    Path("f.cu").write_text(NEVER)
    assert ADVICE in load("f.cu").log
    assert ADVICE not in load("f.cu", options=["-G"]).log
    Path("f.cu").write_text(FUSED)
    assert load("f.cu").log == ""


@pytest.mark.parametrize(("options", "expected"), [([], 201703), (["--std", "c++20"], 202002)])
def test_the_standard_is_chosen(options, expected):
    assert run(STANDARD, *options, dtype="int64") == 0
    assert set(np.load("y.npy")) == {expected}


def test_fused_multiply_add_is_turned_off():
    x = (1 + np.arange(32) / np.float32(4096)).astype(np.float32)
    assert run(FUSED, "--no-fmad", dtype="float32") == 0
    assert np.array_equal(np.load("y.npy"), x * x - 1)
    assert run(FUSED, "--fmad", dtype="float32") == 0
    exact = x.astype(np.float64) * x - 1
    assert np.array_equal(np.load("y.npy"), exact.astype(np.float32))
    assert not np.array_equal(x * x - 1, exact.astype(np.float32))


EMPTY = """#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)
#include <stdio.h>
__global__ void f(int* y) { y[threadIdx.x] = 1; if (!threadIdx.x) printf("[%s]\\n", TEXT(EMPTY)); }
"""


@pytest.mark.parametrize(("define", "printed"), [("EMPTY=", "[]"), ("EMPTY", "[1]"), ("EMPTY=a=b", "[a=b]")])
def test_a_macro_is_nothing_or_1_or_its_value(capsys, define, printed):
    assert run(EMPTY, "-D", define) == 0
    assert capsys.readouterr().out.splitlines()[0] == printed


def test_a_macro_of_python_is_its_value():
    for value, printed in (("", "[]"), (1, "[1]")):
        result = run_in_python(EMPTY, grid=1, block=1, args=[Out("i4", 1)], defines={"EMPTY": value})
        assert result.stdout == f"{printed}\n"


def test_options_of_nvrtc_are_passed_on(capsys):
    assert run(FUSED, "--option=-DN=1", "--option", "--ptxas-options=-v", dtype="float32") == 0
    assert run(FUSED, "--option=--nonsense", dtype="float32") == 2
    assert "unrecognized option --nonsense" in capsys.readouterr().err


def test_the_ptx_that_runs_is_written_and_runs(capsys):
    assert run(FUSED, "--no-fmad", "--ptx", "g.ptx", dtype="float32") == 0
    assert "wrote g.ptx" in capsys.readouterr().err
    text = Path("g.ptx").read_text()
    assert text == load("f.cu", options=["-fmad=false"]).ptx
    first = np.load("y.npy")
    arguments = ["--grid", "1", "--block", "32", "--arg", "0=out:float32:32", "-o", "again"]
    assert main(["run", "g.ptx", *arguments]) == 0
    assert np.array_equal(np.load(next(Path("again").iterdir())), first)


def test_ptx_is_not_written_over_a_source(capsys):
    assert run(FUSED, "--ptx", "f.cu") == 2
    assert Path("f.cu").read_text() == FUSED
    assert capsys.readouterr().err.splitlines() == [
        "f.cu is to hold PTX",
        "its name ends in .cu",
        "let it end in .ptx",
    ]
    with pytest.raises(SchemeError, match="ends in nothing"):
        write_ptx(Path("f"), "", "--ptx")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (CompilerOptions(debug=True), "-G"),
        (CompilerOptions(fmad=False), "--no-fmad"),
        (CompilerOptions(fmad=True), "--fmad"),
        (CompilerOptions(["A", "B"], option=["-x"]), "-D, --option"),
        (CompilerOptions(include=[Path()]), "-I"),
    ],
)
def test_options_of_the_compiler_are_refused_for_ptx(options, named):
    with pytest.raises(SchemeError) as caught:
        options.for_file(Path("my.ptx"))
    assert str(caught.value).splitlines() == [
        f"{named} with my.ptx",
        "PTX is compiled already",
        "leave them out, or pass them to nvcc",
    ]
    assert CompilerOptions().for_file(Path("my.ptx")) == {"defines": {}, "include": [], "options": []}
