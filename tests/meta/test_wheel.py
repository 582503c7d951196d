"""The built wheel, used from a folder without the sources.

A file ``gpu.py`` in the working directory would come before the package ``gpu``: Python puts the
working directory (``-m``, ``-c``) or the script's folder first on the path. The console command
``simwarp`` is not concerned; where it matters, ``python -P`` leaves the working directory out.
"""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from reference.version import __version__

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("reference", "simwarp", "gpu")
SUFFIXES = (".py", ".cu", ".cuh", ".typed", ".json", ".txt", ".c", ".h", ".inc")

ONE_LINE = (
    "import numpy as np, reference, simwarp, gpu; r=np.random.default_rng(0); a=r.standard_normal((33,70)); "
    "b=r.standard_normal((70,9)); d=simwarp.Device(); "
    "assert (gpu.bmm(a,b,device=d)==reference.bmm(a,b)).all() "
    "and (gpu.bmm(a,b,scheme='bmm64',thresholds=[0]*9,device=d).words"
    "==reference.threshold(reference.bmm(a,b),[0]*9,word=64).words).all() "
    "and (simwarp.listings.bmm32(a,b)==reference.bmm(a,b)).all()"
)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The wheel, built as for a release."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-P", "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="session")
def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    """A folder that holds only what the wheel installs."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def foreign(tmp_path):
    """A working directory with a gpu.py that must not be imported instead of our package."""
    (tmp_path / "gpu.py").write_text("raise SystemExit('the gpu.py of the working directory')\n")
    return tmp_path


def python(*arguments, folder, installed, safe=True):
    """Run Python in a foreign folder, with the installed wheel on its path instead of the sources."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment["PYTHONPATH"] = str(installed)  # precedes site-packages, including an editable install
    return subprocess.run(
        [sys.executable, *(["-P"] if safe else []), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_wheel_name_has_version_and_tags(wheel):
    assert wheel.name == f"simwarp-{__version__}-py3-none-any.whl"


def test_the_top_level_holds_only_packages_and_metadata(names):
    assert {name.split("/")[0] for name in names} == {*PACKAGES, f"simwarp-{__version__}.dist-info"}


def test_the_wheel_holds_exactly_the_files_of_the_packages(names):
    sources = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix in SUFFIXES
    }
    assert {name for name in names if ".dist-info/" not in name} == sources


def test_the_wheel_holds_kernels_and_no_tests(names):
    assert {f"gpu/bmm/{name}" for name in ("bmm.cu", "pack.cu", "output.cuh")} <= set(names)
    assert "gpu/include/bmm/warp.cuh" in names
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert not any("test" in name.split("/")[:1] or name.endswith((".pyc", ".npz", ".md")) for name in names)


def test_the_metadata_has_requirements_and_the_entry_point(installed):
    (info,) = installed.glob("*.dist-info")
    metadata = (info / "METADATA").read_text()
    head = metadata.partition("\n\n")[0]
    assert "Name: simwarp\n" in head
    assert f"Version: {__version__}\n" in head
    assert "License-Expression: MIT\n" in head
    assert {line.split()[1] for line in head.splitlines() if line.startswith("Provides-Extra:")} >= {
        "cli",
        "compile",
        "gpu",
        "test",
    }
    needed = [line for line in head.splitlines() if line.startswith("Requires-Dist:") and "extra" not in line]
    assert [line.split()[1].split(">")[0].split("<")[0] for line in needed] in (
        ["numba", "numpy"],
        ["numpy", "numba"],
    )
    assert "simwarp = simwarp.cli:main" in (info / "entry_points.txt").read_text()


def test_installed_packages_equal_the_listed_packages(foreign, installed):
    program = "import reference, simwarp, gpu; print(*(p.__file__ for p in (reference, simwarp, gpu)))"
    done = python("-c", program, folder=foreign, installed=installed)
    assert done.stderr == ""
    assert [Path(path).parents[1] for path in done.stdout.split()] == [installed] * 3


@pytest.mark.slow
def test_the_one_line_product_runs_from_the_wheel(foreign, installed):
    done = python("-c", ONE_LINE, folder=foreign, installed=installed)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_the_info_command_runs_from_the_wheel(foreign, installed):
    done = python("-m", "simwarp", "info", "--json", folder=foreign, installed=installed)
    assert (done.returncode, done.stderr) == (0, "")
    facts = json.loads(done.stdout)
    assert (facts["simwarp"], facts["compiler"]) == (__version__, "NVRTC 13.0")


@pytest.mark.gate
def test_the_verify_command_runs_from_the_wheel(foreign, installed):
    done = python(
        "-m", "simwarp", "verify", "--case", "bmm", "--input", "2", folder=foreign, installed=installed
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "all tiers agree"


def test_a_gpu_py_in_the_working_directory_hides_ours_unless_safe_path(foreign, installed):
    done = python("-c", "import gpu", folder=foreign, installed=installed, safe=False)
    assert done.stderr == "the gpu.py of the working directory\n"
