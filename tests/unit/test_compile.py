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
import gpu.cache
import gpu.compile as compiler
import reference
import simwarp
from gpu.bmm.packing import packing_ptx
from gpu.bmm.schemes import SCHEMES, product_ptx
from gpu.cache import cache_folder
from gpu.compile import CompileError, Ptx, compile, compile_file, normalise
from gpu.cuda_headers import cuda_folders, release
from reference.errors import InputFileError, MissingExtraError

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


SPELLINGS = {
    "plain": '#include "v.h"',
    "blanks": '\t # \f include\v"v.h" // why',
    "CR LF": '#include "v.h"\r',
    "a comment before": '/* c */ #include "v.h"',
    "a comment over lines": '/* c\n*/#include "v.h"',
    "a comment after the sharp": '# /* c */ include "v.h"',
    "a comment after the word": '#include /* "c" */ "v.h"',
    "a comment for every blank": '#/**/include/* * / **/"v.h"',
    "spliced after the word": '#include \\\n"v.h"',
    "spliced within the word": '#inc\\\nlude "v.h"',
    "spliced with CR LF": '#inc\\\r\nlude \\\r\n "v.h"',
    "digraph": '%:include "v.h"',
    "digraph, spliced": '%\\\n:include "v.h"',
    "apostrophe where nothing is compiled": '#if 0\ndon\'t /*\n#endif\n#include "v.h"\n/* */',
    "after a raw string": '#define S R"(/*)"\n#include "v.h"\n#define T R"(*/)"',
    "after a digit separator": "#define W 1'000\n/*'*/#include \"v.h\"",
    "next": '#include_next "v.h"',
    "through a folder": '#include "sub/../v.h"',
    "from a header": '#include "sub/up.h"',
    "from a header, twice around": '#include "sub/around.h"',
    "angled": "#include <v.h>",
    "next of angled": "#include <deep/next.h>",
    "macro": '#define H "v.h"\n#include H',
    "macro after a comment": '#define H "v.h"\n#include/**/H',
    "macro after a splice": '#define H "v.h"\n#include \\\nH',
    "macro from the command line": "#include FROM_OPTION",
    "before the source": "",
    "trigraph": '??=include "v.h"',
}
UNFOLLOWED = {
    "macro",
    "macro after a comment",
    "macro after a splice",
    "macro from the command line",
    "trigraph",
}


def _folder_of_headers(folder):
    for name, text in {
        "sub/up.h": '#include "../v.h"\n',
        "sub/around.h": '#pragma once\n#include "../sub/around.h"\n#include "../v.h"\n',
        "inc/deep/next.h": "#include_next <v.h>\n",
        "later/nothing.h": "",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_header_that_changes_is_never_missed(cache, runs, tmp_path, spelling):
    _folder_of_headers(tmp_path)
    angled = "angled" in spelling
    header = tmp_path / ("later/v.h" if angled else "v.h")
    options = {
        "macro from the command line": ['-DFROM_OPTION="v.h"'],
        "before the source": [f"--pre-include={header}"],
        "trigraph": ["-std=c++14"],
    }.get(spelling, [])
    texts = []
    for value in (1, 2, 2, 1):
        header.write_text(f"#define ANSWER {value}\n")
        include = [tmp_path / "inc", tmp_path / "later"] if angled else []
        source = SPELLINGS[spelling] + "\n" + ANSWER
        texts.append(compile(source, "answer.cu", folder=tmp_path, include=include, options=options).text)
    assert texts[0] != texts[1] == texts[2]
    assert texts[3] == texts[0]
    assert len(runs) == (4 if spelling in UNFOLLOWED else 2)
    assert len(list(cache.glob("*"))) == (0 if spelling in UNFOLLOWED else 2)


QUESTIONS = {
    "quoted": '#if __has_include("opt.h")',
    "angled": "#if __has_include(<opt.h>)",
    "blanks and comments": '#if defined(__has_include) && __has_include /**/ ( /**/ "opt.h" )',
    "spliced": '#if __has_\\\ninclude("opt.h")',
    "elif": '#if 0\n#elif __has_include("opt.h")',
    "next": '#if __has_include_next("opt.h")',
    "in a macro": '#define HAS __has_include("opt.h")\n#if HAS',
    "of a macro": '#define H "opt.h"\n#if __has_include(H)',
    "by a macro": '#define HAS(x) __has_include(x)\n#if HAS("opt.h")',
    "by another name": '#define HAS __has_include\n#if HAS("opt.h")',
    "pasted": '#define P(a, b) a##b\n#if P(__has_, include)("opt.h")',
    "pasted of little": '#define P(a, b) a%:%:b\n#if P(__, has_include)("opt.h")',
    "from the command line": "#if FROM_OPTION",
    "by CUDA's macro": '#include <cuda/std/version>\n#if _CCCL_HAS_INCLUDE("opt.h")',
    "of a macro, by CUDA's macro": '#include <cuda/std/version>\n#define H "opt.h"\n#if _CCCL_HAS_INCLUDE(H)',
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_header_that_comes_and_goes_is_never_missed(cache, runs, tmp_path, question):
    source = QUESTIONS[question] + "\n#define ANSWER 1\n#else\n#define ANSWER 2\n#endif\n" + ANSWER
    texts = []
    for there in (False, True, True, False):
        (tmp_path / "opt.h").write_text("") if there else (tmp_path / "opt.h").unlink(missing_ok=True)
        options = ['-DFROM_OPTION=__has_include("opt.h")']
        texts.append(compile(source, "answer.cu", folder=tmp_path, include=[tmp_path], options=options).text)
    assert texts[0] != texts[1] == texts[2]
    assert texts[3] == texts[0]
    followed = " macro" not in question.replace("in a macro", "") and "by another" not in question
    assert len(runs) == (2 if (followed and "pasted" not in question) or question == "by CUDA's macro" else 4)


def test_a_header_that_comes_earlier_on_the_path_is_never_missed(cache, runs, tmp_path):
    places = [tmp_path / name for name in ("one", "two")]
    for place in places:
        place.mkdir()
    (tmp_path / "two" / "v.h").write_text("#define ANSWER 2\n")
    source = "#include <v.h>\n" + ANSWER
    second = compile(source, "answer.cu", include=places)
    (tmp_path / "one" / "v.h").write_text("#define ANSWER 1\n")
    first = compile(source, "answer.cu", include=places)
    assert (len(runs), first.text != second.text) == (2, True)
    (tmp_path / "one" / "v.h").unlink()
    assert compile(source, "answer.cu", include=places) == second
    assert len(runs) == 2


def test_headers_in_the_working_directory_are_never_missed(cache, runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = []
    for value in (1, 2, 2):
        (tmp_path / "v.h").write_text(f"#define ANSWER {value}\n")
        texts.append(compile('#include "v.h"\n' + ANSWER, "answer.cu").text)
        texts.append(compile('#include "m.h"\n' + ANSWER, "a.cu", headers={"m.h": '#include "v.h"\n'}).text)
    assert texts[0] != texts[2] == texts[4]
    assert texts[1] != texts[3] == texts[5]
    assert len(runs) == 4


def test_headers_that_are_not_utf8_are_never_taken_for_one_another(cache, runs, tmp_path):
    source = '#include "s.h"\nextern "C" __device__ char s[] = S;\n' + ANSWER
    texts = []
    for letter in (b"\xe9", b"\xe8", b"\xe8"):
        (tmp_path / "s.h").write_bytes(b'#define S "' + letter + b'"\n')
        texts.append(compile(source, "answer.cu", {"ANSWER": 1}, folder=tmp_path).text)
    assert texts[0] != texts[1] == texts[2]
    assert len(runs) == 2


def test_a_file_of_the_callers_that_cudas_headers_include_is_never_missed(cache, runs, tmp_path):
    (tmp_path / "mine").mkdir()
    source = "#include <cuda_fp16.h>\n#ifndef ANSWER\n#define ANSWER 9\n#endif\n" + ANSWER
    texts = [compile(source, "answer.cu", include=[tmp_path]).text for _ in range(2)]
    assert (len(runs), len(list(cache.iterdir()))) == (1, 1)
    assert len(set(texts)) == 1
    (missing, *_) = (one for one in cache_entries(cache)[0].elsewhere if "/" not in one)
    (tmp_path / missing).write_text("#define ANSWER 8\n")
    compile(source, "answer.cu", include=[tmp_path])
    assert len(runs) == 2  # somebody has now what nobody had


def cache_entries(folder):
    return [gpu.cache.read(path.stem) for path in folder.glob("*.ptx")]


def test_a_header_that_changes_while_it_is_compiled_is_not_cached(cache, runs, monkeypatch, tmp_path):
    header = tmp_path / "v.h"
    header.write_text("#define ANSWER 1\n")
    run = compiler._run

    def late(*args):
        done = run(*args)
        header.write_text("#define ANSWER 2\n")
        return done

    monkeypatch.setattr(compiler, "_run", late)
    compile('#include "v.h"\n' + ANSWER, "answer.cu", folder=tmp_path)
    assert not cache.exists()


@pytest.mark.parametrize("option", ["-I{}", "--include-path={}", "-I {}"])
def test_what_options_include_is_never_missed(cache, runs, tmp_path, option):
    texts = []
    for value in (1, 2, 2):
        (tmp_path / "v.h").write_text(f"#define ANSWER {value}\n")
        options = option.format(tmp_path).split(" ")
        texts.append(compile("#include <v.h>\n" + ANSWER, "answer.cu", options=options).text)
    assert texts[0] != texts[1] == texts[2]
    assert len(runs) == 3


def test_another_release_of_cudas_headers_changes_the_key(cache, runs, monkeypatch, tmp_path):
    first = answer()
    for version in ("one", "two", "one"):
        include = tmp_path / "include"
        include.mkdir(exist_ok=True)
        (tmp_path / "version.json").write_text(version)
        monkeypatch.setattr(compiler, "cuda_folders", lambda: (tmp_path / "include",))
        compiler.release.cache_clear()
        assert answer() == first
    compiler.release.cache_clear()
    assert len(runs) == 3


def test_the_release_of_cudas_headers_is_that_of_its_packages(tmp_path):
    (library,) = {folder for folder in cuda_folders() if folder.name == "cccl"}
    assert "nvidia_cuda_cccl-13.0" in release(library)
    mine = tmp_path / "include"
    mine.mkdir()
    before = release(mine)
    (mine / "mma.h").write_text("// longer")
    release.cache_clear()
    assert release(mine) != before


@pytest.mark.parametrize(
    "spelling",
    [
        '#include "pipe"',
        '#if __has_include("pipe")\n#endif',
        '#define H "pipe"\n#include H',
        '#include "null"',
    ],
)
def test_what_is_included_and_is_no_file_is_refused(cache, runs, tmp_path, spelling):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    with pytest.raises(InputFileError, match=r"(pipe|null) is included, but is not a file[\s\S]*regular"):
        compile(f"{spelling}\n{ANSWER}", "answer.cu", {"ANSWER": 1}, folder=tmp_path)
    assert runs == []
    assert compile(ANSWER, "answer.cu", {"ANSWER": 1}, folder=tmp_path).text


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


def test_options_that_are_given_twice_are_no_warning(cache, runs):
    ptx = answer(options=["-fmad=true", "--fmad=false", "-std=c++20", "-maxrregcount=32", "-maxrregcount=64"])
    assert ptx.log == ""
    assert [option for option in runs[0][3] if "fmad" in option] == ["--fmad=false"]
    assert [option for option in runs[0][3] if "std" in option] == ["-std=c++20"]


def test_a_working_directory_that_is_gone(cache, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert answer() == answer()
    monkeypatch.chdir(tmp_path)


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
        monkeypatch.setattr("reference.files._lock", fail)
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
