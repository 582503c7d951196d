"""Import names of the packages, and user files that hide them."""

import copy
import importlib
import inspect
import os
import pickle
import pydoc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpu
import reference
import simwarp
import simwarp.name_clashes
from simwarp.name_clashes import HiddenPackageError, refuse_shadows

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def python(folder, *arguments):
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )


# Files that hide our packages


@pytest.mark.parametrize("file", ["gpu.py", "reference.py", "reference/__init__.py"])
def test_a_file_that_hides_a_package_is_named(tmp_path, file):
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text("import cupy\n")
    (tmp_path / "mine.py").write_text("import simwarp\n")
    done = python(tmp_path, "mine.py")
    assert done.returncode == 1
    name = file.partition("/")[0].removesuffix(".py")
    assert done.stderr.splitlines()[-3:] == [
        f"simwarp.name_clashes.HiddenPackageError: {path} hides simwarp's package {name!r}",
        f"Python finds it before {ROOT / name}",
        f"rename it, or move it out of {path.parent}",
    ]


def test_a_script_that_hides_a_package_itself_is_named(tmp_path):
    (tmp_path / "gpu.py").write_text("import simwarp\n")
    done = python(tmp_path, "gpu.py")
    assert f"{tmp_path / 'gpu.py'} hides simwarp's package 'gpu'" in done.stderr


@pytest.mark.slow
def test_files_of_other_names_do_not_hide_packages(tmp_path):
    (tmp_path / "gpu").mkdir()  # without __init__.py: a data folder, which ranks after a package
    (tmp_path / "gpus.py").write_text("raise SystemExit")
    (tmp_path / "mine.py").write_text(
        "import sys, simwarp\n"
        "assert not {'gpu', 'simwarp.run'} & set(sys.modules)\n"
        "print(simwarp.gpu.__name__, simwarp.reference.__name__, callable(simwarp.run))\n"
        "import gpu.mttkrp.formats as build, gpu.bmm.fsb as fsb\n"
        "print(build.__name__, fsb.__name__)\n"
    )
    done = python(tmp_path, "mine.py")
    assert done.stdout.splitlines() == ["gpu reference True", "gpu.mttkrp.formats gpu.bmm.fsb"]
    assert (done.returncode, done.stderr) == (0, "")


def test_an_imported_package_that_hides_ours_is_named(monkeypatch, tmp_path):
    refuse_shadows()
    monkeypatch.setitem(sys.modules, "gpu", type(sys)("gpu"))
    refuse_shadows()  # without a file: created in memory, or by another loader
    sys.modules["gpu"].__file__ = str(tmp_path / "gpu.py")
    with pytest.raises(HiddenPackageError, match=r"gpu\.py hides simwarp's package 'gpu'"):
        refuse_shadows()


def test_links_to_our_packages_do_not_hide_them(tmp_path):
    for name in ("gpu", "reference", "simwarp"):
        (tmp_path / name).symlink_to(ROOT / name)
    refuse_shadows(tmp_path)
    assert issubclass(HiddenPackageError, ImportError)


# Names


def test_gpu_and_reference_are_reachable_below_simwarp():
    assert simwarp.gpu is gpu
    assert simwarp.reference is reference
    assert simwarp.run is sys.modules["simwarp.run"].run
    assert {"gpu", "reference", "run", "Device", "lanes"} <= set(dir(simwarp))
    with pytest.raises(AttributeError, match="module 'simwarp' has no attribute 'gpus'"):
        _ = simwarp.gpus


def test_one_import_has_what_a_first_program_needs():
    assert simwarp.compile is importlib.import_module("gpu.compile").compile
    assert simwarp.Out is simwarp.run.Out
    assert simwarp.Coo is reference.sparse.Coo


def test_all_errors_to_catch_are_in_one_module():
    sources = [
        importlib.import_module(name) for name in ("reference.errors", "simwarp.faults", "simwarp.machine")
    ]
    for module in sources:
        for name, value in vars(module).items():
            if inspect.isclass(value) and issubclass(value, simwarp.errors.SimwarpError) and name[0] != "_":
                assert getattr(simwarp.errors, name) is value
                assert name in simwarp.errors.__all__
    assert dir(simwarp.errors) == simwarp.errors.__all__
    with pytest.raises(simwarp.errors.ShapeError):
        simwarp.reference.bmm(np.ones((2, 3)), np.ones((2, 3)))
    beyond = 'extern "C" __global__ void k(int* x) { x[1] = 0; }'
    with pytest.raises(simwarp.errors.OutOfBounds):
        simwarp.run(beyond, grid=1, block=1, args={"x": np.zeros(1, np.int32)})


FUNCTIONS = {"gpu.bmm": gpu.bmm, "gpu.mttkrp": gpu.mttkrp, "simwarp.run": simwarp.run}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_is_named_like_its_package_is_shown_by_help(name):
    function, package = FUNCTIONS[name], importlib.import_module(name)
    assert inspect.isfunction(function)
    assert function is getattr(package, name.rpartition(".")[2])
    assert inspect.getdoc(function) not in (None, inspect.getdoc(package))
    shown = pydoc.render_doc(function, renderer=pydoc.plaintext)
    assert f"{function.__name__}{inspect.signature(function)}" in shown
    assert (inspect.getdoc(function) or "").splitlines()[0] in shown
    for same in (pickle.loads(pickle.dumps(function)), copy.deepcopy(function)):
        assert same is function


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_is_named_like_its_package_has_its_attributes(name, monkeypatch):
    function, package = FUNCTIONS[name], importlib.import_module(name)
    for public in package.__all__:
        assert getattr(function, public) is getattr(package, public)
    monkeypatch.setattr(package, "later", 1, raising=False)  # as Python binds a module that is imported later
    assert function.later == 1


def test_functions_that_are_named_like_their_package_run(tmp_path):
    a, b = np.ones((2, 3)), -np.ones((3, 2))
    np.testing.assert_array_equal(gpu.bmm(a, b, device=simwarp.Device()), np.full((2, 2), -3))
    with pytest.raises(TypeError, match="missing 2 required positional arguments"):
        gpu.mttkrp(a)
    (tmp_path / "k.cu").write_text("__global__ void k(int* y) { y[threadIdx.x] = 7; }")
    result = simwarp.run(tmp_path / "k.cu", grid=1, block=32, args={"y": np.zeros(32, np.int32)})
    np.testing.assert_array_equal(result.outputs["y"], np.full(32, 7))


@pytest.mark.parametrize(
    "statement",
    [
        "import gpu.mttkrp.formats as b; b.FORMATS",
        "import gpu.mttkrp.checks as b; b.__name__",
        "import gpu.bmm.schemes as b; b.SCHEMES",
        "import gpu.bconv.geometry as b; b.__name__",
        "import gpu.cpd.model as b; b.__name__",
        "import simwarp.run.source as b; b.load",
        "from gpu.bmm import bmm, pack, SCHEMES, FsbBits; bmm.__code__",
        "from gpu.mttkrp import mttkrp, FORMATS, KERNELS, Plan; mttkrp.__code__",
        "from gpu.bconv import bconv2d; bconv2d.__code__",
        "from gpu.cpd import cpd_als; cpd_als.__code__",
        "from gpu import bmm, mttkrp, bconv2d, cpd_als, FORMATS; bmm.bmm, mttkrp.mttkrp",
        "from simwarp.run import run, load, Out; run.__code__",
        "from simwarp import gpu, reference, run; run.load",
    ],
)
def test_documented_imports_work(statement):
    exec(statement, {})
