"""`simwarp.run` and `simwarp run` on a GPU give the same outputs as on the simulator."""

import json
import subprocess
import sys

import numpy as np
import pytest

from simwarp.run import Out, load, run

pytestmark = pytest.mark.gpu

CODE = """
#include <stdio.h>
struct Pair { float a; double b; };
__global__ void combine(int n, float a, const float* x, float* y, Pair pair, unsigned* sums) {
    __shared__ float tile[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0;
    __syncthreads();
    if (i < n) y[i] = a * tile[threadIdx.x] + pair.a * (float)pair.b;
    if (i < n) atomicAdd(sums, (unsigned)i);
}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "combine.cu"
    path.write_text(CODE)
    return path


def arguments():
    x = np.random.default_rng(3).standard_normal(1001, dtype=np.float32)
    pair = np.zeros((), np.dtype({"names": "ab", "formats": ["f4", "f8"], "offsets": [0, 8], "itemsize": 16}))
    pair["a"], pair["b"] = 1.5, -2.25
    return {
        "n": 1001, "a": 2.5, "x": x, "y": Out(np.float32, 1001), "pair": pair.tobytes(),
        "sums": np.zeros(1, np.uint32),
    }  # fmt: skip


def test_both_devices_give_equal_outputs(file):
    from gpu import CudaDevice

    source, cuda = load(file), CudaDevice()
    here = run(source, grid=16, block=64, args=arguments())
    there = run(source, grid=16, block=64, args=arguments(), device=cuda)
    assert there.changed == here.changed == ("y", "sums")
    for name in here.outputs:
        np.testing.assert_array_equal(there.outputs[name], here.outputs[name])
    assert int(there.outputs["sums"][0]) == 1001 * 1000 // 2


def test_the_command_gives_equal_outputs_on_both_devices(file):
    np.save(file.with_name("x.npy"), arguments()["x"])
    command = [
        sys.executable, "-m", "simwarp", "run", str(file), "--grid", "16", "--block", "64", "--arg", "1001",
        "--arg", "2.5", "--arg", str(file.with_name("x.npy")), "--arg", "y=out:float32:1001",
    ]  # fmt: skip
    code = CODE.replace(", Pair pair, unsigned* sums", "").replace(" + pair.a * (float)pair.b", "")
    file.write_text(code.replace("    if (i < n) atomicAdd(sums, (unsigned)i);\n", ""))
    answers = []
    for device in ("sim", "cuda"):
        folder = file.with_name(device)
        done = subprocess.run(
            [*command, "--device", device, "--output", str(folder), "--json"], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["changed"] == ["y"]
        answers.append(np.load(folder / "y.npy"))
    np.testing.assert_array_equal(*answers)
