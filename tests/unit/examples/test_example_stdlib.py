"""The tensor of examples/stdlib_tensor.py and its components, for a few modules."""

from __future__ import annotations

import importlib.util
import runpy
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import gpu
import simwarp
from reference.cpd import cpd_als
from reference.sparse import read_tns
from reference.types import Cpd, MmCsf

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "stdlib_tensor.py"
LIBRARY = Path(sysconfig.get_path("stdlib"))

MODULE = '''\
"""Words in strings and comments do not count: path join."""
import os  # nor this: path join
def split(self, path):
    return os.path.join(path, cls.end)
'''
NAMES = ["os", "split", "path", "os", "path", "join", "path", "end"]


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small standard library of our own modules."""
    folder = tmp_path / "lib"
    for name in ("html/__init__.py", "html/test/words.py", "html/tool.py", "other/words.py", "ast.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(MODULE)
    (folder / "html" / "tool.py").write_text("os.path\nos.path\nos.path\njoin\n")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(folder) if name == "stdlib" else "")
    return folder


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("example_stdlib", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *arguments])
    runpy.run_path(str(EXAMPLE), run_name="__main__")


def components(printed: str) -> list[tuple[set[str], set[str], set[str]]]:
    """The modules, names and following names of each component."""
    lines = [line.removeprefix("    ").removeprefix("then ") for line in printed.splitlines()[1:]]
    assert len(lines) % 3 == 0
    words = [set(line.split(", ")) for line in lines]
    return list(zip(words[::3], words[1::3], words[2::3], strict=True))


def test_only_identifiers_are_counted(library: Path) -> None:
    assert load().names(library / "ast.py") == NAMES


@pytest.mark.usefixtures("library")
def test_the_tensor_counts_consecutive_names() -> None:
    tensor, (modules, names, followers) = load().count("html ast absent")
    assert modules == ["ast", "html", "html.tool"]
    assert names == followers
    assert names[:3] == ["path", "os", "join"]  # 3 + 3 + 3, 2 + 2 + 3, 1 + 1 + 1 times
    assert tensor.shape == (3, 5, 5)
    counted = {
        (modules[m], names[i], names[j]): round(float(np.expm1(value)))
        for (m, i, j), value in zip(tensor.coords.T, tensor.values, strict=True)
    }
    ours = dict.fromkeys(pairwise(NAMES), 1)
    expected = {(m, *pair): count for m in ("ast", "html") for pair, count in ours.items()}
    tool = {("os", "path"): 3, ("path", "os"): 2, ("path", "join"): 1}
    assert counted == expected | {("html.tool", *pair): count for pair, count in tool.items()}
    assert len(ours) == 7


def test_components_of_real_modules_group_related_names(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(library)
    library.mkdir()
    for name in ("argparse", "ast", "posixpath", "shutil"):
        shutil.copy(LIBRARY / f"{name}.py", library)
    run(monkeypatch, str(tmp_path / "kept.tns"))
    printed = capsys.readouterr().out
    tensor = read_tns(tmp_path / "kept.tns")
    assert tensor.shape[0] == 4
    assert tensor.values.min() == np.log1p(1)
    message = f"{' x '.join(map(str, tensor.shape))}, {tensor.values.size} nonzeros: fit 0."
    assert printed.startswith(message)
    found = components(printed)
    assert len(found) == 16
    for module, *words in (
        ("argparse", "action", "dest"),
        ("ast", "node", "write"),
        ("shutil", "os", "path"),
    ):
        assert any(
            module in modules and names | followers >= set(words) for modules, names, followers in found
        ), printed


@pytest.mark.parametrize("device", ["sim", "cuda"])
@pytest.mark.usefixtures("library")
def test_the_script_runs_the_kernels(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], device: str
) -> None:
    chosen = {"sim": simwarp.Device(), "cuda": object()}
    monkeypatch.setattr(simwarp, "Device", lambda: chosen["sim"])
    monkeypatch.setattr(gpu, "CudaDevice", lambda: chosen["cuda"])
    calls = []

    def decompose(tensor: MmCsf, rank: int, *, device: Any) -> Cpd:
        calls.append((type(tensor), rank, device))
        return cpd_als(tensor, rank)

    monkeypatch.setattr(gpu, "cpd_als", decompose)
    run(monkeypatch)
    assert calls == []
    expected = capsys.readouterr().out
    run(monkeypatch, "--device", device)
    assert calls == [(MmCsf, 16, chosen[device])]
    assert capsys.readouterr().out == expected
    assert expected.startswith("3 x 5 x 5, 17 nonzeros: fit 1.000\n")
