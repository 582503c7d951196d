"""The cache of `gpu.compile`: the contents, validity and keys of its entries."""

import importlib.resources
import os
import zlib
from pathlib import Path

import pytest

import gpu.compile as compiler
import gpu.compiler.cache
from gpu.bmm.packing import packing_ptx
from gpu.bmm.schemes import SCHEMES, product_ptx
from gpu.compile import CompileError, compile, compile_file
from gpu.compiler.cache import cache_folder
from support.compiled_answers import ANSWER, answer


def test_a_second_compilation_uses_the_cache(ptx_cache, compilations):
    first, second = answer(), answer()
    assert first == second
    assert len(compilations) == 1
    (stored,) = ptx_cache.iterdir()
    entry = gpu.compiler.cache.read(stored.stem)
    assert entry
    assert entry.text == first.text
    assert stored.stat().st_size < len(first.text)


def test_warnings_are_kept_and_cached(ptx_cache, compilations, tmp_path):
    (tmp_path / "late.h").write_text("#warning too late\n")
    source = '#include "late.h"\nextern "C" __global__ void k(int* y) { int v; *y = v; }\n'
    first, second = (compile(source, "k.cu", folder=tmp_path) for _ in range(2))
    assert len(compilations) == 1
    assert first == second
    assert 'k.cu(2): warning #549-D: variable "v" is used before its value is set' in second.log
    assert "late.h(1): warning #1105-D: #warning directive: too late" in second.log
    assert f"{tmp_path}/k.cu" not in second.log


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("False", "True")
@pytest.mark.parametrize("mine", [False, True])
def test_warnings_in_cuda_headers_are_suppressed(ptx_cache, mine):
    source = "#define INFINITY 1\n#include <cuda/std/cmath>\n" + ANSWER
    source += 'extern "C" __global__ void k(int* y) { int v; *y = v; }\n' * mine
    log = compile(source, "k.cu", {"ANSWER": 1}).log
    assert "cmath" not in log
    assert log.startswith("k.cu(") == ('"v" is used before' in log) == mine
    assert bool(log) == mine


def test_a_source_without_warnings_has_an_empty_log(ptx_cache):
    assert answer().log == answer().log == ""


def test_a_log_may_contain_bytes_that_are_not_text(ptx_cache, tmp_path):
    (tmp_path / "latin.h").write_bytes(b"#warning \xe9t\xe9\n")
    compiled, stored = (
        compile('#include "latin.h"\n' + ANSWER, "k.cu", {"ANSWER": 1}, folder=tmp_path) for _ in "12"
    )
    assert "#warning directive: \ufffdt\ufffd" in compiled.log == stored.log


def _another_constant(path, content):
    first, _, body = content.partition(b"\n")
    path.write_bytes(
        first + b"\n" + zlib.compress(zlib.decompress(body).replace(b", 42;", b", 43;"), level=1)
    )


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
def test_a_damaged_entry_is_compiled_again(ptx_cache, compilations, damage):
    first = answer()
    (path,) = ptx_cache.iterdir()
    content = path.read_bytes()
    assert b", 42;" in zlib.decompress(content.partition(b"\n")[2])
    path.unlink()
    DAMAGE[damage](path, content)
    compilations.clear()
    assert answer() == first
    assert len(compilations) == 1
    assert path.is_file()
    assert not path.is_symlink()
    assert path.read_bytes() == content
    assert answer() == first
    assert len(compilations) == 1


def test_simwarp_cache_sets_the_folder(ptx_cache):
    assert cache_folder() == ptx_cache
    answer()
    assert [path.suffix for path in ptx_cache.iterdir()] == [".ptx"]


def test_the_default_folder_is_the_users_cache(monkeypatch, tmp_path):
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
def test_sources_defines_and_architectures_change_the_key(ptx_cache, compilations, change):
    answer()
    answer(**change)
    assert len(compilations) == len(list(ptx_cache.iterdir())) == 2


def test_options_change_the_key(ptx_cache, compilations, monkeypatch):
    answer()
    monkeypatch.setattr(compiler, "OPTIONS", (*compiler.OPTIONS, "-ftz=true"))
    answer()
    assert len(compilations) == 2
    assert "-ftz=true" in compilations[1][3]


def test_the_compilers_version_changes_the_key(ptx_cache, compilations, monkeypatch):
    answer()
    monkeypatch.setattr(compiler, "compiler_version", lambda: "NVRTC 13.1")
    assert answer().compiler == "NVRTC 13.1"
    assert len(compilations) == 2


def test_a_source_in_a_folder_is_named_by_its_file_name(tmp_path):
    source = ANSWER.replace("ANSWER *", "(int)sizeof(__FILE__) *")
    with_folder, without = (compile(source, "answer.cu", folder=folder) for folder in (tmp_path, None))
    assert with_folder.text == without.text
    with pytest.raises(
        CompileError, match=r"^answer\.cu does not compile:\nanswer\.cu\(4\): error"
    ) as caught:
        compile(ANSWER.replace(";", ""), "answer.cu", {"ANSWER": 1}, folder=tmp_path)
    assert str(tmp_path) not in str(caught.value)


def test_user_options_override_defaults(ptx_cache, compilations):
    source = 'extern "C" __global__ void f(float* x) { x[0] = x[1] * x[2] + x[3]; }'
    assert "fma.rn.f32" in compile(source, "f.cu", options=["-fmad=true"]).text
    assert "fma.rn.f32" not in compile(source, "f.cu").text
    assert len(compilations) == 2
    assert "-fmad=false" not in compilations[0][3]
    assert "-lineinfo" in compilations[0][3]


def test_repeated_options_give_no_warning(ptx_cache, compilations):
    ptx = answer(options=["-fmad=true", "--fmad=false", "-std=c++20", "-maxrregcount=32", "-maxrregcount=64"])
    assert ptx.log == ""
    assert [option for option in compilations[0][3] if "fmad" in option] == ["--fmad=false"]
    assert [option for option in compilations[0][3] if "std" in option] == ["-std=c++20"]


def test_a_deleted_working_directory_does_not_stop_compilation(ptx_cache, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert answer() == answer()
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_package_files_are_compiled_by_path(ptx_cache, compilations):
    source = (importlib.resources.files("gpu") / "bmm/pack.cu").read_text()
    defines = {"ELEMENT_INT8": "", "WORD_64": "", "FIRST_LSB": ""}
    one, other = compile_file("bmm/pack.cu", defines), compile(source, "bmm/pack.cu", defines)
    assert one == other == packing_ptx("int8", 64, "lsb", (9, 0))
    assert len(compilations) == 1
    assert set(compilations[0][2]) == {"bmm/warp.cuh"}


def test_headers_of_the_products_are_part_of_the_key(ptx_cache, compilations):
    compiler._compiled.cache_clear()  # a file is read once in a process
    product_ptx(SCHEMES["bmms32"], "int", "msb", (9, 0))
    assert set(compilations[0][2]) == {"bmm/output.cuh", "bmm/sums.cuh", "bmm/warp.cuh"}


@pytest.mark.parametrize("stop", [OSError("disk full"), KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("moment", ["write", "rename"])
def test_a_failed_write_leaves_no_file(ptx_cache, monkeypatch, stop, moment):
    def fail(*args, **kwargs):
        raise stop

    if moment == "rename":
        monkeypatch.setattr(Path, "replace", fail)
    else:
        monkeypatch.setattr("reference.files._lock", fail)
    if isinstance(stop, OSError):
        assert ".entry answer" in answer().text  # an unwritable cache is not an error
    else:
        with pytest.raises(type(stop)):
            answer()
    assert list(ptx_cache.iterdir()) == []


@pytest.mark.parametrize("parent", ["a file", "/proc"])
def test_an_unwritable_cache_folder_is_not_an_error(monkeypatch, tmp_path, compilations, parent):
    if parent == "a file":
        parent = tmp_path / "file"
        parent.write_text("in the way")
    monkeypatch.setenv("SIMWARP_CACHE", str(Path(parent) / "cache"))
    assert answer() == answer()
    assert len(compilations) == 2


def test_a_failed_compilation_is_not_cached(ptx_cache):
    with pytest.raises(CompileError):
        compile("nonsense", "nonsense.cu")
    assert not ptx_cache.exists() or list(ptx_cache.iterdir()) == []
