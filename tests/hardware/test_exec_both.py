"""Whole programs, each launch held against a GPU, whose memory lies at the program's own addresses."""

from pathlib import Path

import pytest

from simwarp.exec import execute
from simwarp.run import Both
from simwarp.run.nvcc import has_nvcc

PROGRAMS = Path(__file__).parents[1] / "exec" / "programs"
CODE = """\
#include <cstdio>
__device__ int launches = 5;
__constant__ float factor;
__global__ void scale(float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) launches++;
    if (i < n) y[i] = y[i] * factor;
}
struct Rows { float *first, *second; };
__global__ void both(Rows rows, float **table, int n) {
    if (threadIdx.x < n) rows.second[threadIdx.x] += table[0][threadIdx.x] + rows.first[threadIdx.x];
}
int main() {
    float host[64], *rows[2], **table, a = 1.1f;
    cudaMemcpyToSymbol(factor, &a, sizeof a);
    for (int i = 0; i < 64; i++) host[i] = i;
    for (float *&row : rows) {
        cudaMalloc(&row, sizeof host);
        cudaMemcpy(row, host, sizeof host, cudaMemcpyHostToDevice);
        scale<<<1, 64>>>(row, 64);
        scale<<<1, 32>>>(row + 32, 32);
    }
    cudaMalloc(&table, sizeof rows);
    cudaMemcpy(table, rows, sizeof rows, cudaMemcpyHostToDevice);
    both<<<1, 64>>>({rows[0], rows[1]}, table, 64);
    cudaMemcpy(host, rows[1], sizeof host, cudaMemcpyDeviceToHost);
    int count;
    cudaMemcpyFromSymbol(&count, launches, sizeof count);
    printf("%d %g\\n", count, host[3]);
    return 0;
}
"""

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_nvcc(), reason="nvcc (pip install 'simwarp[nvcc]') or g++ is not installed"),
]


def test_pointers_and_variables_keep_their_meaning(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "program.cu"
    source.write_text(CODE)
    report = execute(source, device="both")
    assert report.both is not None
    assert (report.both.equal, report.both.refused) == (5, {}), str(report.both)
    assert report.clean
    assert capfd.readouterr().out == "9 9.9\n"


@pytest.mark.parametrize(("name", "arguments"), [("reduction", ["--size", "1000"]), ("cooperative", [])])
def test_programs_agree_with_the_gpu(name: str, arguments: list[str]) -> None:
    report = execute(PROGRAMS / f"{name}.cu", arguments, device=Both(bound=True), quiet=True)
    assert report.both is not None
    assert report.both.counts.total() == 0, "\n".join(map(str, report.both.different.values()))
    assert report.both.equal > 0, str(report.both)
