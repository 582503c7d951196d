"""Whole programs, and scripts of Numba, held against a second device; a simulated one is the GPU."""

import json
import runpy
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import simwarp.numba
from simwarp.cli import main
from simwarp.device.device import Device
from simwarp.exec import execute
from simwarp.exec.python_scripts import NO_NVVM, numba_home
from simwarp.run import Both
from simwarp.run.both.devices import Here
from simwarp.run.both.program_launch import Contents, ProgramLaunch
from simwarp.run.nvcc import has_nvcc

HERE = Path(__file__).parent
CODE = """\
#include <cstdio>
__device__ int launches;
__global__ void scale(float *y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) launches++;
    if (i < n) y[i] = __fmul_rn(y[i], a);
}
__global__ void both(float **rows, int n) {
    if (threadIdx.x < n) rows[1][threadIdx.x] += rows[0][threadIdx.x];
}
int main() {
    float host[64], *rows[2], **table;
    for (int i = 0; i < 64; i++) host[i] = i;
    for (float *&row : rows) {
        cudaMalloc(&row, sizeof host);
        cudaMemcpy(row, host, sizeof host, cudaMemcpyHostToDevice);
        scale<<<2, 32>>>(row, 1.1f, 64);
    }
    cudaMalloc(&table, sizeof rows);
    cudaMemcpy(table, rows, sizeof rows, cudaMemcpyHostToDevice);
    both<<<1, 64>>>(table, 64);
    cudaMemcpy(host, rows[1], sizeof host, cudaMemcpyDeviceToHost);
    printf("%g\\n", host[3]);
    return 0;
}
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_nvcc(), reason="nvcc (pip install 'simwarp[nvcc]') or g++ is not installed"),
]


@dataclass(frozen=True)
class Edited(Here):
    """A chip that runs PTX with an edit."""

    old: str
    new: str

    def repeat(self, launch: ProgramLaunch) -> Contents:
        text = launch.ptx.text.replace(self.old, self.new)
        return super().repeat(replace(launch, ptx=launch.ptx._replace(text=text)))


def plant(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    """Let the GPU of ``--device both`` run other PTX."""
    chip = Edited(Device(checks="off"), old, new)

    @contextmanager
    def second_device(both: Both) -> Generator[Here]:
        yield chip

    monkeypatch.setattr("simwarp.exec.program.second_device", second_device)


@pytest.fixture
def rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU of ``--device both`` multiplies with another rounding."""
    plant(monkeypatch, "mul.rn.f32", "mul.rz.f32")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "program.cu"
    path.write_text(CODE)
    return path


def test_launches_of_a_program_are_equal(source: Path, capfd: pytest.CaptureFixture[str]) -> None:
    report = execute(source, device=Both(Device(checks="off")))
    assert report.both is not None
    assert (report.both.equal, report.both.refused) == (3, {})
    assert report.clean
    done = capfd.readouterr()
    assert done.out == "6.6\n"
    assert done.err == ""


def test_a_difference_is_shown_and_the_program_goes_on(
    rounding: None, source: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["exec", "--device", "both", "--error-exitcode", "7"]
    assert main([*words, str(source)]) == 7
    done = capfd.readouterr()
    assert done.out == "6.6\n"
    lines = done.err.splitlines()
    assert lines[0] == "launch 1, scale: simwarp simulator (sm_90) and the simulator differ"
    assert lines[1].startswith("y: ")
    assert lines[1].endswith(" of 64 elements differ, the first is y[3]")
    assert "kernel scale, block (0, 0, 0), warp 0, lane 3, line " in lines[3]
    assert "program.cu:6" in lines[3]
    assert lines[4] == "the simulator calls it exact"
    assert "held against simwarp simulator (sm_90): 1 launch equal, 2 differ" in lines
    assert main([*words, "--bound", str(source)]) == 0
    assert "3 launches equal" in capfd.readouterr().err


def test_the_report_has_the_comparison(
    rounding: None, source: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["exec", "--device", "both", "--json", "--rtol", "1e-12", str(source)]) == 0
    data: dict[str, Any] = json.loads(capfd.readouterr().out)
    (found,) = data["both"]["different"]
    assert (found["launch"], found["kernel"], found["launches"]) == (1, "scale", 2)
    assert found["differences"][0]["first"] == [3]
    assert found["exactness"] == "exact"
    assert (data["both"]["equal"], data["both"]["not_compared"]) == (1, [])


SCRIPT = """\
import numpy as np
from numba import cuda

@cuda.jit
def scale(x, a):
    i = cuda.grid(1)
    x[i] = x[i] * a

x = cuda.to_device(np.arange(64, dtype=np.float32))
scale[2, 32](x, np.float32(1.1))
print(x.copy_to_host()[3])
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    if not numba_home(tmp_path / "home"):
        pytest.skip(NO_NVVM.partition("\n")[0])
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def test_each_launch_of_a_script_of_numba_is_held(script: Path) -> None:
    report = execute(HERE / "scripts" / "numba_kernels.py", device=Both(Device(checks="off")), quiet=True)
    assert report.both is not None
    assert (report.exit_code, report.both.equal, report.both.refused) == (0, report.launches, {})


def test_a_difference_in_a_script_names_the_python_line(
    script: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    plant(monkeypatch, "mul.f32", "mul.rz.f32")
    monkeypatch.setattr(
        "sys.argv", ["simwarp.numba", "--device", "both", "--error-exitcode", "7", str(script)]
    )
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(simwarp.numba.__file__), run_name="__main__")
    assert ended.value.code == 7
    done = capfd.readouterr()
    assert done.out == "3.3000002\n"
    assert "launch 1, cudapy::__main__::scale: " in done.err
    assert "3.3000001907348633 (0x40533334) on the simulator, 3.299999952316284 (0x40533333)" in done.err
    assert "(script.py:7)" in done.err
    assert "0 launches equal, 1 differs" in done.err
