"""`simwarp check`: a gate for a kernel, and faults that are planted in it to see whether the gate notices."""

import json
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from simwarp.checks import KINDS
from simwarp.cli import main
from simwarp.device.device import Device
from simwarp.lab import recording as lab
from simwarp.run import Out, load
from simwarp.run.arguments import Argument
from simwarp.run.planters import PLANTERS, UNPLANTED, Planter
from simwarp.run.planting import Plant
from simwarp.run.self_check import self_check
from simwarp.run.source import from_ptx, from_text
from simwarp.run.work import Work

ADD = """
__global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}"""
REDUCE = """
__global__ void reduce(const float* x, float* y, int n) {
    __shared__ float tile[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0;
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) tile[threadIdx.x] += tile[threadIdx.x + step];
    }
    if (threadIdx.x == 0) y[blockIdx.x] = tile[0];
}"""
TRANSPOSE = """
__global__ void transpose(const float* x, float* y) {
    __shared__ float tile[16][17];
    tile[threadIdx.y][threadIdx.x] = x[threadIdx.y * 16 + threadIdx.x];
    __syncthreads();
    y[threadIdx.y * 16 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}"""
WARPS = """
__global__ void warps(const int* x, int* y) {
    int v = x[threadIdx.x];
    for (int d = 16; d; d /= 2) v += __shfl_xor_sync(0xffffffff, v, d);
    if (threadIdx.x % 32 == 0) atomicAdd(y, v / (1 + x[0]));
}"""
COPIES = """
#include <cuda_pipeline.h>
__global__ void copies(const float4* x, float4* y) {
    __shared__ float4 tile[64];
    __pipeline_memcpy_async(&tile[threadIdx.x], &x[threadIdx.x], 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    y[threadIdx.x] = tile[63 - threadIdx.x];
}"""
READ = """
__global__ void read(cudaTextureObject_t t, float* y) {
    y[threadIdx.x] = tex1Dfetch<float>(t, threadIdx.x);
}"""
ALWAYS = {"bounds", "alignment", "freed", "registers", "uninitialised", "division", "runaway", "unreachable"}
BLOCK = {"barriers", "races", "deadlock", "exits"}
X = np.arange(256, dtype=np.float32)


def work_of(text, grid, block, args, **options):
    source = from_text(text, **options)
    return Work(source, source.kernel(), grid, block, args)


def states(work, checks=None, **options):
    """The kinds of planted faults by what became of them."""
    result = self_check(work, partial(Device, **options), checks or {"exits": "raise"})
    assert not result.faults
    assert [one.kind for one in result.planted] == list(KINDS)
    found: dict[str, set[str]] = {}
    for one in result.planted:
        found.setdefault(one.state, set()).add(one.kind)
    return found


def test_each_kind_has_a_planter_or_a_reason():
    assert {*PLANTERS} | {*UNPLANTED} == {*KINDS}
    assert not {*PLANTERS} & {*UNPLANTED}


CASES = {
    "add": (ADD, (2, 1, 1), (64, 1, 1), [X, X + 1, Out("float32", 100), 100], ALWAYS | {"races"}),
    "reduce": (REDUCE, (2, 1, 1), (64, 1, 1), [X, Out("float32", 2), 100], ALWAYS | BLOCK),
    "transpose": (TRANSPOSE, (1, 1, 1), (16, 16, 1), [X, Out("float32", 256)], ALWAYS | BLOCK),
    "warps": (
        WARPS,
        (1, 1, 1),
        (64, 1, 1),
        [X.astype(np.int32), np.zeros(1, np.int32)],
        ALWAYS | {"members", "sources"},
    ),
    "copies": (COPIES, (1, 1, 1), (64, 1, 1), [X, Out("float32", 256)], ALWAYS | BLOCK | {"copies"}),
}


@pytest.mark.at_most(2)
@pytest.mark.parametrize("name", CASES)
def test_each_planted_fault_is_named(name):
    text, grid, block, args, expected = CASES[name]
    found = states(work_of(text, grid, block, args))
    named, impossible = found.pop("named"), found.pop("impossible")
    assert not found
    assert named - {"races"} == expected - {"races"}
    assert named >= expected
    assert impossible == {*KINDS} - named


@pytest.mark.slow
def test_faults_are_planted_in_a_build_without_optimisation():
    text, grid, block, args, expected = CASES["warps"]
    found = states(work_of(text, grid, block, args, options=["-G"]))
    assert found.get("named", set()) >= expected
    assert "missed" not in found


def test_faults_are_planted_in_ptx():
    text, grid, block, args, expected = CASES["reduce"]
    source = from_ptx(from_text(text).ptx)
    found = states(Work(source, source.kernel(), grid, block, args))
    assert found["named"] == expected


def test_faults_are_planted_in_ptx_with_several_instructions_in_a_line():
    text = """.version 9.0 .target sm_90 .address_size 64
    .visible .entry f(.param .u64 y) { .reg .b64 %a; .reg .b32 %r<3>; .reg .pred %p; .shared .b32 s[64];
    ld.param.u64 %a, [y]; mov.u32 %r0, %tid.x; mul.lo.u32 %r1, %r0, 4; // st.shared.b32 [%r1], 1;
    mov.u32 %r2, s; add.u32 %r1, %r1, %r2; st.shared.b32 [%r1], %r0; bar.sync 0;
    bar.sync 0; setp.lt.u32 %p, %r0, 9;
    @%p ld.shared.b32 %r2, [s+252]; @%p st.global.b32 [%a], %r2; @!%p ld.shared.b32 %r2, [%r1]; ret; }"""
    source = from_ptx(text)
    work = Work(source, source.kernel(), (1, 1, 1), (64, 1, 1), [Out("uint32", 1)])
    found = states(work)
    assert found["named"] >= (ALWAYS | BLOCK) - {"unreachable"}
    assert found.keys() == {"named", "impossible"}


def test_a_texture_gets_a_wrong_handle():
    from simwarp.run import Texture

    work = work_of(READ, (1, 1, 1), (32, 1, 1), [Texture(X[:32], linear=True), Out("float32", 32)])
    assert "textures" in states(work)["named"]


def test_inputs_and_outputs_stay_as_they_are():
    text, grid, block, _, _ = CASES["reduce"]
    x, y = X.copy(), np.full(2, 7, np.float32)
    states(work_of(text, grid, block, [x, y, 100]))
    assert (x == X).all()
    assert (y == 7).all()


def test_a_kernel_with_faults_has_them_named_and_nothing_planted():
    text, grid, block, _, _ = CASES["reduce"]
    result = self_check(work_of(text, grid, block, [X[:50], Out("float32", 2), 100]), Device)
    assert [fault.check for fault in result.faults] == ["bounds"]
    assert result.planted == ()
    assert not result.passed


def test_kinds_that_are_off_are_not_planted():
    text, grid, block, args, _ = CASES["reduce"]
    found = states(work_of(text, grid, block, args), {"races": "off", "bounds": "report"})
    assert found["off"] == {"races", "exits"}
    assert "bounds" in found["named"]


def test_a_fault_that_is_not_named_fails_the_check(monkeypatch):
    def nothing(code):
        for at in code.ran(lambda at: at.parts[0] == "st"):
            yield Plant(at, "nothing is changed", at.text())

    def harmless(code):
        yield from (replace(plant, sure=False) for plant in nothing(code))

    text, grid, block, args, _ = CASES["add"]
    work = work_of(text, grid, block, args)
    monkeypatch.setitem(PLANTERS, "bounds", Planter("store", nothing))
    monkeypatch.setitem(PLANTERS, "alignment", Planter("store", harmless))
    result = self_check(work, Device)
    found = {one.kind: one.state for one in result.planted}
    assert (found["bounds"], found["alignment"]) == ("missed", "harmless")
    assert not result.passed


def test_a_fault_found_as_another_kind_says_so(monkeypatch):
    monkeypatch.setitem(PLANTERS, "members", PLANTERS["bounds"])
    text, grid, block, args, _ = CASES["add"]
    found = states(work_of(text, grid, block, args))
    assert found["found"] == {"members"}


# ---- the command ------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with kernels and x.npy."""
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "reduce": REDUCE,
        "nothing": "__global__ void nothing() {}",
        "last": "__global__ void last(int* x) { if (threadIdx.x == 0) atomicExch(x, blockIdx.x); }",
        "sum": "__global__ void sum(const float* x, float* y) {"
        " float s; for (int i = 0; i < 4; i++) s += x[i]; y[threadIdx.x] = s; }",
    }.items():
        (tmp_path / f"{name}.cu").write_text(text)
    np.save("x.npy", X[:100])
    return tmp_path


def command(*options, blocks=2):
    args = ("x.npy", f"out:float32:{blocks}", "n=100")
    launch = ["check", "reduce.cu", "--grid", str(blocks), "--block", "64"]
    return [*launch, *(word for arg in args for word in ("--arg", arg)), *options]


@pytest.mark.usefixtures("folder")
def test_a_clean_kernel_passes_the_gate(capsys):
    assert main(command()) == 0
    printed = capsys.readouterr()
    assert "no result differs" in printed.out
    assert "random, seed 2" in printed.out
    assert list(load("reduce.cu").kernels) == ["reduce"]


def test_the_gate_writes_no_files(folder):
    before = {*folder.iterdir()}
    assert main(command("--schedules", "1")) == 0
    assert {*folder.iterdir()} == before


@pytest.mark.at_most(1)
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (command(blocks=3), "out of bounds"),
        (["check", "last.cu", "--grid", "2", "--block", "32", "--arg", "x=zeros:int32:1"], "depends on"),
        (
            ["check", "sum.cu", "--grid", "1", "--block", "32", "--arg", "x.npy", "--arg", "out:float32:32"],
            "s is read before it is written",
        ),
    ],
)
def test_the_gate_refuses_what_has_a_finding(words, text, capsys):
    if "reduce.cu" in words:
        words = [word.replace("n=100", "n=150") for word in words]
    assert main(words) == 1
    printed = capsys.readouterr()
    assert text in printed.out + printed.err


@pytest.mark.usefixtures("folder")
def test_the_table_names_planted_faults_and_lines(capsys):
    assert main(command("--self-check")) == 0
    printed = capsys.readouterr()
    rows = {line.split()[0]: line for line in printed.out.splitlines()[1:]}
    assert [*rows] == [*KINDS]
    assert "the barrier is left out" in rows["races"]
    assert "reduce.cu:7" in rows["races"]
    assert "race: read of tile[" in rows["races"]
    assert "this launch executes no asynchronous copy" in rows["copies"]
    assert "name it with --checks" in rows["exits"]
    assert printed.err.splitlines()[-1] == "reduce: faults of 11 kinds planted, 11 named"


@pytest.mark.usefixtures("folder")
def test_planted_faults_are_described_as_json(capsys):
    assert main(command("--self-check", "--json", "--checks", "exits=raise")) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["kernel"], report["passed"], report["faults"]) == ("reduce", True, [])
    rows = {one["kind"]: one for one in report["planted"]}
    assert rows["exits"]["state"] == "named"
    assert (rows["barriers"]["file"], rows["barriers"]["line"]) == ("reduce.cu", 7)


@pytest.mark.usefixtures("folder")
def test_a_self_check_of_a_faulty_kernel_says_so_first(capsys):
    words = [word.replace("n=100", "n=150") for word in command("--self-check", blocks=3)]
    assert main(words) == 1
    printed = capsys.readouterr()
    assert "reduce.cu:5: out of bounds" in printed.err
    assert printed.err.endswith(
        "reduce has 1 finding of its own\n"
        "faults are planted in a kernel without findings only\ncorrect it first\n"
    )
    assert printed.out == ""


@pytest.mark.usefixtures("folder")
def test_a_kernel_without_a_place_for_faults_says_which_and_why(capsys):
    assert main(["check", "nothing.cu", "--grid", "1", "--block", "1", "--self-check"]) == 1
    printed = capsys.readouterr()
    assert "this launch executes no access of global or shared memory" in printed.out
    assert printed.err == "nothing: no fault can be planted in this launch, so that no check was checked\n"


# ---- pipelines --------------------------------------------------------------------------------------------


class _CalledError(Exception):
    """The host code of an example has called its kernel."""


class _Host:
    """A device on which an example's host code prepares a launch that does not happen."""

    def __init__(self, device):
        self.device, self.text, self.call, self.kept = device, "", None, []

    def __getattr__(self, name):
        return getattr(self.device, name)

    def upload(self, *args):
        self.kept.append(self.device.upload(*args))
        return self.kept[-1]

    def load(self, text):
        self.text = text
        return self

    def kernel(self, name):
        def launch(*args, **options):
            self.call = name, *args[:2], args[2:], options
            raise _CalledError

        return launch


def prepared(example, device):
    """The launch of an example's first problem."""
    host = _Host(device)
    with pytest.raises(_CalledError):
        example.run(host, example.shapes[0], 0)
    return host


@dataclass(frozen=True)
class ExampleWork(Work):
    """A launch whose arguments an example's host code makes."""

    example: Any = None

    def prepare(self, device):
        host = prepared(self.example, device)
        device.kept = host.kept
        return [Argument(i, "", value) for i, value in enumerate(host.call[3])]


@pytest.mark.at_most(1)
@pytest.mark.gate
@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("gemm_cp_async", {"copies", "races"}),
        ("gemm_wgmma_f16", {"products", "proxies", "copies", "races", "barriers", "deadlock"}),
    ],
)
def test_faults_planted_in_pipelines_are_named(name, kinds):
    example = lab.example("pipelines", name).EXAMPLE
    host = prepared(example, Device(cc=example.arch))
    kernel, grid, block, _, options = host.call
    source = from_ptx(getattr(host.text, "text", host.text))
    threads = (block, 1, 1) if isinstance(block, int) else block
    blocks = (grid, 1, 1) if isinstance(grid, int) else grid
    work = ExampleWork(source, source.kernel(kernel), blocks, threads, example=example, **options)
    found = states(work, cc=example.arch)
    assert found["named"] >= kinds
    assert "missed" not in found
