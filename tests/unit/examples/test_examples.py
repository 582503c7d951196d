"""Every example runs as documented and detects a wrong device result."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gpu
import gpu.bnn
import reference.bnn

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(path.relative_to(ROOT))], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.gate_cases("edges", "digits")  # they have tests of their own
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_succeeds(path: Path) -> None:
    done = run(path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()
    assert done.stderr == ""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_short(path: Path) -> None:
    _, _, code = path.read_text().split('"""', 2)
    assert 10 <= sum(bool(line.strip()) for line in code.splitlines()) <= 50


@pytest.mark.gate
def test_the_digits_example_recognises_digits() -> None:
    printed = run(ROOT / "examples" / "digits.py").stdout
    accuracy = re.search(r"of 500 digits recognised: ([\d.]+)%$", printed, re.MULTILINE)
    assert accuracy is not None, printed
    assert float(accuracy[1]) > 90
    assert "simwarp simulator (sm_90): products and neighbours equal NumPy's" in printed


def test_the_digits_example_reports_a_wrong_product(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = gpu.bmm

    def lying(*operands: Any, **options: Any) -> Any:
        product = honest(*operands, scheme="bmm32", **options)
        product[7, 9] += 2
        return product

    monkeypatch.setattr(gpu, "bmm", lying)
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(ROOT / "examples" / "digits.py"), run_name="__main__")
    assert stopped.value.code == 1
    assert "DIFFER" in capsys.readouterr().out


def test_the_networks_example_reports_a_wrong_sum(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The simulation itself is a step of `make verify`."""

    def lying(network: Any, images: Any, **options: Any) -> Any:
        answer = reference.bnn.run(network, images)
        answer.sums[-1, -1] += 2 * (network.name == "digits-conv")
        return answer

    monkeypatch.setattr(gpu.bnn, "run", lying)
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(ROOT / "examples" / "networks" / "recognise.py"), run_name="__main__")
    assert stopped.value.code == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if "DIFFER" in line]
    assert lines
    assert all(line.startswith("digits-conv") for line in lines)
