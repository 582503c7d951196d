"""An unmodified script of PyCUDA, where that is installed: it is built from source, which CI does not do."""

from pathlib import Path

import pytest

from simwarp.exec import execute
from simwarp.exec.python_scripts import pycuda_settings
from simwarp.faults import OutOfBounds
from simwarp.run.nvcc import has_nvcc

SCRIPT = Path(__file__).parent / "scripts" / "pycuda_kernels.py"


@pytest.mark.slow
@pytest.mark.skipif(not has_nvcc(), reason="nvcc (pip install 'simwarp[nvcc]') or g++ is not installed")
def test_a_script_is_right_and_its_bad_write_is_found(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pycuda.compiler", reason="PyCUDA is not installed", exc_type=ImportError)
    report = execute(SCRIPT, [], quiet=True)
    assert capfd.readouterr().out.startswith("pycuda_kernels: right\n")
    (fault,) = report.findings
    assert isinstance(fault, OutOfBounds)
    assert (fault.allocation, fault.place.kernel, fault.count) == ("x", "fill", 14)
    assert (fault.place.source_file, fault.place.source_text) == ("kernel.cu", "    x[threadIdx.x] = 1;")
    assert report.kernels["scale"] == 2


def test_nvcc_and_lines_are_added_to_what_the_user_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCUDA_DEFAULT_NVCC_FLAGS", "-O1")
    monkeypatch.setenv("PATH", "/of/the/user")
    settings = pycuda_settings()
    assert settings["PYCUDA_DEFAULT_NVCC_FLAGS"] == "-O1 -lineinfo"
    assert settings.get("PATH", "/of/the/user").startswith("/of/the/user")
