"""Tables of modules: the folder table of docs/architecture.md, and those in docstrings of packages."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from support.sources import PACKAGES, ROOT, source_files


def children(folder: Path) -> set[str]:
    """The modules and packages of a folder, by their names."""
    files = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    return files | {path.parent.name for path in folder.glob("*/__init__.py")}


def listed_on_the_page(page: str) -> set[str]:
    """The modules and packages below the three tiers in the first column of the folder table."""
    table = page.partition("## Which folder holds what")[2].partition("\n\nNo two")[0]
    found: set[str] = set()
    for row in re.findall(r"^\| (`.*?) \|", table, re.M):
        tier = ""
        for name in re.findall(r"`([\w./]+)`", row):
            tier, path = name.split("/", 1) if name.split("/")[0] in PACKAGES else (tier, name)
            found.add(f"{tier}/{path.strip('/').removesuffix('.py')}")
    return found


def unlisted(docstring: str, modules: set[str]) -> set[str]:
    """The modules that a package's table lacks; a table of other names, such as functions, lacks none."""
    table = re.search(r"^=+ +=+\n(.*?)^=+ +=+$", docstring, re.S | re.M)
    names = set(re.findall(r"(?<!`)`(\w+)`", table[1])) if table else set[str]()
    return modules - names if 2 * len(names & modules) > len(names) else set()


def test_the_folder_table_lists_every_module_below_the_tiers() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    modules = {f"{tier}/{name}" for tier in PACKAGES for name in children(ROOT / tier)}
    listed = listed_on_the_page(page)
    assert modules - listed == set()
    assert {name for name in listed - modules if not (ROOT / name).is_dir()} == set()


def test_a_package_with_a_table_of_modules_lists_them_all() -> None:
    lacking: dict[str, set[str]] = {}
    for path in source_files(*PACKAGES):
        if path.name == "__init__.py":
            docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
            lacking[str(path.relative_to(ROOT))] = unlisted(docstring, children(path.parent))
    assert "simwarp/lab/__init__.py" in lacking
    assert {name: modules for name, modules in lacking.items() if modules} == {}


def test_a_planted_unlisted_module_is_reported() -> None:
    table = "Rooms.\n\n====  ====\n`a`   one\n`b`   two, a `Class`\n====  ===="
    assert unlisted(table, {"a", "b"}) == set()
    assert unlisted(table, {"a", "b", "c"}) == {"c"}
    assert unlisted(table.replace("`", "``"), {"a", "b", "c"}) == set()
    page = "## Which folder holds what\n\n"
    page += "| `gpu/a.py`, `b/` | x | `gpu/c.py` |\n| `simwarp/d/` | y | |\n\nNo two"
    assert listed_on_the_page(page) == {"gpu/a", "gpu/b", "simwarp/d"}
