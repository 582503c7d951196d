"""Building of the runtime: what it exports, and what is said where something is missing."""

import shutil
from pathlib import Path

import pytest

from gpu.compiler.cuda_headers import cuda_folders
from reference.errors import CompileError, MissingExtraError
from simwarp.exec import build
from simwarp.exec.elf import read_elf
from simwarp.run import nvcc

needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None or not cuda_folders(), reason="a C compiler or the headers of CUDA are missing"
)


@needs_compiler
@pytest.mark.gate
def test_the_runtime_exports_every_function_of_the_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMWARP_CACHE", str(tmp_path))
    folder = build.runtime_folder()
    exported = set(read_elf(folder / build.SONAME).defined())
    for name in ("cudaMalloc", "cudaMallocMipmappedArray", "cudaMemcpyAsync_ptsz", "__cudaRegisterFatBinary"):
        assert name in exported
    header = (cuda_folders()[0] / "cuda_runtime_api.h").read_text(encoding="latin-1")
    declared = {line.partition("CUDARTAPI ")[2].partition("(")[0].strip() for line in header.splitlines()}
    assert len(declared) > 200
    assert {name for name in declared if name.startswith("cuda")} <= exported
    before = (folder / build.SONAME).stat().st_mtime_ns
    assert build.runtime_folder() == folder
    assert (folder / build.SONAME).stat().st_mtime_ns == before


@needs_compiler
def test_a_compiler_that_fails_is_an_error_with_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMWARP_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "_FLAGS", ("--no-such-flag",))
    with pytest.raises(CompileError, match="no-such-flag"):
        build.runtime_folder()
    assert not list(tmp_path.rglob("libcudart*"))


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingExtraError, match="cc or gcc"):
        build.runtime_folder()


def test_missing_headers_are_named_with_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "host_compiler", lambda *names: "cc")
    monkeypatch.setattr(build, "cuda_folders", tuple)
    with pytest.raises(MissingExtraError, match=r"simwarp\[compile\]"):
        build.runtime_folder()


def test_a_missing_nvcc_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CUDA_HOME", "/no/such/folder")
    monkeypatch.setattr(nvcc.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"simwarp\[nvcc\]"):
        nvcc.nvcc_command()
    assert not nvcc.has_nvcc()


def test_options_are_read_as_by_a_shell() -> None:
    assert build.read_options("-I '../my folder' -DN=1") == ["-I", "../my folder", "-DN=1"]
    with pytest.raises(CompileError, match="close the quotation"):
        build.read_options("-I '../my folder")
