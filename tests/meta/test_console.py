"""The commands of the pages run, and print what the pages show."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from simwarp.cli import main
from support.sources import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TENSOR = "1 1 1 2.0\n2 3 1 -1.5\n"
NOT_RUN = {
    r"(\S*/)?pip |python3 -m venv|git clone|make ": "it installs, fetches, or runs all tests",
    r".*--device[ =](cuda|both)|simwarp record (?!--list)|pytest .*-profile=gpu": "it needs a GPU",
    r".*\bpython \S*benchmarks/": "a measurement takes minutes, and the programs of others",
    r"nvcc |.*\./program": "it needs a toolkit",
    r".*(FILE|\bA B|A\.npy|my\.ptx|my_kernel\.cu|model\.h5|vgg_cifar10|digits\.safe)": "a file of the reader",
    r".*(my|saxpy|reduce)\.cu": "test_newcomer.py and tests of `run` and `check` have such kernels",
    r"simwarp exec |python -m simwarp\.numba": "tests/exec has these programs",
    r"python examples/": "tests of examples run them",
    r"simwarp (fuzz|verify|probe|bench|info|ooc (train|bench)|blas bench|net study)": "it takes many seconds",
    r"simwarp coverage": "tests of `coverage` list its forms, which takes seconds",
    r"(\w+=\S+ )*LD_PRELOAD=": "tests of the library run R and Octave where they are installed",
    r"simwarp cache clear": "it deletes the reader's cache",
    r"pytest ": "tests of the plugin run such sessions",
}
"""How a command begins that this test does not run → why."""


def commands(page: str) -> Iterator[tuple[str, str]]:
    """Each command of the console blocks of a page, and what the page shows below it."""
    for block in re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = re.sub(r"\\\n\s*", "", part).partition("\n")
            yield command.replace(".venv/bin/", ""), output.strip()


def why_not(command: str) -> str | None:
    """The first of the beginnings in NOT_RUN that a command has."""
    return next((start for start in NOT_RUN if re.match(start, command)), None)


def shows(printed: str, output: str) -> bool:
    """Whether a command printed the lines that a page shows, where "…" stands for anything."""
    escaped = re.sub(r"([\[*?])", r"[\1]", "\n".join(line.rstrip() for line in output.splitlines()))
    lines = "\n".join(line.rstrip() for line in printed.splitlines())
    return fnmatchcase(lines, "*" + escaped.replace("…", "*") + "*")


RUN = {
    (command.partition(" #")[0].strip(), output): page.name
    for page in PAGES
    for command, output in commands(page.read_text())
    if why_not(command) is None
}
"""A command and its output → the last page that has them."""


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(set(RUN.values())))
def test_the_commands_of_a_page_print_what_it_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tensor.tns").write_text(TENSOR)
    (tmp_path / "tensor.tns.gz").write_text(TENSOR)
    for (command, output), name in RUN.items():
        if name == page:
            program, *words = shlex.split(command)
            assert program == "simwarp", f"{command}: run it here, or say in NOT_RUN why not"
            assert main(words) == 0, f"{command}: {capsys.readouterr().err}"
            printed = capsys.readouterr().out
            assert shows(printed, output), f"{command} prints\n{printed}\n{page} shows\n{output}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "file"),
    [("testing", "test_product.py"), ("padding", "test_mine.py"), ("padding", "test_kernel.py")],
)
def test_the_tests_of_a_page_run_as_printed(name: str, file: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / f"{name}.md").read_text()
    (source,) = re.findall(rf"^```python\n(# {re.escape(file)}\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / file).write_text(source)
    command, output = next(found for found in commands(page) if found[0].startswith(f"pytest {file}"))
    words = [*shlex.split(command), "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    session = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shows(session.stdout, output or "1 passed"), session.stdout + session.stderr


def test_each_reason_is_needed() -> None:
    used = {why_not(command) for page in PAGES for command, _ in commands(page.read_text())}
    assert [start for start in NOT_RUN if start not in used] == []


def test_a_command_has_its_lines_and_its_output() -> None:
    page = "```console\n$ .venv/bin/a \\\n    --b\nx …\n\n[1]\n$ c\n```\n```python\n$ d\n```\n"
    assert list(commands(page)) == [("a --b", "x …\n\n[1]"), ("c", "")]
    assert shows("x 12  \n\n[1]\nmore", "x …\n\n[1]")
    assert not shows("x 12\n1", "x …\n\n[1]")
