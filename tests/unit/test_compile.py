"""`gpu.compile`: CUDA C++ to PTX, its cache, and what it says when there is no PTX."""

import importlib.resources
import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpu
import gpu.compile as compiler
import reference
import simwarp
from gpu.bmm.packing import packing_ptx
from gpu.bmm.schemes import SCHEMES, product_ptx
from gpu.cache import cache_folder
from gpu.compile import CompileError, Ptx, compile, compile_file, normalise
from reference.errors import MissingExtraError

ANSWER = """
extern "C" __global__ void answer(int* x) {
    x[threadIdx.x] = ANSWER * (int)threadIdx.x;
}
"""
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of this test's own."""
    monkeypatch.setenv("SIMWARP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ptx"


@pytest.fixture
def runs(cache, monkeypatch):
    """The compilations that really took place, as (source, name, headers, options)."""
    seen = []
    run = compiler._run

    def counted(nvrtc, *args):
        seen.append(args)
        return run(nvrtc, *args)

    monkeypatch.setattr(compiler, "_run", counted)
    return seen


def answer(value=42, **changes):
    return compile(**{"source": ANSWER, "name": "answer.cu", "defines": {"ANSWER": value}, **changes})


# What is compiled


def test_what_ptx_says_of_itself():
    ptx = answer(arch=(8, 0))
    assert (ptx.name, ptx.arch, ptx.compiler) == ("answer.cu -DANSWER=42", (8, 0), "NVRTC 13.0")
    assert ".target sm_80" in ptx.text
    assert '.file\t1 "answer.cu"' in ptx.text
    assert not any(line.startswith("//") for line in ptx.text.splitlines())


def test_a_define_without_a_value():
    source = "#ifdef YES\n" + ANSWER.replace("ANSWER", "1") + "#endif\n"
    ptx = compile(source, "answer.cu", {"YES": ""})
    assert ptx.name == "answer.cu -DYES"
    assert ".entry answer" in ptx.text
    assert ".entry answer" not in compile(source, "answer.cu").text


@pytest.mark.parametrize("arch", [(7, 5), (8, 0), (9, 0)])
def test_architectures_compile_and_run(cache, arch):
    device = simwarp.Device(cc=arch)
    kernel = device.load(answer(arch=arch).text).kernel("answer")
    x = device.upload(np.zeros(32, np.int32))
    kernel((1, 1, 1), (32, 1, 1), x)
    np.testing.assert_array_equal(x.download(), 42 * np.arange(32))


@pytest.mark.parametrize("arch", [(7, 5), (8, 0), (9, 0)])
def test_the_products_kernels_run_for_every_architecture(arch):
    a, b = np.random.default_rng(0).standard_normal((2, 37, 37))
    dots, device = reference.bmm(a, b), simwarp.Device(cc=arch)
    for name, scheme in SCHEMES.items():
        np.testing.assert_array_equal(gpu.bmm(a, b, scheme=name, device=device), dots)
        packed = gpu.bmm(a, b, scheme=name, thresholds=np.arange(37), device=device)
        expected = reference.threshold(dots, np.arange(37), word=scheme.word)
        np.testing.assert_array_equal(packed.words, expected.words)
        assert f".target sm_{arch[0]}{arch[1]}" in product_ptx(scheme, "bits", "msb", arch).text


def test_every_kernel_has_ptx_of_its_own():
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
    # The bit order is of words that are made: to a product that stores int32 it is nothing.
    assert len({ptx.sha256 for ptx in products}) == 3 * len(SCHEMES)
    for ptx in packings:
        for kernel in ("pack_column", "pack_row", "pack_column_vector", "pack_row_vector"):
            assert f".entry {kernel}(" in ptx.text


def test_headers_of_cuda_are_found():
    source = "#include <cuda/std/cstdint>\n" + ANSWER.replace("int*", "cuda::std::int32_t*")
    assert ".entry answer" in compile(source, "answer.cu", {"ANSWER": 1}).text


def test_no_fused_multiply_add_that_was_not_asked_for():
    source = (
        'extern "C" __global__ void f(float* x) { x[0] = x[1] * x[2] + x[3]; x[4] = fmaf(x[1], x[2], x[3]); }'
    )
    text = compile(source, "f.cu").text
    assert text.count("fma.rn.f32") == 1
    assert "mul.f32" in text or "mul.rn.f32" in text


# The cache


def test_the_second_time_nothing_is_compiled(cache, runs):
    first, second = answer(), answer()
    assert first == second
    assert len(runs) == 1
    (stored,) = cache.iterdir()
    assert stored.read_text().endswith(first.text)


def test_warnings_are_kept_and_cached(cache, runs, tmp_path):
    (tmp_path / "late.h").write_text("#warning too late\n")
    source = '#include "late.h"\nextern "C" __global__ void k(int* y) { int v; *y = v; }\n'
    first, second = (compile(source, "k.cu", folder=tmp_path) for _ in range(2))
    assert len(runs) == 1
    assert first == second
    assert 'k.cu(2): warning #549-D: variable "v" is used before its value is set' in second.log
    assert "late.h(1): warning #1105-D: #warning directive: too late" in second.log
    assert f"{tmp_path}/k.cu" not in second.log


def test_a_source_without_warnings_has_an_empty_log(cache):
    assert answer().log == answer().log == ""


def test_a_log_may_quote_bytes_that_are_no_text(cache, tmp_path):
    (tmp_path / "latin.h").write_bytes(b"#warning \xe9t\xe9\n")
    compiled, stored = (
        compile('#include "latin.h"\n' + ANSWER, "k.cu", {"ANSWER": 1}, folder=tmp_path) for _ in "12"
    )
    assert "#warning directive: \ufffdt\ufffd" in compiled.log == stored.log


def _another_constant(path, content):
    path.write_bytes(content.replace(b", 42;", b", 43;"))


def _another_form(path, content):
    path.write_bytes(content.partition(b"\n")[2])


def _folder(path, content):
    (path / "full").mkdir(parents=True)


def _of_another_key(path, content):
    answer(43)
    (other,) = path.parent.glob("*.ptx")
    other.rename(path)


DAMAGE = {
    "another constant": _another_constant,
    "no digest": _another_form,
    "another key": _of_another_key,
    "empty": lambda path, content: path.write_bytes(b""),
    "half": lambda path, content: path.write_bytes(content[: len(content) // 2]),
    "more": lambda path, content: path.write_bytes(content + b"\n"),
    "not UTF-8": lambda path, content: path.write_bytes(b"\xff\xfe\x80" * 100),
    "a folder": _folder,
    "a FIFO": lambda path, content: os.mkfifo(path),
    "a link to a device": lambda path, content: path.symlink_to("/dev/zero"),
    "a link to nothing": lambda path, content: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_an_entry_that_is_not_what_was_written_is_made_anew(cache, runs, damage):
    first = answer()
    (path,) = cache.iterdir()
    content = path.read_bytes()
    assert b", 42;" in content
    path.unlink()
    DAMAGE[damage](path, content)
    runs.clear()
    assert answer() == first
    assert len(runs) == 1
    assert path.is_file()
    assert not path.is_symlink()
    assert path.read_bytes() == content
    assert answer() == first
    assert len(runs) == 1


def test_simwarp_cache_is_where_it_is_kept(cache):
    assert cache_folder() == cache
    answer()
    assert [path.suffix for path in cache.iterdir()] == [".ptx"]


def test_without_simwarp_cache_it_is_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("SIMWARP_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "simwarp" / "ptx"


@pytest.mark.parametrize(
    "change",
    [
        {"source": ANSWER + "\n"},
        {"name": "question.cu"},
        {"defines": {"ANSWER": 43}},
        {"defines": {"ANSWER": 42, "MORE": ""}},
        {"arch": (8, 0)},
    ],
    ids=["source", "name", "value", "defines", "arch"],
)
def test_whatever_changes_the_ptx_changes_the_key(cache, runs, change):
    answer()
    answer(**change)
    assert len(runs) == len(list(cache.iterdir())) == 2


def test_options_change_the_key(cache, runs, monkeypatch):
    answer()
    monkeypatch.setattr(compiler, "OPTIONS", (*compiler.OPTIONS, "-ftz=true"))
    answer()
    assert len(runs) == 2
    assert "-ftz=true" in runs[1][3]


def test_the_compilers_version_changes_the_key(cache, runs, monkeypatch):
    answer()
    monkeypatch.setattr(compiler, "compiler_version", lambda: "NVRTC 13.1")
    assert answer().compiler == "NVRTC 13.1"
    assert len(runs) == 2


def test_headers_of_the_package_change_the_key(cache, runs, monkeypatch, tmp_path):
    monkeypatch.setattr(compiler, "_PACKAGE", tmp_path)
    (tmp_path / "outer.cuh").write_text('#include "inner.cuh"\n')
    inner = tmp_path / "inner.cuh"
    inner.write_text("#define ANSWER 1\n")
    source = '#include "outer.cuh"\n' + ANSWER
    first = compile(source, "answer.cu")
    assert set(runs[0][2]) == {"outer.cuh", "inner.cuh"}
    inner.write_text("#define ANSWER 2\n")
    second = compile(source, "answer.cu")
    assert first.sha256 != second.sha256
    inner.write_text("#define ANSWER 1\n")
    assert compile(source, "answer.cu") == first
    assert len(runs) == 2


def test_headers_that_are_given_change_the_key(cache, runs):
    source = "#include <answer.h>\n" + ANSWER
    for value in (1, 2, 1):
        compile(source, "answer.cu", headers={"answer.h": f"#define ANSWER {value}\n"})
    assert len(runs) == 2
    assert runs[0][2] == {"answer.h": "#define ANSWER 1\n"}


def test_headers_beside_the_source_change_the_key(cache, runs, tmp_path):
    inner = tmp_path / "sub" / "inner.cuh"
    inner.parent.mkdir()
    (tmp_path / "outer.cuh").write_text('#include "sub/middle.cuh"\n')
    (tmp_path / "sub" / "middle.cuh").write_text('#include "inner.cuh"\n')
    texts = []
    for value in (1, 2, 1):
        inner.write_text(f"#define ANSWER {value}\n")
        ptx = compile('#include "outer.cuh"\n' + ANSWER, "answer.cu", folder=tmp_path)
        texts.append(ptx.text)
        assert str(tmp_path) not in ptx.text
    assert texts[0] == texts[2] != texts[1]
    assert len(runs) == 2


def test_folders_to_include_from(cache, runs, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for value, folder in enumerate((one, two)):
        folder.mkdir()
        (folder / "answer.h").write_text(f"#define ANSWER {value}\n")
    source = "#include <answer.h>\n" + ANSWER
    first = compile(source, "answer.cu", include=[one, two])
    assert first.sha256 != compile(source, "answer.cu", include=[two, one]).sha256
    assert compile(source, "answer.cu", include=[one]) == first
    assert len(runs) == 2  # the same files under the same names are the same key


def test_an_include_that_a_macro_names_is_never_cached(cache, runs, tmp_path):
    (tmp_path / "answer.h").write_text("#define ANSWER 1\n")
    source = '#define FILE "answer.h"\n#include FILE\n' + ANSWER
    for _ in range(2):
        compile(source, "answer.cu", folder=tmp_path)
    assert len(runs) == 2
    assert not cache.exists() or list(cache.iterdir()) == []


def test_a_source_with_a_folder_is_called_by_its_name(tmp_path):
    source = ANSWER.replace("ANSWER *", "(int)sizeof(__FILE__) *")
    with_folder, without = (compile(source, "answer.cu", folder=folder) for folder in (tmp_path, None))
    assert with_folder.text == without.text
    with pytest.raises(
        CompileError, match=r"^answer\.cu does not compile:\nanswer\.cu\(4\): error"
    ) as caught:
        compile(ANSWER.replace(";", ""), "answer.cu", {"ANSWER": 1}, folder=tmp_path)
    assert str(tmp_path) not in str(caught.value)


def test_options_take_precedence(cache, runs):
    source = 'extern "C" __global__ void f(float* x) { x[0] = x[1] * x[2] + x[3]; }'
    assert "fma.rn.f32" in compile(source, "f.cu", options=["-fmad=true"]).text
    assert "fma.rn.f32" not in compile(source, "f.cu").text
    assert len(runs) == 2
    assert "-fmad=false" not in runs[0][3]
    assert "-lineinfo" in runs[0][3]


def test_a_file_of_the_package_is_its_source(cache, runs):
    source = (importlib.resources.files("gpu") / "bmm/pack.cu").read_text()
    defines = {"ELEMENT_INT8": "", "WORD_64": "", "FIRST_LSB": ""}
    one, other = compile_file("bmm/pack.cu", defines), compile(source, "bmm/pack.cu", defines)
    assert one == other == packing_ptx("int8", 64, "lsb", (9, 0))
    assert len(runs) == 1
    assert set(runs[0][2]) == {"bmm/warp.cuh"}


def test_headers_of_the_products_are_part_of_the_key(cache, runs):
    product_ptx(SCHEMES["bmms32"], "int", "msb", (9, 0))
    assert set(runs[0][2]) == {"bmm/output.cuh", "bmm/warp.cuh"}


@pytest.mark.parametrize("stop", [OSError("disk full"), KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("moment", ["write", "rename"])
def test_a_write_that_fails_leaves_nothing(cache, monkeypatch, stop, moment):
    def fail(*args, **kwargs):
        raise stop

    if moment == "rename":
        monkeypatch.setattr(Path, "replace", fail)
    else:
        monkeypatch.setattr("reference.files.os.fsync", fail)
    if isinstance(stop, OSError):
        assert ".entry answer" in answer().text  # a cache that cannot be written is no error
    else:
        with pytest.raises(type(stop)):
            answer()
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("parent", ["a file", "/proc"])
def test_a_cache_folder_that_cannot_be_made_is_no_error(monkeypatch, tmp_path, runs, parent):
    if parent == "a file":
        parent = tmp_path / "file"
        parent.write_text("in the way")
    monkeypatch.setenv("SIMWARP_CACHE", str(Path(parent) / "cache"))
    assert answer() == answer()
    assert len(runs) == 2


def test_a_failed_compilation_is_not_cached(cache):
    with pytest.raises(CompileError):
        compile("nonsense", "nonsense.cu")
    assert not cache.exists() or list(cache.iterdir()) == []


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


def test_an_error_in_a_header_names_the_header(monkeypatch, tmp_path, cache):
    monkeypatch.setattr(compiler, "_PACKAGE", tmp_path)
    (tmp_path / "bad.cuh").write_text("\n\nint x = ;\n")
    with pytest.raises(CompileError, match=r"bad\.cuh\(3\): error"):
        compile('#include "bad.cuh"\n', "answer.cu")


def test_a_header_that_is_not_there():
    with pytest.raises(CompileError, match=r"answer\.cu\(1\).*nowhere\.cuh"):
        compile('#include "nowhere.cuh"\n', "answer.cu")


@pytest.mark.parametrize("arch", [(1, 0), (99, 9)])
def test_an_architecture_that_does_not_exist(arch):
    with pytest.raises(CompileError, match=f"compute_{arch[0]}{arch[1]}|gpu-architecture"):
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


def test_line_ends_do_not_matter():
    assert normalise("\n\n.version 9.0  \r\n\tret;\r\n\n") == ".version 9.0\n\tret;\n"


def test_no_machine_path_in_real_ptx():
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


def test_the_working_directory_and_the_cache_do_not_show(tmp_path):
    program = (
        "from gpu.bmm.schemes import SCHEMES, product_ptx; from gpu.bmm.packing import packing_ptx;"
        "print(product_ptx(SCHEMES['bmm32'], 'bits', 'msb', (9, 0)).sha256,"
        "packing_ptx('float64', 32, 'msb', (8, 0)).sha256)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SIMWARP_CACHE": str(tmp_path / "other")}
    said = subprocess.run(
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
    assert said.stdout.split() == [ptx.sha256 for ptx in here]


def test_the_digest_is_of_the_text():
    assert Ptx("abc", "", (9, 0), "").sha256.startswith("ba7816bf8f01cfea")
