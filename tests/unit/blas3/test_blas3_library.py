"""``libsimwarpblas.so``: BLAS by C's and Fortran's names, here, in C programs, in R and Octave."""

from __future__ import annotations

import ctypes
import os
import random
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpu.blas3.problem import Problem
from gpu.blas3.table import LETTERS, PREFIXES, ROWS
from reference.blas3 import error_of
from reference.errors import CompileError, DeviceLostError, MissingExtraError, NoGpuError
from simwarp.cli import main
from simwarp.exec.blas import build, build_library, calls
from simwarp.exec.blas.names import exported

PROGRAMS = Path(__file__).parent / "programs"
CBLAS = {"N": 111, "T": 112, "C": 113, "U": 121, "L": 122, "R": 142}
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, built for this Python."""
    path = tmp_path_factory.mktemp("library") / build.SONAME
    try:
        build_library(path)
    except MissingExtraError as error:
        pytest.skip(str(error).splitlines()[0])
    return path


@pytest.fixture
def loaded(library: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The library in this process; its first call reads the environment."""
    for name, value in {"MACHINE": "H200x2", "ABOVE": "0", "TILE": "6"}.items():
        monkeypatch.setenv(f"SIMWARP_BLAS_{name}", value)
    calls.machine.cache_clear()
    monkeypatch.setattr(calls, "_said", [])
    return ctypes.CDLL(str(library))


def number(flag: str, letter: str) -> int:
    """A flag's number of CBLAS."""
    if flag == "diag":
        return {"N": 131, "U": 132}[letter]
    return 141 if flag == "side" and letter == "L" else CBLAS[letter]


def scalar(value: float, dtype: np.dtype[Any], *, is_real: bool, by_value: bool) -> Any:
    """Alpha or beta as C takes it: real ones by value in CBLAS, all others by their address."""
    if dtype.kind == "f" or is_real:
        kind: Any = ctypes.c_float if dtype in ("float32", "complex64") else ctypes.c_double
        return kind(value) if by_value else ctypes.byref(kind(value))
    return ctypes.byref((ctypes.c_char * dtype.itemsize).from_buffer_copy(dtype.type(value).tobytes()))


def plain(name: str, value: Any, *, by_value: bool) -> Any:
    """A flag, a size or a stride as C takes it: numbers by value in CBLAS, by their address in Fortran."""
    if by_value:
        return ctypes.c_int(number(name, value) if name in LETTERS else value)
    letter = value.lower() if name == "uplo" else value  # Fortran takes both cases
    return ctypes.byref(ctypes.c_char(letter.encode()) if name in LETTERS else ctypes.c_int(value))


def called(loaded: Any, routine: str, form: str, draw: random.Random) -> float:
    """The error of a drawn call in units of the bound; what is around its matrices must be kept."""
    row, dtype = ROWS[routine[1:]], np.dtype(PREFIXES[routine[0]])
    letters = row.letters(is_real=dtype.kind == "f")
    flags: dict[str, Any] = {name: draw.choice(letters[name]) for name in letters}
    m, n, k = (draw.randint(1, 17) for _ in range(3))
    m = n if row.is_triangle else m
    k = k if row.has_k else m if flags.get("side") == "L" else n
    by_columns = form == "{}_" or draw.random() < 0.5
    rng = np.random.default_rng(draw.randrange(1 << 30))
    shapes = Problem(row.name, dtype, m, n, k, 1.0, 0.0, **flags).shapes
    wide, views, across = dict[str, Any](), dict[str, Any](), dict[str, int]()
    for name, (rows, columns) in shapes.items():
        lines, length = (columns, rows) if by_columns else (rows, columns)
        x = rng.standard_normal((lines, length + draw.choice([0, 1, 5]))).astype(dtype)
        x += 1j * rng.standard_normal(x.shape) if dtype.kind == "c" else 0
        wide[name], across[f"ld{name}"] = x, x.shape[1]
        views[name] = x[:, :length].T if by_columns else x[:, :length]
    if row.form == "triangular":
        np.einsum("ii->i", views["a"])[...] += 2 * k
    before = {name: x.copy() for name, x in wide.items()}
    given = {name: x.copy() for name, x in views.items()}
    scalars = {"alpha": 0.5, "beta": draw.choice([0.0, 2.0])}
    values = {"m": m, "n": n, "k": k, **across}
    arguments = list[Any]() if form == "{}_" else [102 if by_columns else 101]
    for name in row.positions:
        if name in wide:
            arguments.append(wide[name].ctypes.data_as(ctypes.c_void_p))
        elif name in scalars:
            arguments.append(scalar(scalars[name], dtype, is_real=name in row.real, by_value=form != "{}_"))
        else:
            arguments.append(plain(name, flags.get(name) or values[name], by_value=form != "{}_"))
    getattr(loaded, form.format(routine))(*arguments)
    for name, x in wide.items():
        length = views[name].shape[0 if by_columns else 1]
        assert np.array_equal(x[:, length:], before[name][:, length:])
        assert name == row.result or np.array_equal(x, before[name])
    operands = [given[name] for name in row.inputs]
    operands += [scalars["beta"], given["c"]] if row.result == "c" else []
    if "trans_a" in flags and "trans_b" not in flags:
        flags["trans"] = flags.pop("trans_a")
    return error_of(row.name, views[row.result], scalars["alpha"], *operands, **flags)


# --------------------------------------------------------------------------------------------------
# In this process
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["{}_", "cblas_{}"])
@pytest.mark.parametrize("row", ROWS)
def test_drawn_calls_are_those_of_the_definition(loaded, monkeypatch, row, form):
    taken = list[str]()
    execute = calls.execute

    def noted(call: Any, *rest: Any) -> None:
        taken.append(call.problem.name)
        execute(call, *rest)

    monkeypatch.setattr(calls, "execute", noted)
    draw = random.Random(f"{row} {form}")
    names = [prefix + row for prefix in ROWS[row].prefixes]
    for routine in names:
        assert called(loaded, routine, form, draw) <= 1
    assert taken == names


def test_a_call_that_fails_leaves_its_result_as_it_was(loaded, monkeypatch, capfd):
    def fails(call: Any, *_: Any) -> None:
        call.on_host[call.problem.result][...] = np.nan
        raise DeviceLostError("device 1 is lost", "planted", "nothing", device=1)

    monkeypatch.setattr(calls, "execute", fails)
    draw = random.Random(3)
    for routine in ("dgemm", "dtrsm", "zherk"):  # no BLAS is behind the library here, so Python computes them
        assert called(loaded, routine, "cblas_{}", draw) <= 1
    assert capfd.readouterr().err == "simwarp: DeviceLostError: device 1 is lost; calls go to the next BLAS\n"


def test_without_a_gpu_and_without_another_blas_python_computes(library, tmp_path, monkeypatch, capfd):
    def none() -> None:
        raise NoGpuError("no GPU is here\nplanted\nnothing")

    own = tmp_path / "own.so"  # a library of its own, as it takes no more calls afterwards
    own.write_bytes(library.read_bytes())
    monkeypatch.setenv("SIMWARP_BLAS_ABOVE", "0")
    monkeypatch.delenv("SIMWARP_BLAS_MACHINE", raising=False)
    monkeypatch.setattr(calls, "_said", [])
    monkeypatch.setattr("gpu.blas3.execute.is_small", lambda call: False)
    monkeypatch.setattr("gpu.blas3.execute.default_machine", none)
    calls.machine.cache_clear()
    draw, loaded = random.Random(5), ctypes.CDLL(str(own))
    assert all(called(loaded, routine, "{}_", draw) <= 1 for routine in ("dgemm", "ssyrk", "ztrmm"))
    calls.machine.cache_clear()
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("simwarp: NoGpuError: dgemm of ")


def test_the_library_has_the_names_of_the_routines(library):
    loaded = ctypes.CDLL(str(library))
    assert all(hasattr(loaded, name) for name in exported())
    assert {"dgemm_", "cblas_strsm", "zher2k_", "cblas_cgemm", "dgemmt_"} <= set(exported())
    assert not hasattr(loaded, "takes")


# --------------------------------------------------------------------------------------------------
# In a C program
# --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def program(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A C program, linked to a BLAS of its own, which counts its calls."""
    work = tmp_path_factory.mktemp("program")
    compiler = shutil.which("cc") or "gcc"
    blas, main_file = work / "libplain.so", work / "calls"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", blas, PROGRAMS / "plain_blas.c"], check=True)
    flags = ["-pthread", f"-L{work}", "-lplain", f"-Wl,-rpath,{work}"]
    subprocess.run([compiler, "-o", main_file, PROGRAMS / "blas_calls.c", *flags], check=True)

    def run(**variables: str) -> Any:
        environment = {name: x for name, x in os.environ.items() if not name.startswith("SIMWARP_")}
        environment |= {f"SIMWARP_BLAS_{name}": value for name, value in variables.items()}
        environment |= {"LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [main_file], env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        found = dict(line.split(": ") for line in done.stdout.splitlines())
        return SimpleNamespace(**found, errors=done.stderr.splitlines())

    return run


@pytest.mark.slow
def test_a_program_calls_before_main_from_threads_and_after_a_fork(program):
    found = program(MACHINE="H200x2", ABOVE="10", TILE="16", COUNTS="1")
    assert (found.early, found.main, found.threads, found.child) == ("right", "right", "right", "right")
    assert found.child_plain == "2"  # a child has no Python
    counts = re.fullmatch(r"simwarp: (\d+) calls computed, (\d+) passed on", found.errors[-1])
    assert counts
    taken, passed = map(int, counts.groups())
    assert found.errors[:-1] == []
    assert taken + passed == 1 + 3 + 8  # the child does not count
    assert int(found.plain) == passed >= 1  # one is small
    assert taken >= 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "error"),
    [
        ({"MACHINE": "NOSUCH"}, "simwarp: SchemeError: the topology 'NOSUCH' is unknown"),
        ({"LIBPYTHON": "/no/libpython.so"}, "simwarp: Python does not start: /no/libpython.so"),
    ],
)
def test_a_program_goes_on_with_its_own_blas_if_python_fails(program, variables, error):
    found = program(ABOVE="10", **variables)
    assert (found.early, found.main, found.threads, found.child) == ("right", "right", "right", "right")
    (line,) = found.errors
    assert line.startswith(error)
    assert line.endswith("; calls go to the next BLAS")
    assert found.plain == "12"


def test_small_calls_go_to_the_next_blas_without_python(program):
    found = program(MACHINE="H200x2", COUNTS="1")
    assert found.plain == "12"
    assert found.errors == ["simwarp: 0 calls computed, 12 passed on"]


# --------------------------------------------------------------------------------------------------
# In R and Octave
# --------------------------------------------------------------------------------------------------

R = """
a <- matrix((0:1199) %% 7 - 3, 40, 30); b <- matrix((0:1499) %% 5 + 0.5, 30, 50)
for (x in list(a %*% b, crossprod(a))) write.table(x, row.names = FALSE, col.names = FALSE)
"""
OCTAVE = """
a = reshape(mod(0:1199, 7) - 3, 40, 30); b = reshape(mod(0:1499, 5) + 0.5, 30, 50);
printf([repmat('%.15g ', 1, 50) '\\n'], (a * b)'); printf([repmat('%.15g ', 1, 30) '\\n'], (a' * a)');
"""


@pytest.mark.slow
@pytest.mark.parametrize(("command", "script"), [("Rscript", R), ("octave-cli", OCTAVE)], ids=["R", "Octave"])
def test_products_of_languages_are_those_of_numpy(library, tmp_path, command, script):
    path = shutil.which(command)
    if path is None:
        pytest.skip(f"{command} is not installed (Debian: apt install r-base-core octave)")
    environment = {name: x for name, x in os.environ.items() if not name.startswith("SIMWARP_")}
    settings = {"MACHINE": "MAKALU", "ABOVE": "10", "TILE": "16", "COUNTS": "1"}
    environment |= {f"SIMWARP_BLAS_{name}": value for name, value in settings.items()}
    environment |= {"LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT)}
    file = tmp_path / "products"
    file.write_text(script)
    done = subprocess.run(
        [path, file], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    numbers = [[float(x) for x in line.split()] for line in done.stdout.splitlines()]
    a = (np.arange(1200) % 7 - 3.0).reshape(30, 40).T
    b = (np.arange(1500) % 5 + 0.5).reshape(50, 30).T
    np.testing.assert_allclose(numbers[:40], a @ b)
    np.testing.assert_allclose(numbers[40:], a.T @ a)
    assert re.search(r"simwarp: ([2-9]|\d\d+) calls computed", done.stderr), done.stderr


# --------------------------------------------------------------------------------------------------
# The build
# --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_writes_the_library(tmp_path, capsys):
    path = tmp_path / "my.so"
    try:
        build.libpython()
    except MissingExtraError as error:
        pytest.skip(str(error).splitlines()[0])
    assert main(["blas", "library", "-o", str(path)]) == 0
    assert f"LD_PRELOAD={path}" in capsys.readouterr().out
    assert path.read_bytes()[:4] == b"\x7fELF"


def test_what_the_build_lacks_is_said(tmp_path, monkeypatch):
    with monkeypatch.context() as changed:
        changed.setenv("PATH", str(tmp_path))
        with pytest.raises(MissingExtraError, match="cc or gcc"):
            build_library(tmp_path / "my.so")
    with monkeypatch.context() as changed:
        changed.setattr("sysconfig.get_config_var", lambda key: {"INSTSONAME": "libpython3.a"}.get(key, "/"))
        with pytest.raises(MissingExtraError, match="--enable-shared"):
            build_library(tmp_path / "my.so")
    try:
        build.libpython()
    except MissingExtraError as error:
        pytest.skip(str(error).splitlines()[0])
    monkeypatch.setattr(build, "c_functions", lambda: "int broken(void) { return }")
    with pytest.raises(CompileError, match=r"libsimwarpblas\.so does not compile"):
        build_library(tmp_path / "my.so")
    assert not [*tmp_path.iterdir()]
