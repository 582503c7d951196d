"""`gpu.compile`: CUDA C++ to PTX, and its errors."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpu
import gpu.compile as compiler
import gpu.compiler.apart
import gpu.compiler.cache
import reference
import simwarp
from gpu.bmm.packing import packing_ptx
from gpu.bmm.schemes import SCHEMES, product_ptx
from gpu.compile import CompileError, Ptx, compile, normalise
from reference.errors import MissingExtraError, SchemeError
from support.compiled_answers import ANSWER, answer

ROOT = Path(__file__).resolve().parents[3]


# What is compiled


def test_ptx_carries_name_architecture_and_compiler():
    ptx = answer(arch=(8, 0))
    assert (ptx.name, ptx.arch, ptx.compiler) == ("answer.cu -DANSWER=42", (8, 0), "NVRTC 13.0")
    assert ".target sm_80" in ptx.text
    assert '.file\t1 "answer.cu"' in ptx.text
    assert not any(line.startswith("//") for line in ptx.text.splitlines())


def test_a_define_may_have_no_value():
    source = "#ifdef YES\n" + ANSWER.replace("ANSWER", "1") + "#endif\n"
    ptx = compile(source, "answer.cu", {"YES": ""})
    assert ptx.name == "answer.cu -DYES"
    assert ".entry answer" in ptx.text
    assert ".entry answer" not in compile(source, "answer.cu").text


@pytest.mark.parametrize("arch", [(7, 5), (8, 0), (9, 0)])
def test_architectures_compile_and_run(ptx_cache, arch):
    device = simwarp.Device(cc=arch)
    kernel = device.load(answer(arch=arch).text).kernel("answer")
    x = device.upload(np.zeros(32, np.int32))
    kernel((1, 1, 1), (32, 1, 1), x)
    np.testing.assert_array_equal(x.download(), 42 * np.arange(32))


@pytest.mark.at_most(1)
@pytest.mark.gate
@pytest.mark.parametrize("arch", [(7, 5), (8, 0), (9, 0)])
def test_product_kernels_run_for_every_architecture(arch):
    a, b = np.random.default_rng(0).standard_normal((2, 37, 37))
    dots, device = reference.bmm(a, b), simwarp.Device(cc=arch)
    for name, scheme in SCHEMES.items():
        np.testing.assert_array_equal(gpu.bmm(a, b, scheme=name, device=device), dots)
        packed = gpu.bmm(a, b, scheme=name, thresholds=np.arange(37), device=device)
        expected = reference.threshold(dots, np.arange(37), word=scheme.word)
        np.testing.assert_array_equal(packed.words, expected.words)
        assert f".target sm_{arch[0]}{arch[1]}" in product_ptx(scheme, "bits", "msb", arch).text


def test_every_kernel_compiles_to_different_ptx():
    formats = list(itertools.product((32, 64), ("msb", "lsb")))
    products = [
        product_ptx(scheme, output, first, (9, 0))
        for scheme in SCHEMES.values()
        for output in ("int", "bits")
        for first in ("msb", "lsb")
    ]
    packings = [packing_ptx(dtype, *one, (9, 0)) for dtype in ("float16", "int8") for one in formats]
    names = [ptx.name for ptx in (*products, *packings)]
    assert len(set(names)) == len(names)
    for ptx in products:
        scheme, bits = SCHEMES[ptx.name.split("SCHEME=")[1].split()[0]], "OUTPUT_BITS" in ptx.name
        assert ptx.text.count(".entry") == 1
        assert f".entry {scheme.name}(" in ptx.text
        assert ptx.text.count(".param .") == 6 + 2 * bits
        assert f"-DWORD_{scheme.word} -DROWS={scheme.rows}" in ptx.name
    assert len({ptx.sha256 for ptx in packings}) == len(packings)
    # The bit order affects packed output only, not products with int32 output.
    assert len({ptx.sha256 for ptx in products}) == 3 * len(SCHEMES)
    for ptx in packings:
        for kernel in ("pack_column", "pack_row", "pack_column_vector", "pack_row_vector"):
            assert f".entry {kernel}(" in ptx.text


def test_headers_of_cuda_are_found():
    source = "#include <cuda/std/cstdint>\n" + ANSWER.replace("int*", "cuda::std::int32_t*")
    assert ".entry answer" in compile(source, "answer.cu", {"ANSWER": 1}).text


def test_multiply_and_add_are_not_fused():
    source = (
        'extern "C" __global__ void f(float* x) { x[0] = x[1] * x[2] + x[3]; x[4] = fmaf(x[1], x[2], x[3]); }'
    )
    text = compile(source, "f.cu").text
    assert text.count("fma.rn.f32") == 1
    assert "mul.f32" in text or "mul.rn.f32" in text


SLICES = "mttkrp/b_csf.cu", {"SCALAR": "float", "VEC": 4, "LANES": 8, "ORDER": 3, "ALIGNED": ""}
"""A kernel that NVRTC optimizes less if the process has compiled for a debugger before."""


@pytest.mark.at_most(2)
@pytest.mark.parametrize("option", ["-G", "--device-debug", "-Ofc=max", "--Ofast-compile=max"])
def test_options_have_no_effect_on_later_compilations(ptx_cache, option):
    path, defines = SLICES
    source = (ROOT / "gpu" / path).read_text()
    before = compile(source, path, defines)
    debugged = compile(source, path, defines, options=[option])
    assert debugged.text != before.text
    gpu.compiler.cache.clear()
    assert compile(source, path, defines).text == before.text


def test_errors_of_another_process_are_those_of_this_one(ptx_cache):
    raised = []
    for options in ([], ["-G"]):
        with pytest.raises(CompileError) as error:
            compile("int x = ;", "bad.cu", options=options)
        raised.append((str(error.value), error.value.log))
    assert raised[0] == raised[1]
    assert "expected an expression" in raised[0][1]


def test_a_compiler_that_ends_without_an_answer_is_an_error():
    with pytest.raises(CompileError, match=r"f\.cu: the compiler's process ended \(3\)"):
        gpu.compiler.apart.call_apart("f.cu", sys.exit, 3)


# Errors


def test_a_compile_error_shows_the_log_and_names_the_line():
    with pytest.raises(CompileError) as caught:
        compile(ANSWER.replace(";", ""), "answer.cu", {"ANSWER": 1})
    message, log = str(caught.value), caught.value.log
    assert message.startswith("answer.cu does not compile:\n")
    assert "answer.cu(4): error:" in log
    assert log in message
    assert message.splitlines()[-1].startswith("correct")
    assert "\0" not in message


def test_an_error_in_a_header_names_the_header(monkeypatch, tmp_path, ptx_cache):
    monkeypatch.setattr(compiler, "_PACKAGE", tmp_path)
    (tmp_path / "bad.cuh").write_text("\n\nint x = ;\n")
    with pytest.raises(CompileError, match=r"bad\.cuh\(3\): error"):
        compile('#include "bad.cuh"\n', "answer.cu")


def test_a_missing_header_is_reported():
    with pytest.raises(CompileError, match=r"answer\.cu\(1\).*nowhere\.cuh"):
        compile('#include "nowhere.cuh"\n', "answer.cu")


@pytest.mark.parametrize("arch", [(1, 0), (99, 9)])
def test_an_unknown_architecture_is_refused(arch):
    with pytest.raises(SchemeError, match=rf"compute capability {arch[0]}\.{arch[1]}\nit does for"):
        answer(arch=arch)


@pytest.mark.parametrize("missing", ["cuda", "cuda.bindings"])
def test_without_nvrtc_the_extra_is_named(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    if missing == "cuda":
        monkeypatch.delitem(sys.modules, "cuda.bindings", raising=False)
        monkeypatch.delitem(sys.modules, "cuda.bindings.nvrtc", raising=False)
    compiler._nvrtc.cache_clear()
    compiler.compiler_version.cache_clear()
    try:
        with pytest.raises(MissingExtraError) as caught:
            answer()
        assert "NVRTC 13.0" in str(caught.value)
        assert str(caught.value).splitlines()[-1] == "pip install 'simwarp[compile]'"
        assert isinstance(caught.value, ImportError)
    finally:
        compiler._nvrtc.cache_clear()
        compiler.compiler_version.cache_clear()


def test_without_the_library_the_extra_is_named(monkeypatch):
    from cuda.bindings import nvrtc

    def absent():
        raise RuntimeError("Failed to dlopen libnvrtc.so.13")

    monkeypatch.setattr(nvrtc, "nvrtcVersion", absent)
    compiler._nvrtc.cache_clear()
    try:
        with pytest.raises(
            MissingExtraError, match=r"dlopen libnvrtc[\s\S]*pip install 'simwarp\[compile\]'"
        ):
            answer()
    finally:
        compiler._nvrtc.cache_clear()


# The same text everywhere


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("bmm/bmm.cu", "bmm/bmm.cu"),
        ("/home/me/project/bmm/bmm.cu", "bmm/bmm.cu"),
        (r"C:\\Users\\me\\project\\bmm\\bmm.cu", "bmm/bmm.cu"),
        ("/home/me/.venv/lib/python3.11/site-packages/nvidia/cu13/include/mma.h", "include/mma.h"),
        ("/usr/local/cuda-13.0/targets/x86_64-linux/include/crt/mma.hpp", "include/crt/mma.hpp"),
        ("/usr/local/cuda/include/cccl/cuda/std/cstdint", "include/cccl/cuda/std/cstdint"),
        (r"C:\\Program Files\\NVIDIA\\include\\mma.h", "include/mma.h"),
        (r"C:\Program Files\NVIDIA\include\mma.h", "include/mma.h"),
        ("/home/me/somewhere/else.cuh", "else.cuh"),
        ("/home/me/notbmm/xbmm.cu", "xbmm.cu"),
    ],
)
def test_paths_are_relative(path, expected):
    text = f'// Compiler Build ID: CL-1\n.version 9.0\n\t.file\t7 "{path}", 1700000000, 999\n'
    names = ["bmm/bmm.cu"]
    assert normalise(text, names) == f'.version 9.0\n\t.file\t7 "{expected}"\n'
    assert normalise(normalise(text, names), names) == normalise(text, names)


def test_crlf_line_ends_give_the_same_ptx():
    assert normalise("\n\n.version 9.0  \r\n\tret;\r\n\n") == ".version 9.0\n\tret;\n"


@pytest.mark.slow
def test_compiled_ptx_contains_no_absolute_path():
    source = "#include <cuda/std/bit>\n" + ANSWER.replace("ANSWER *", "cuda::std::popcount(threadIdx.x) *")
    texts = [
        compile(source, "answer.cu").text,
        product_ptx(SCHEMES["bmm64"], "bits", "lsb", (9, 0)).text,
        packing_ptx("float16", 64, "lsb", (9, 0)).text,
    ]
    for text in texts:
        paths = [line.split('"')[1] for line in text.splitlines() if line.strip().startswith(".file")]
        assert paths
        assert not any(path.startswith("/") or ":" in path or "\\" in path for path in paths)
    assert any("include/" in line for line in texts[0].splitlines() if ".file" in line)


@pytest.mark.slow
def test_ptx_does_not_depend_on_working_directory_or_cache(tmp_path):
    program = (
        "from gpu.bmm.schemes import SCHEMES, product_ptx; from gpu.bmm.packing import packing_ptx;"
        "print(product_ptx(SCHEMES['bmm32'], 'bits', 'msb', (9, 0)).sha256,"
        "packing_ptx('float64', 32, 'msb', (8, 0)).sha256)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SIMWARP_CACHE": str(tmp_path / "other")}
    printed = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    here = [
        product_ptx(SCHEMES["bmm32"], "bits", "msb", (9, 0)),
        packing_ptx("float64", 32, "msb", (8, 0)),
    ]
    assert printed.stdout.split() == [ptx.sha256 for ptx in here]


def test_the_digest_is_the_hash_of_the_text():
    assert Ptx("abc", "", (9, 0), "").sha256.startswith("ba7816bf8f01cfea")
