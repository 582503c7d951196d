"""Unmodified scripts of numba.cuda: each checks itself, its report is checked here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from simwarp.exec import execute
from simwarp.exec.build import DRIVER, runtime_folder
from simwarp.exec.python_scripts import NO_NVVM, numba_home
from simwarp.faults import Race

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture(autouse=True)
def _nvvm(tmp_path: Path) -> None:
    if not numba_home(tmp_path):
        pytest.skip(NO_NVVM.partition("\n")[0])


@pytest.mark.slow
def test_a_script_is_right_and_without_findings(capfd: pytest.CaptureFixture[str]) -> None:
    report = execute(SCRIPTS / "numba_kernels.py", ["a", "--b"], quiet=True)
    assert capfd.readouterr().out == "numba_kernels: right a --b\n"
    assert (report.exit_code, report.findings, report.missing, report.failed) == (0, [], {}, {})
    assert report.kernels["cudapy::__main__::scale"] == 2
    assert report.kernels["cudapy::__main__::exchange"] == 1


@pytest.mark.slow
def test_the_module_names_the_python_line_of_a_race(tmp_path: Path) -> None:
    written = tmp_path / "report.json"
    command = [sys.executable, "-m", "simwarp.numba", "--error-exitcode", "7", "--report", str(written)]
    script = SCRIPTS / "numba_race.py"
    done = subprocess.run([*command, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 7
    (race,) = json.loads(written.read_text())["findings"]
    lines = script.read_text().splitlines()
    assert race["check"] == Race.check == "races"
    assert f"numba_race.py:{lines.index('    x[i] = tile[63 - i]') + 1}: race" in done.stderr
    assert f"numba_race.py:{lines.index('    tile[i] = x[i]') + 1}: written here" in done.stderr


def test_a_script_that_is_not_there_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "simwarp.numba", str(tmp_path / "none.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "none.py cannot be read" in done.stderr


@pytest.mark.parametrize("name", ["contexts", "numba_linked", "numba_registers"])
def test_a_script_that_checks_itself_ends_right(name: str) -> None:
    report = execute(SCRIPTS / f"{name}.py", quiet=True)
    assert (report.exit_code, report.findings) == (0, [])
    assert {*report.missing} <= {"cuGetExportTable"}  # NVRTC asks for it, and does without


@pytest.mark.slow
def test_a_kernel_of_numba_prints(capfd: pytest.CaptureFixture[str]) -> None:
    report = execute(SCRIPTS / "numba_print.py", quiet=True)
    assert capfd.readouterr().out == "value 0 0.500000\nvalue 1 1.500000\n"
    assert (report.exit_code, report.findings) == (0, [])


def test_numba_has_settings_that_fit_unless_the_user_has_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = numba_home(tmp_path / "a")
    assert Path(home["NUMBA_CUDA_INCLUDE_PATH"], "cuda_fp16.h").is_file()
    assert home["NUMBA_CUDA_DEFAULT_PTX_CC"] == "7.5"
    for name in ("NUMBA_CUDA_INCLUDE_PATH", "NUMBA_CUDA_DEFAULT_PTX_CC"):
        monkeypatch.setenv(name, "mine")
        assert numba_home(tmp_path / name)[name] == "mine"


def test_the_driver_by_itself_says_what_to_run() -> None:
    call = f"import ctypes; print(ctypes.CDLL({str(runtime_folder() / DRIVER)!r}).cuInit(0))"
    done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=False)
    assert done.stdout == "100\n"  # CUDA_ERROR_NO_DEVICE
    assert "run: simwarp exec PROGRAM" in done.stderr


@pytest.mark.slow
def test_a_process_that_a_script_starts_has_no_device() -> None:
    report = execute(SCRIPTS / "child.py", quiet=True)
    assert (report.exit_code, report.missing, report.failed) == (0, {}, {})
