"""The files at the root that outsiders read first, and those that their tools read."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ("README.md", "CONTRIBUTING.md", "SECURITY.md")


def test_links_of_the_root_files_resolve() -> None:
    links = {name: re.findall(r"\]\(([^):#]+)\)", (ROOT / name).read_text()) for name in TEXTS}
    assert links["README.md"]
    assert links["CONTRIBUTING.md"]
    broken = {(name, link) for name, found in links.items() for link in found if not (ROOT / link).exists()}
    assert not broken


def test_commands_of_the_root_files_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = {
        n
        for text in TEXTS
        for n in re.findall(r"^\$ make ([\w -]+?) *(?:#|$)", (ROOT / text).read_text(), re.M)
    }
    targets = {target for names in named for target in names.split()}
    assert {"verify", "test", "lint", "types"} <= targets
    assert {target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)} == set()


def test_the_workflow_runs_what_one_machine_runs_on_each_version_of_python() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert re.findall(r"- run: (.+)", workflow) == [".ci/run"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    classifiers = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    matrix = re.search(r"python: \[(.*)\]", workflow)
    assert matrix is not None
    assert re.findall(r"3\.\d+", matrix[1]) == classifiers


def test_hooks_before_a_commit_run_files_that_exist() -> None:
    entries = re.findall(r"entry: (.+)", (ROOT / ".pre-commit-config.yaml").read_text())
    files = {word for entry in entries for word in entry.split() if word.startswith("tests/")}
    assert files
    assert {file for file in files if not (ROOT / file).exists()} == set()


def test_files_of_the_reading_guide_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    guide = page.partition("## Where to begin reading\n")[2].partition("\n## ")[0]
    named = re.findall(r"`((?:simwarp|gpu|reference)/[\w/.]+)`", guide)
    assert len(named) >= 12
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_front_page_of_the_docs_is_the_readme_and_names_all_papers() -> None:
    page = (ROOT / "docs" / "index.md").read_text()
    assert page == "<!-- readme -->\n"
    readme = (ROOT / "README.md").read_text()
    papers = re.findall(r"doi: (10\.\S+)", (ROOT / "CITATION.cff").read_text())
    titles = re.findall(
        r"^    title: .*?(BLASX|ooc_cuDNN)", (ROOT / "CITATION.cff").read_text(), re.MULTILINE
    )
    assert [name for name in (*papers[:3], *titles) if name not in readme] == []
