"""Labelled suites of strangers: planted kernels, written as GPUVerify's and ScoR's are."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

MODULES = ("strangers", "labels", "gpuverify", "scor", "hirace", "cases", "problems", "sources")
RACE = "__shared__ int s[64]; s[threadIdx.x] = x[threadIdx.x]; x[threadIdx.x] = s[63 - threadIdx.x];"
ITS_OWN = "x[64 * blockIdx.y + threadIdx.x]"
RIGHT = "__requires(n == 40); for (int i = 0; __invariant(i < n), i < 2; ++i) OWN += n;".replace(
    "OWN", ITS_OWN
)
SKIPPED = "if (threadIdx.x % 2 == 0) { OWN = 1; __syncthreads(); }".replace("OWN", ITS_OWN)
SCOR = """#include <stdio.h>
#define NBLOCKS 2
#define TPERBLK 1
void errCheck()
{
    printf("%d", cudaGetLastError());
}
__global__ void kmain(volatile unsigned *data) { BODY }
int main() { kmain<<<NBLOCKS, TPERBLK>>>(nullptr); }
"""


@pytest.fixture(scope="module")
def modules():
    """The modules of the script by their names; other folders have a module ``common``, too."""
    names = ["common", *(f"stranger_{name}" if name != "strangers" else name for name in MODULES)]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path("benchmarks").absolute()))
        for name in names:
            patch.delitem(sys.modules, name, raising=False)
        yield {name.removeprefix("stranger_"): importlib.import_module(name) for name in names}
        for name in names:
            sys.modules.pop(name, None)


@pytest.fixture
def judged(modules):
    """Judge a kernel in the form of GPUVerify's tests."""

    def judge(label, body, name="planted", after=""):
        head = f"//{label}\n//--blockDim=64 --gridDim=[1,2] -DN=4 --no-inline\n"
        text = f"{head}#include <cuda.h>\n__global__ void foo(int* x, int n) {{ {body} }}\n{after}"
        return modules["labels"].judge(modules["gpuverify"].case_of(name, text))

    return judge


@pytest.mark.at_most(4)
@pytest.mark.parametrize(
    ("label", "body", "how", "good"),
    [
        ("xfail:NOT_ALL_VERIFIED", RACE, "default", True),
        ("XFAIL:NOT_ALL_VERIFIED", "__assert(N != 4);", "default", True),
        ("xfail:NOT_ALL_VERIFIED", SKIPPED, "exits", True),
        ("xfail:NOT_ALL_VERIFIED", "__shared__ int s; s = threadIdx.x;", "-G", True),
        ("xfail:NOT_ALL_VERIFIED", f"{ITS_OWN} = n;", "", False),
        ("pass", RIGHT, "", True),
        ("pass", RACE, "default", False),
        ("pass", "__requires(n == 40); __requires(n == 41);", "default", False),
    ],
)  # fmt: skip
def test_a_kernel_is_judged_by_its_label(judged, label, body, how, good):
    result = judged(label, body)
    assert (result.how, result.good, result.error) == (how, good, "")
    assert ("OPEN" in result.to_text()) is not good


def test_the_table_says_what_is_no_fault_and_what_is_true(modules, judged, monkeypatch):
    table, ours = modules["gpuverify"].TABLE, modules["gpuverify"].Ours
    monkeypatch.setitem(table, "planted", ours(reason="so it is"))
    assert judged("xfail", f"{ITS_OWN} = n;").good
    assert judged("pass", RACE).good
    assert not judged("xfail", RACE).good
    monkeypatch.setitem(table, "planted", ours(unused="no"))
    assert judged("xfail", "x = y;").to_json()["reason"] == "no"


def test_arguments_of_ours_reach_the_kernel(modules, judged, monkeypatch):
    text = "__device__ int f(int i) { return i; }\n__constant__ int c[2] = {1, 2};\n"
    ours = modules["gpuverify"].Ours({"n": 7}, variables={"c": np.array([7, 8], "i4")})
    monkeypatch.setitem(modules["gpuverify"].TABLE, "planted", ours)
    assert judged("pass", "__assert(n == 7);", after=text).good
    assert judged("pass", "x = y;").error


def test_the_script_judges_a_folder_and_writes_rows(modules, monkeypatch, tmp_path, capsys):
    source, path = tmp_path / "ScoR" / "microbenchmarks" / "src", tmp_path / "scor.json"
    source.mkdir(parents=True)
    script = modules["strangers"]
    monkeypatch.setattr(sys, "argv", [script.__file__])
    arguments = ["--suite", "scor", "--artifact", str(tmp_path), "--json", str(path)]
    with pytest.raises(modules["sources"].StrangerError, match="holds 0 of"):
        script.main(arguments=arguments)
    monkeypatch.setattr(modules["scor"], "KERNELS", 2)
    (source / "race_plain.cu").write_text(SCOR.replace("BODY", "atomicAdd_block((unsigned *)data, 1);"))
    (source / "norace_own.cu").write_text(SCOR.replace("BODY", "atomicAdd((unsigned *)data, 1);"))
    assert script.main(arguments=arguments) == 0
    assert "race_plain: faulty, default" in capsys.readouterr().out
    rows = {row["case"]: (row["ours"], row["target"]) for row in json.loads(path.read_text())["rows"]}
    assert rows == dict.fromkeys(
        ["strangers/scor/faulty", "strangers/scor/right", "strangers/scor without volatile/faulty"], (1, 1)
    )


@pytest.mark.parametrize("suite", ["gpuverify", "scor"])
def test_the_stored_results_have_nothing_open(suite):
    rows = json.loads(Path(f"benchmarks/results/cpu/{suite}.json").read_text())["rows"]
    assert all(row["ours"] == row["target"] and len(row["params"]["commit"]) == 40 for row in rows)
    kernels = [kernel for row in rows for kernel in row["params"]["kernels"]]
    assert len(kernels) == {"gpuverify": 183, "scor": 32 + 18}[suite]
