"""The cache of `gpu.compile`: every file that a compilation may read changes the key, or prevents caching."""

import os

import pytest

import gpu
import gpu.compile as compiler
import gpu.compiler.cache
from gpu.compile import compile
from gpu.compiler.cuda_headers import cuda_folders, release
from gpu.compiler.directives import directives
from gpu.compiler.options import last_of_each, read_options
from reference.errors import InputFileError
from support.compiled_answers import ANSWER, answer


def test_headers_of_the_package_change_the_key(ptx_cache, compilations, monkeypatch, tmp_path):
    monkeypatch.setattr(compiler, "_PACKAGE", tmp_path)
    (tmp_path / "outer.cuh").write_text('#include "inner.cuh"\n')
    inner = tmp_path / "inner.cuh"
    inner.write_text("#define ANSWER 1\n")
    source = '#include "outer.cuh"\n' + ANSWER
    first = compile(source, "answer.cu")
    assert set(compilations[0][2]) == {"outer.cuh", "inner.cuh"}
    inner.write_text("#define ANSWER 2\n")
    second = compile(source, "answer.cu")
    assert first.sha256 != second.sha256
    inner.write_text("#define ANSWER 1\n")
    assert compile(source, "answer.cu") == first
    assert len(compilations) == 2


def test_given_headers_change_the_key(ptx_cache, compilations):
    source = "#include <answer.h>\n" + ANSWER
    for value in (1, 2, 1):
        compile(source, "answer.cu", headers={"answer.h": f"#define ANSWER {value}\n"})
    assert len(compilations) == 2
    assert compilations[0][2] == {"answer.h": "#define ANSWER 1\n"}


def test_headers_beside_the_source_change_the_key(ptx_cache, compilations, tmp_path):
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
    assert len(compilations) == 2


def test_include_folders_are_searched_in_order(ptx_cache, compilations, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for value, folder in enumerate((one, two)):
        folder.mkdir()
        (folder / "answer.h").write_text(f"#define ANSWER {value}\n")
    source = "#include <answer.h>\n" + ANSWER
    first = compile(source, "answer.cu", include=[one, two])
    assert first.sha256 != compile(source, "answer.cu", include=[two, one]).sha256
    assert compile(source, "answer.cu", include=[one]) == first
    assert len(compilations) == 2  # the same files under the same names are the same key


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


@pytest.mark.at_most(16)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_changed_header_recompiles(ptx_cache, compilations, tmp_path, spelling):
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
    assert len(compilations) == (4 if spelling in UNFOLLOWED else 2)
    assert len(list(ptx_cache.glob("*"))) == (0 if spelling in UNFOLLOWED else 2)


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
HIDDEN = {"of a macro", "by a macro", "by another name", "pasted", "pasted of little"} | {
    "of a macro, by CUDA's macro",
}
"""Questions whose file, or which themselves, only a preprocessor finds."""


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_added_or_removed_header_recompiles(ptx_cache, compilations, tmp_path, question):
    source = QUESTIONS[question] + "\n#define ANSWER 1\n#else\n#define ANSWER 2\n#endif\n" + ANSWER
    texts = []
    for there in (False, True, True, False):
        (tmp_path / "opt.h").write_text("") if there else (tmp_path / "opt.h").unlink(missing_ok=True)
        options = ['-DFROM_OPTION=__has_include("opt.h")']
        texts.append(compile(source, "answer.cu", folder=tmp_path, include=[tmp_path], options=options).text)
    assert texts[0] != texts[1] == texts[2]
    assert texts[3] == texts[0]
    assert len(compilations) == (4 if question in HIDDEN else 2)


@pytest.mark.parametrize(
    ("line", "complete"),
    [
        ('asm volatile("arrive _, [%0];" :: "r"(at));', True),
        ('asm volatile("arrive _, [%0];" :: "r"(at));  // "quoted"', False),
        ("int _;", False),
        ('asm("a" _ "b");', False),
        ("char c = '\"'; int _; char d = '\"';", False),
        ('const char* s = "\\""; int _; const char* t = "\\"";', False),
        ('/* " */ int _; /* " */', False),
        ('const char* s = R"(\n" int _; ")";', False),
        ('" an odd mark _', False),
    ],
)
def test_only_an_underscore_in_a_string_cannot_be_pasted(line, complete):
    assert directives(f"#define P(a, b) a##b\n{line}\n").complete == complete


def test_a_new_header_earlier_on_the_path_recompiles(ptx_cache, compilations, tmp_path):
    places = [tmp_path / name for name in ("one", "two")]
    for place in places:
        place.mkdir()
    (tmp_path / "two" / "v.h").write_text("#define ANSWER 2\n")
    source = "#include <v.h>\n" + ANSWER
    second = compile(source, "answer.cu", include=places)
    (tmp_path / "one" / "v.h").write_text("#define ANSWER 1\n")
    first = compile(source, "answer.cu", include=places)
    assert (len(compilations), first.text != second.text) == (2, True)
    (tmp_path / "one" / "v.h").unlink()
    assert compile(source, "answer.cu", include=places) == second
    assert len(compilations) == 2


def test_a_changed_header_in_the_working_directory_recompiles(ptx_cache, compilations, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = []
    for value in (1, 2, 2):
        (tmp_path / "v.h").write_text(f"#define ANSWER {value}\n")
        texts.append(compile('#include "v.h"\n' + ANSWER, "answer.cu").text)
        texts.append(compile('#include "m.h"\n' + ANSWER, "a.cu", headers={"m.h": '#include "v.h"\n'}).text)
    assert texts[0] != texts[2] == texts[4]
    assert texts[1] != texts[3] == texts[5]
    assert len(compilations) == 4


def test_different_headers_in_other_encodings_have_different_keys(ptx_cache, compilations, tmp_path):
    source = '#include "s.h"\nextern "C" __device__ char s[] = S;\n' + ANSWER
    texts = []
    for letter in (b"\xe9", b"\xe8", b"\xe8"):
        (tmp_path / "s.h").write_bytes(b'#define S "' + letter + b'"\n')
        texts.append(compile(source, "answer.cu", {"ANSWER": 1}, folder=tmp_path).text)
    assert texts[0] != texts[1] == texts[2]
    assert len(compilations) == 2


def test_a_changed_user_file_included_by_cuda_headers_recompiles(ptx_cache, compilations, tmp_path):
    (tmp_path / "mine").mkdir()
    source = "#include <cuda_fp16.h>\n#ifndef ANSWER\n#define ANSWER 9\n#endif\n" + ANSWER
    texts = [compile(source, "answer.cu", include=[tmp_path]).text for _ in range(2)]
    assert (len(compilations), len(list(ptx_cache.iterdir()))) == (1, 1)
    assert len(set(texts)) == 1
    (missing, *_) = (one for one in cache_entries(ptx_cache)[0].elsewhere if "/" not in one)
    (tmp_path / missing).write_text("#define ANSWER 8\n")
    compile(source, "answer.cu", include=[tmp_path])
    assert len(compilations) == 2  # a searched folder now has the formerly missing header


def cache_entries(folder):
    return [gpu.compiler.cache.read(path.stem) for path in folder.glob("*.ptx")]


def test_a_header_that_changes_while_it_is_compiled_is_not_cached(
    ptx_cache, compilations, monkeypatch, tmp_path
):
    header = tmp_path / "v.h"
    header.write_text("#define ANSWER 1\n")
    run = compiler._run

    def late(*args):
        done = run(*args)
        header.write_text("#define ANSWER 2\n")
        return done

    monkeypatch.setattr(compiler, "_run", late)
    compile('#include "v.h"\n' + ANSWER, "answer.cu", folder=tmp_path)
    assert not ptx_cache.exists()


@pytest.mark.parametrize("option", ["-I{}", "--include-path={}", "-I {}"])
def test_a_changed_file_included_by_an_option_recompiles(ptx_cache, compilations, tmp_path, option):
    texts = []
    for value in (1, 2, 2):
        (tmp_path / "v.h").write_text(f"#define ANSWER {value}\n")
        options = option.format(tmp_path).split(" ")
        texts.append(compile("#include <v.h>\n" + ANSWER, "answer.cu", options=options).text)
    assert texts[0] != texts[1] == texts[2]
    assert len(compilations) == 3


def test_another_release_of_cudas_headers_changes_the_key(ptx_cache, compilations, monkeypatch, tmp_path):
    first = answer()
    for version in ("one", "two", "one"):
        include = tmp_path / "include"
        include.mkdir(exist_ok=True)
        (tmp_path / "version.json").write_text(version)
        monkeypatch.setattr(compiler, "cuda_folders", lambda: (tmp_path / "include",))
        compiler.release.cache_clear()
        assert answer() == first
    compiler.release.cache_clear()
    assert len(compilations) == 3


def test_the_release_of_cudas_headers_equals_their_packages_version(tmp_path):
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
def test_an_included_pipe_is_refused(ptx_cache, compilations, tmp_path, spelling):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    with pytest.raises(InputFileError, match=r"(pipe|null) is included, and is a FIFO[\s\S]*regular"):
        compile(f"{spelling}\n{ANSWER}", "answer.cu", {"ANSWER": 1}, folder=tmp_path)
    assert compilations == []
    assert compile(ANSWER, "answer.cu", {"ANSWER": 1}, folder=tmp_path).text


def test_include_options_and_directives_are_parsed():
    found = read_options(["-DN=4", "--pre-include=first.h", "-G", "-D", "FILE=first.h", "-UDEBUG"])
    assert (found.text, found.known) == (["#define N 4", '#include "first.h"', "#define FILE first.h"], True)
    assert not read_options(["--use-pch=all.pch"]).known
    options = ["-fmad=false", "-lineinfo", "-DA=1", "-DB=2", "--fmad=true"]
    assert last_of_each(options) == options[1:]
    read = directives('%:inc\\\nlude /* of ours */ "v.h"\n#if __has_include(<opt.h>)\n#endif\n')
    assert ([one.name for one in read.included], [one.name for one in read.wanted]) == (["v.h"], ["opt.h"])
    assert read.complete
    assert not directives("#include FILE").complete
