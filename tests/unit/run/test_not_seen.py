"""What a run without findings did not look at: said where it is true, and not said otherwise."""

import json

import numpy as np
import pytest

from simwarp.cli import main
from simwarp.faults import KernelFault
from simwarp.run import Out, load, run
from simwarp.run.not_seen import _declared

SUM = """
__global__ void f(const float* x, float* y) {{
    {declared};
    for (int i = 0; i < 4; i++) s += x[4 * threadIdx.x + i];
    y[threadIdx.x] = s;
}}"""
X = np.arange(128, dtype=np.float32)


def kinds(source, *args, block=32, **options):
    """The kinds of what a clean run did not look at."""
    result = run(source, grid=1, block=block, args=args, **options)
    assert not result.faults
    return [one.kind for one in result.not_seen]


def test_a_variable_without_a_value_that_the_optimiser_removed_is_named():
    result = run(SUM.format(declared="float s"), grid=1, block=32, args=[X, Out("float32", 32)])
    assert np.isnan(result.outputs[1]).all()
    assert [str(one).partition(";")[0] for one in result.not_seen] == [
        "source.cu:4: s is read before it is written"
    ]
    assert kinds(SUM.format(declared="float s = 0"), X, Out("float32", 32)) == []


@pytest.mark.at_most(2)
@pytest.mark.parametrize(
    "body",
    [
        "int v; if (t < 4) v = 1; if (t < 4) y[t] = v; else y[t] = 2;",
        "int v[4]; for (int i = 0; i < 4; i++) v[i] = i + t; y[t] = v[t % 4];",
        "struct { int a, b; } p; p.a = t; auto q = p; y[t] = q.a;",
        "int i; for (i = 0; i < t; i++) {} y[t] = i;",
    ],
)
def test_a_variable_that_gets_its_value_later_is_not_named(body):
    assert kinds(f"__global__ void f(int* y) {{ int t = threadIdx.x; {body} }}", Out("int32", 32)) == []


@pytest.mark.at_most(2)
@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("__shared__ int s; s = t;", ["optimised"]),
        ("__shared__ int s[32]; for (int i = 0; i < 9; i++) s[i] = t;", ["optimised"]),
        ("__shared__ unsigned char s[8]; ((int*)s)[0] = t;", ["optimised"]),
        ("__shared__ int s; if (t == 0) s = y[0]; __syncthreads(); y[t] = s;", []),
        ("/* __shared__ int s; */ y[t] = t;", []),
        ("struct { int x, y; } v; int n = 64; memset(&v, 0, n); y[t] = v.x;", ["optimised"]),
        ("struct { int x, y; } v; int n = t % 2 + 7; memset(&v, 0, n); y[t] = 0;", []),
    ],
)
def test_what_the_optimiser_removed_is_named(body, named):
    source = f"__global__ void f(int* y) {{ int t = threadIdx.x; {body} }}"
    assert kinds(source, np.zeros(32, np.int32)) == named


@pytest.mark.parametrize(
    ("condition", "named"), [("t % 2", ["exits"]), ("t > 7", ["exits"]), ("t < 32", []), ("y[t] == 0", [])]
)
def test_threads_that_return_ahead_of_a_barrier_are_named(condition, named):
    body = f"int t = threadIdx.x; if ({condition}) {{ int v = y[t]; __syncthreads(); y[t] = v + 1; }}"
    assert kinds(f"__global__ void f(int* y) {{ {body} }}", np.zeros(32, np.int32)) == named


def test_a_build_without_optimisation_is_not_built_again():
    source = "__global__ void f(int* y) { int v; y[threadIdx.x] = threadIdx.x; }"
    debug = run(source, grid=1, block=32, args=[Out("int32", 32)], options=["-G"])
    assert debug.not_seen == ()
    with pytest.raises(KernelFault):
        run(SUM.format(declared="float s"), grid=1, block=32, args=[X, Out("float32", 32)], options=["-G"])


def test_declarations_without_a_value_are_found():
    text = """
    #include "a.h"
    __constant__ float c[4];
    struct P { int a; float b = 1; };
    template <class T> __device__ T twice(T x, int n) { T y; y = x; return y; }
    __global__ void f(const int* x, float* __restrict__ y) {
        extern __shared__ int dynamic[];
        __shared__ float tile[32];
        float s, t = 0, v[4]; // float no;
        int *p; unsigned long long big; std::pair<int, int> q;
        const int n = x[0];
        for (int i = 0; i < n; i++) { s += i; goto end; }
        end: return;
    }"""
    assert _declared(text) == ("a", "y", "s", "v", "p", "big", "q")


ALIAS = "__global__ void f(float* {restrict} x, float* y) {{ x[threadIdx.x] += 1; y[threadIdx.x] += 2; }}"


def test_overlapping_arguments_are_said():
    restricted, plain = (ALIAS.format(restricted=word, restrict=word) for word in ("__restrict__", ""))
    x = np.arange(64, dtype=np.float32)
    assert kinds(restricted, x, x) == ["aliases"]
    assert kinds(plain, x, x) == kinds(restricted, x, x.copy()) == []
    assert kinds(plain, x[:32], x[16:]) == ["aliases"]
    assert kinds(plain, x[:32], x[32:]) == []


def test_an_input_of_equal_elements_is_said():
    copy = "__global__ void f(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }"
    out = Out("float32", 32)
    assert kinds(copy, np.ones(32, np.float32), out) == ["equal bits"]
    assert kinds(copy, np.arange(32, dtype=np.float32), out) == []
    assert kinds("__global__ void f(float* y) { y[threadIdx.x] += 1; }", np.zeros(32, np.float32)) == []


def test_a_bound_that_is_the_number_of_threads_is_said():
    fill = "__global__ void f(int* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = n; }"
    assert kinds(fill, Out("int32", 32), 32) == ["tail"]
    assert kinds(fill, Out("int32", 31), 31) == []
    assert kinds("__global__ void f(int* y, int n) { y[threadIdx.x] = n; }", Out("int32", 32), 32) == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y[atomicAdd(x, 1)] = 1;", ["order"]),
        ("atomicAdd((float*)x, 0.1f); y[threadIdx.x] = 1;", ["order"]),
        ("atomicAdd(x, 1); y[threadIdx.x] = 1;", []),
    ],
)
def test_a_result_that_depends_on_the_order_of_threads_is_said(body, expected):
    source = f"__global__ void f(int* x, int* y) {{ {body} }}"
    args = np.zeros(1, np.int32), Out("int32", 32)
    assert kinds(source, *args) == expected
    assert kinds(source, *args, schedule="stack") == []


def test_a_launch_with_findings_says_nothing_else():
    source = "__global__ void f(int* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = n; }"
    result = run(source, grid=1, block=32, args=[Out("int32", 31), 32], checks="report")
    assert result.faults
    assert result.not_seen == ()


def test_the_command_ends_with_one_line_of_what_it_did_not_look_at(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sum.cu").write_text(SUM.format(declared="float s"))
    np.save("x.npy", np.ones(128, np.float32))
    command = ["run", "sum.cu", "--grid", "1", "--block", "32", "--arg", "x.npy", "--arg", "out:float32:32"]
    assert main(command) == 0
    *_, summary, last = capsys.readouterr().err.splitlines()
    assert last.startswith("not looked at: sum.cu:4: s is read before it is written")
    assert "same bits" not in summary
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["not_seen"]
    assert [one["kind"] for one in found] == ["optimised", "equal bits"]


def test_ptx_has_no_build_without_optimisation(tmp_path):
    assert load(_written(tmp_path / "f.cu", "__global__ void f() {}")).unoptimised is not None
    ptx = ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry f() { ret; }"
    assert load(_written(tmp_path / "f.ptx", ptx)).unoptimised is None


def _written(path, text):
    path.write_text(text)
    return path
