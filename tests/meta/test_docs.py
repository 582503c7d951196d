"""The documentation is complete, and its examples run."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import inspect
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpu.chips import CHIPS, Chip
from support.offenders import check_each, every_case
from support.pages import page_module
from support.sources import PACKAGES, ROOT, module_name, parsed, source_files

INSTRUCTIONS = "simwarp.ptx.instructions."
FEWEST_DOCSTRING_EXAMPLES = 60
FEWEST_PAGE_EXAMPLES = 8
MANY = 3
"""Parameters of a function that its summary cannot explain."""


def sources(*packages: str) -> list[Path]:
    """The source files of all modules that can be imported."""
    return [path for path in source_files(*(packages or PACKAGES)) if path.name != "__main__.py"]


# --------------------------------------------------------------------------------------------------
# Docstrings
# --------------------------------------------------------------------------------------------------


def undocumented(source: str, module: str) -> list[str]:
    """Public names of a module that have no docstring."""
    tree = parsed(source)
    found = [] if ast.get_docstring(tree) or not tree.body else [f"{module} has no docstring"]
    return found + list(_undocumented(tree, module, module))


def _undocumented(scope: ast.Module | ast.ClassDef, name: str, module: str) -> Iterator[str]:
    for node in scope.body:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if node.name.startswith("_") or _explained_elsewhere(node.decorator_list, module):
            continue
        full = f"{name}.{node.name}"
        if not ast.get_docstring(node) and not _is_described_by_class(node):
            yield f"{full}, line {node.lineno}, has no docstring"
        if isinstance(node, ast.ClassDef):
            yield from _undocumented(node, full, module)


def _explained_elsewhere(decorators: list[ast.expr], module: str) -> bool:
    """Whether another object documents this one: an overload, a setter, or the row of a PTX instruction."""
    if module.startswith(INSTRUCTIONS) and any(isinstance(decorator, ast.Call) for decorator in decorators):
        return True
    written = [ast.unparse(decorator) for decorator in decorators]
    return any(re.match(r"(typing\.)?overload$|.*\.setter$", decorator) for decorator in written)


def _is_described_by_class(node: ast.stmt) -> bool:
    """Whether this is a property of a protocol, ``...``, which the class describes like an attribute."""
    if not isinstance(node, ast.FunctionDef) or [ast.unparse(statement) for statement in node.body] != [
        "..."
    ]:
        return False
    return any(ast.unparse(decorator).endswith("property") for decorator in node.decorator_list)


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_documented(package: str) -> None:
    check_each(check_docstrings, sources(package), module_name)


def check_docstrings(path: Path) -> None:
    found = undocumented(path.read_text(), module_name(path))
    assert not found, "; ".join(found)


def test_missing_documentation_is_reported() -> None:
    source = (
        '"""A module."""\n'
        "def f(): pass\n"
        "def _private(): pass\n"
        'class A:\n    """A class."""\n    def g(self): pass\n    def _h(self): pass\n'
    )
    assert undocumented(source, "m") == [
        "m.f, line 2, has no docstring",
        "m.A.g, line 6, has no docstring",
    ]
    assert undocumented("x = 1", "m") == ["m has no docstring"]
    protocol = '"""M."""\nclass A(Protocol):\n    """With b."""\n    @property\n    def b(self) -> int: '
    assert undocumented(protocol + "...", "m") == []
    assert undocumented(protocol + "return 1", "m") == ["m.A.b, line 5, has no docstring"]


def test_every_table_row_describes_its_function() -> None:
    source = (
        '"""A module."""\n'
        '@row("add.T", summary="sum")\ndef add(): pass\n'
        '@_both("sub.T", "difference")\n@_both("sub.U", "difference")\ndef sub(): pass\n'
        "@cache\ndef helper(): pass\n"
        "def other_helper(): pass\n"
    )
    module = f"{INSTRUCTIONS}integer"
    assert undocumented(source, module) == [
        f"{module}.{name}, line {line}, has no docstring"
        for name, line in (("helper", 8), ("other_helper", 9))
    ]
    assert undocumented(source, "m") == [
        f"m.{name}, line {line}, has no docstring"
        for name, line in (("add", 3), ("sub", 6), ("helper", 8), ("other_helper", 9))
    ]


@cache
def public_packages() -> list[str]:
    """Each package or module that has an API page."""
    marker = page_module().NAMES_MARKER
    pages = sorted((ROOT / "docs" / "api").glob("*.md"))
    return sorted(found for page in pages for found in marker.findall(page.read_text()))


def unexplained(value: Any) -> list[str]:
    """The parts that the docstring of a public function or class lacks."""
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value):
        shown = (
            issubclass(value, BaseException)
            or re.search("Attributes|Parameters|>>>", text)
            or issubclass(value, tuple)
        )
        return [] if shown else ["Attributes"]
    if not inspect.isfunction(value):
        return []
    parameters = inspect.signature(value).parameters
    if "Warp" in str(next(iter(parameters.values()), "")):  # a kernel: its launch is the example
        return []
    lacks = [] if len(parameters) < MANY or "Parameters" in text else ["Parameters"]
    return lacks if ">>>" in text else [*lacks, "an example (>>>)"]


@pytest.mark.slow
def test_dir_of_a_package_is_its_public_names() -> None:
    """Before its first use, in a fresh process, and when all of them have been used."""
    packages = sorted(public_packages())
    done = subprocess.run(
        [sys.executable, "-c", DIR_OF_PACKAGES, *packages],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    wrong, right = json.loads(done.stdout)
    assert wrong == []
    assert {
        "gpu",
        "gpu.bmm",
        "reference",
        "reference.types",
        "simwarp",
        "simwarp.draw",
        "simwarp.run",
    } <= set(right)


DIR_OF_PACKAGES = """
import json, sys
from importlib import import_module
from reference.errors import MissingExtraError

packages = []
for name in sys.argv[1:]:
    try:
        packages.append(import_module(name))
    except MissingExtraError:
        pass
packages = [one for one in packages if hasattr(one, "__all__")]
wrong = [one.__name__ for one in packages if dir(one) != sorted(one.__all__)]
for one in packages:
    for name in dir(one):
        try:
            getattr(one, name)
        except MissingExtraError:
            pass
wrong += [one.__name__ for one in packages if dir(one) != sorted(one.__all__)]
print(json.dumps([wrong, [one.__name__ for one in packages]]))
"""


@pytest.mark.parametrize("package", public_packages())
def test_public_docstrings_are_complete(package: str) -> None:
    names = page_module().names_of(package)
    found = {name: unexplained(getattr(load(package), name)) for name in names}
    assert names
    assert not {name: lacks for name, lacks in found.items() if lacks}


def test_an_incomplete_docstring_is_reported() -> None:
    def bare(x: int, y: int, z: int) -> None:
        """A docstring of one line."""

    def whole(x: int, y: int, z: int) -> None:
        """One line.

        Parameters
        ----------
        x, y, z : int

        Examples
        --------
        >>> whole(1, 2, 3)
        """

    assert unexplained(bare) == ["Parameters", "an example (>>>)"]
    assert unexplained(whole) == []


# --------------------------------------------------------------------------------------------------
# Examples in docstrings
# --------------------------------------------------------------------------------------------------


def load(name: str) -> ModuleType:
    """Import a module of ours; skip the test if an optional dependency of it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if (error.name or "").partition(".")[0] in ("", *PACKAGES):
            raise
        pytest.skip(f"{name} needs {error.name}, which is not installed")


@pytest.mark.slow_cases(
    "simwarp.testing.strategies",
    "simwarp.testing.convolutions",
    "simwarp.testing.geometries",
    "simwarp.lab.fuzz.workers",
)
@pytest.mark.parametrize("path", [p for p in sources() if ">>>" in p.read_text()], ids=module_name)
def test_docstring_examples_run(path: Path) -> None:
    module = load(module_name(path))
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    report: list[str] = []
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, module.__name__):
        runner.run(example, out=report.append)
    assert runner.failures == 0, "".join(report)
    assert runner.tries > 0, "the examples were not found by doctest: is the function wrapped?"


def test_there_are_enough_docstring_examples() -> None:
    parser = doctest.DocTestParser()
    examples = [example for path in sources() for example in parser.get_examples(path.read_text())]
    assert len(examples) >= FEWEST_DOCSTRING_EXAMPLES


# --------------------------------------------------------------------------------------------------
# Pages
# --------------------------------------------------------------------------------------------------

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = re.compile(r"^<!-- run -->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""A block that is marked runs; the blocks of a page share their names."""
INSTALL = re.compile(r"pip install (?:--?[a-z]+ )*'([^'\[]+)\[([^'\]]+)\]'")
"""A command that installs extras: of what, and their names."""


@pytest.mark.slow_cases("testing", "mttkrp")
@pytest.mark.parametrize("page", [p for p in PAGES if RUN.search(p.read_text())], ids=lambda p: p.stem)
def test_page_examples_run(page: Path) -> None:
    for package in PACKAGES:
        load(package)
    text = page.read_text()
    names: dict[str, Any] = {}
    for block in RUN.finditer(text):
        line = text.count("\n", 0, block.start(1))
        exec(compile("\n" * line + block[1], str(page), "exec"), names)


def test_there_are_enough_page_examples() -> None:
    texts = [page.read_text() for page in PAGES]
    assert sum(len(RUN.findall(text)) for text in texts) >= FEWEST_PAGE_EXAMPLES
    # Every anchor must be a visible one.
    assert sum(len(RUN.findall(text)) for text in texts) == sum(text.count("<!-- run -->") for text in texts)


def test_every_page_installs_extras_from_a_checkout() -> None:
    """The package index has no simwarp before the first release."""
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = [(page.stem, line) for page in PAGES for line in page.read_text().splitlines()]
    installs = [(page, *found) for page, line in lines for found in INSTALL.findall(line)]
    wrong = [
        (page, project, extras)
        for page, project, extras in installs
        if project != "." or not set(extras.split(",")) <= set(metadata)
    ]
    assert len(installs) >= 12
    assert wrong == []


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"^ +- [^:\n]+: ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    docs = ROOT / "docs"
    assert sorted(listed) == sorted(p.relative_to(docs).as_posix() for p in docs.rglob("*.md"))


def test_the_readme_names_the_two_commands() -> None:
    console = re.search(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert console is not None
    commands = re.findall(r"^\$ make (\w+)$", console[1], re.MULTILINE)
    assert commands == ["verify", "test"]
    makefile = (ROOT / "Makefile").read_text()
    for command in commands:
        assert re.search(rf"^{command}:", makefile, re.MULTILINE)


# --------------------------------------------------------------------------------------------------
# The generated parts
# --------------------------------------------------------------------------------------------------


def test_an_instruction_row_becomes_a_table_line() -> None:
    row = SimpleNamespace(
        section="9.7.1.1", types=("u32", "s32"), fidelity="exact", minimum_sm=50, summary="d = a | b"
    )
    assert page_module().table({"add": row}).splitlines()[2:] == [
        r"| `add` | 9.7.1.1 | `.u32` `.s32` | exact | sm_50 | d = a \| b |"
    ]


def test_the_ptx_page_lists_every_row() -> None:
    from simwarp.ptx.instructions import ROWS

    page = (ROOT / "docs" / "ptx.md").read_text()
    assert page.count(page_module().ROWS_MARKER) == 1
    rendered = page_module().on_page_markdown(page, page=None, config=None, files=None)
    assert page_module().ROWS_MARKER not in rendered
    assert len(ROWS) >= 40
    assert all(f"\n| `{name}` |" in rendered for name in ROWS)


def test_names_are_read_where_a_package_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> ModuleType:
        raise ImportError("torch is not installed", name="torch")

    own, read = page_module(), page_module()
    monkeypatch.setattr(read, "import_module", missing)
    assert read.names_of("gpu.bnn") == own.names_of("gpu.bnn")
    assert "export" in own.names_of("simwarp.torch")


def test_a_package_of_ours_that_cannot_be_imported_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reference.blas3", None)
    with pytest.raises(ImportError):
        page_module().names_of("reference.blas3")


def test_pages_without_markers_are_unchanged() -> None:
    assert page_module().on_page_markdown("# Other\n", page=None, config=None, files=None) == "# Other\n"


def test_the_mttkrp_page_has_the_figures_of_its_benchmark() -> None:
    page = (ROOT / "docs" / "mttkrp.md").read_text()
    assert page.count(page_module("page_results").MTTKRP_MARKER) == 1
    rendered = page_module().on_page_markdown(page, page=None, config=None, files=None)
    assert "| `f-coo` | **" in rendered
    peers = {"A (1999-01-01)": 4.0}
    rows = [
        {"case": "mttkrp/x/r32-f32", "ours": 1.5, "peers": peers},
        {"case": "mttkrp-coo/x/r32-f32", "ours": 2.25, "peers": peers},
        {"case": "mttkrp-f-coo/x/r32-f32", "ours": 1.5, "peers": peers},
        {"case": "cpd/x/r32-f32", "ours": 3.0, "peers": {}},
    ]
    assert page_module("page_results").mttkrp_table(rows).splitlines() == [
        "| | x |",
        "|---|---|",
        "| `f-coo` | **1.50** |",
        "| `coo` | 2.25 |",
        "| A (1999-01-01) | 4.00 |",
        "| an iteration of `gpu.cpd_als` | 3.00 |",
    ]


def test_the_page_of_both_devices_lists_the_public_kernels() -> None:
    page = (ROOT / "docs" / "both.md").read_text()
    results = page_module("page_results")
    assert page.count(results.BOTH_MARKER) == 1
    rendered = page_module().on_page_markdown(page, page=None, config=None, files=None)
    assert "| lxxue/prefix_sum | `prescan_arbitrary` | exact | equal bits |" in rendered
    kernel = {"repository": "own/er", "kernel": "a", "simulator_calls_it": "exact", "equal_bits": True}
    far = kernel | {"simulator_calls_it": "free", "equal_bits": False, "equal_without_fusion": True}
    near = far | {"simulator_calls_it": "bounded", "equal_without_fusion": None}
    assert results.both_table([kernel, kernel | {"kernel": "b"}, far, near]).splitlines()[2:] == [
        "| own/er | `a`, `b` | exact | equal bits |",
        "| own/er | `a` | free | within the bound; equal with `-fmad=false` |",
        "| own/er | `a` | bounded | within the bound |",
    ]
    kernels = [row["params"] for row in json.loads(results.BOTH_RESULTS.read_text())["rows"]]
    assert len(kernels) >= 30
    assert all(one["within_the_bound"] for one in kernels)
    assert all(one["equal_bits"] for one in kernels if one["simulator_calls_it"] == "exact")


def test_the_benchmark_page_lists_the_public_kernels() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert page.count(page_module("page_results").STRANGERS_MARKER) == 1
    rendered = page_module().on_page_markdown(page, page=None, config=None, files=None)
    assert "| `MatrixMulAsyncCopySingleStage` | cuda::pipeline of a thread | yes | yes | | |" in rendered
    right = {
        "kernel": "a",
        "form": "f",
        "waits_for": "",
        "runs": True,
        "agrees": True,
        "findings": [],
        "bugs": [],
    }
    wrong = right | {
        "agrees": False,
        "findings": ["Race: x", "Race: y", "CopyInFlight: z"],
        "bugs": ["p", "q"],
    }
    waits = right | {"runs": False, "agrees": False, "waits_for": "wgmma"}
    params = {"commit": "0123456789", "kernels": [right, wrong, waits]}
    assert page_module("page_results").strangers_table(
        [{"case": "strangers/own/er", "params": params}]
    ).splitlines()[2:] == [
        "| **own/er**, at 0123456 | | | | | |",
        "| `a` | f | yes | yes | | |",
        "| `a` | f | yes | no | 2 `Race`, 1 `CopyInFlight` | p; q |",
        "| `a` | f | waits for wgmma | | | |",
    ]


def test_the_benchmark_page_lists_the_labelled_kernels() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert page.count(page_module("page_results").LABELLED_MARKER) == 1
    rendered = page_module().on_page_markdown(page, page=None, config=None, files=None)
    assert "| `warpsync/shuffle`, right | default | a race since Volta" in rendered
    named, silent = (
        {"kernel": "a", "named": "default", "reason": ""},
        {"kernel": "b", "named": "", "reason": ""},
    )
    faulty = {"ways": {"default": 1}, "kernels": [named, silent | {"reason": "not run"}]}
    right = {"ways": {"default": 1}, "kernels": [silent, named | {"reason": "true"}]}
    assert page_module("page_results").labelled_tables(
        [
            {"case": "strangers/s/faulty", "params": faulty, "ours": 1, "target": 1},
            {"case": "strangers/s/right", "params": right, "ours": 2, "target": 2},
        ]
    ).splitlines() == [
        "| suite | as expected | default |",
        "|---|---|---|",
        "| **s**, faulty | 1 of 1 | 1 |",
        "| **s**, right | 2 of 2 | 1 |",
        "",
        "| kernel | named | why |",
        "|---|---|---|",
        "| `b`, faulty | no | not run |",
        "| `a`, right | default | true |",
    ]


def columns_of(table: str) -> dict[str, list[str]]:
    """The cells of each column of a table in Markdown."""
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    return {head: [line[i] for line in lines[2:]] for i, head in enumerate(lines[0])}


@pytest.mark.parametrize(("operation", "of"), [("bmm", "products"), ("bconv2d", "convolutions")])
def test_the_page_of_kernels_has_every_preference(operation: str, of: str) -> None:
    page = (ROOT / "docs" / "which-kernel.md").read_text()
    assert page.count(f"<!-- kernels of {operation} -->") == 1
    table = page_module().kernels_of(operation)
    assert table in page_module().on_page_markdown(page, page=None, config=None, files=None)
    columns = columns_of(table)
    for chip, entry in CHIPS.items():
        if chip >= (7, 5):
            shown = {cell.strip("`") for cell in columns[f"from sm_{chip[0]}{chip[1]}"]}
            assert set(getattr(entry, of)) <= shown


def test_the_page_of_kernels_follows_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHIPS, (8, 9), Chip(("btc1", "bmm32", "bmms64"), ("bconv32",), "emulates"))
    for operation, name in (("bmm", "btc1"), ("bconv2d", "bconv32")):
        cells = columns_of(page_module().kernels_of(operation))["from sm_89"]
        assert cells[0] == f"`{name}`"


def speed(case: str, ours: float, target: float | None = None, **peers: float) -> dict[str, Any]:
    """A row of the benchmark of bits."""
    same = {"unit": "TOPS", "better": "higher"}
    return {"case": case, "ours": ours, "target": target, "peers": peers, **same}


def test_the_figures_of_bits_are_bars_and_tables() -> None:
    rows = [
        speed("bmm-bits/64", 900.0, 1000.0, other=500.0, third=950.0),
        speed("bmm-bits/64-sustained", 800.0, 700.0),
        speed("bmm-int32/64", 990.0, other=500.0, third=950.0),
        speed("bmm-f16/64", 100.0, other=500.0),
        speed("first-call", 2.0, 1.0) | {"unit": "s", "better": "lower"},
    ]
    meta = {"gpu": "H200", "date": "2026-01-02", "commit": "0123456789", "parts": 3}
    shown = page_module("page_results").bits_results({"meta": meta, "rows": rows})
    assert re.findall(r'<rect class="(\w+)" x="250"', shown) == ["ours", "peer", "ours", "peer"]
    assert shown.partition("</figure>\n")[2].strip().splitlines() == [
        "| TOPS | ours | sustained | target | other | third |",
        "|---|---|---|---|---|---|",
        "| `bmm-bits/64` | 900 † | 800 | 1,000 | 500 | **950** |",
        "| `bmm-int32/64` | **990** |  |  | 500 | 950 |",
        "| `bmm-f16/64` | 100 |  |  | **500** |  |",
        "",
        "| | ours | target |",
        "|---|---|---|",
        "| `first-call`, s | 2 † | 1 |",
        "",
        "H200, 2026-01-02, commit 0123456, medians of 3 files.",
    ]


@pytest.mark.parametrize("measured", [True, False])
def test_the_benchmark_page_needs_no_figures_of_bits(tmp_path: Path, measured: bool) -> None:
    page, made = (ROOT / "docs" / "benchmarks.md").read_text(), page_module("page_results")
    assert page.count(made.BITS_MARKER) == 1
    made.BITS_RESULTS = [tmp_path / "bits.json"]
    if measured:
        meta = {"gpu": "H200", "date": "2026-01-02", "commit": "0123456789"}
        made.BITS_RESULTS[0].write_text(json.dumps({"meta": meta, "rows": [speed("bmm-bits/64", 9.0)]}))
    rendered = made.filled(made.BITS_MARKER)
    assert ("| `bmm-bits/64` | 9 |" in rendered) is measured
    assert ("Not measured yet" in rendered) is not measured


def test_captured_calls_have_lines_of_their_own_in_the_table_of_calls() -> None:
    def row(kind: str, case: str, ours: float, **params: str) -> dict[str, Any]:
        return {"case": f"{kind}/{case}", "ours": ours, "target": 5.0, "params": params, "peers": {}}

    rows = [
        row("door", "bmm/auto/8/prepared", 4.0, operands="prepared"),
        row("door-host", "bmm/auto/8/prepared", 3.0, operands="prepared"),
        row("door-graph", "bmm/8", 6.0),
    ]
    rows = [row("door", "bmm/auto/8/prepared", 9.0, operands="prepared"), *rows]  # of an older file
    assert page_module("page_results").door_table(rows).splitlines()[2:] == [
        "| `bmm/auto/8` | 4 (3) |  |  |  |  |",
        "| `bmm/8, in a graph` | 6 † |  |  |  |  |",
    ]


def cells_of(drawn: str) -> list[list[str]]:
    """The cells of each row of boxes in the text of a picture."""
    rows = [line for line in drawn.splitlines() if "|" in line]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]


def test_the_picture_of_a_swizzle_has_the_stage_of_the_listing() -> None:
    from simwarp.listings.wgmma import CHUNK, SPAN, swizzled_stage

    lines = np.repeat(np.arange(64, dtype=np.uint8), CHUNK).reshape(8, SPAN)
    before, after = (stage[:, ::CHUNK].astype(str).tolist() for stage in (lines, swizzled_stage(lines)))
    drawn = cells_of(page_module("page_pictures").swizzle_of(128))
    assert [row[:8] for row in drawn] == before
    assert [row[-8:] for row in drawn] == after
    assert [row[-2:] for row in cells_of(page_module("page_pictures").swizzle_of(32))][:5] == [
        *(["0", "1"], ["2", "3"], ["4", "5"], ["6", "7"]),
        ["9", "8"],
    ]


def test_the_picture_of_a_quad_ends_with_whole_words() -> None:
    rows = cells_of(page_module("page_pictures").quad_of())
    assert rows[4:] == [
        ["w0: 0 1", "w1: 0 1", "w0: 2 3", "w1: 2 3"],
        ["w2: 0 1", "w3: 0 1", "w2: 2 3", "w3: 2 3"],
        [f"w{word}: 0 1 2 3" for word in range(4)],
    ]


@pytest.mark.slow
def test_the_picture_of_a_ring_has_its_stages_in_turn() -> None:
    drawn = page_module("page_pictures").ring_of(64, 64, 2048).splitlines()[:2]
    assert [line[:9] for line in drawn] == ["stage 0  ", "stage 1  "]
    assert drawn[0].index("#") < drawn[1].index("#")
    assert "<svg" in page_module("page_pictures").ring_of(64, 64, 2048, svg=True)


def test_a_fragment_is_cut_to_the_most_rows() -> None:
    instruction = "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc"
    drawn = page_module("page_pictures").fragment_of(instruction, "d", registers=False, most=(6, 8))
    assert "⋮" in drawn


def test_the_page_of_blas_has_its_pictures_and_efficiencies() -> None:
    page = (ROOT / "docs" / "blas3.md").read_text()
    rendered = page_module().on_page_markdown(page, page=None, config=None, files=None)
    assert rendered.count("<svg") == len(re.findall("<!-- (draw blas-|speeds |traces )", page)) == 8
    assert not re.search("<!-- (draw|speeds|traces)", rendered)
    assert re.search(r"^\| DGEMM \| 93\.53 \|( \d\d\.\d \|){4}$", rendered, re.MULTILINE)
    life = page_module("page_pictures").blas_life_of("dgemm", 8192, 2048, "H200x2").splitlines()
    steps = ("first tile has", "first routine", "from another GPU instead", "first tile of", "last tile of")
    assert [step in line for step, line in zip(steps, life, strict=True)] == [True] * 5


def test_the_page_of_larger_convolutions_has_its_pictures_and_table_4() -> None:
    page = (ROOT / "docs" / "outofcore.md").read_text()
    rendered = page_module().on_page_markdown(page, page=None, config=None, files=None)
    assert page.count("<!-- draw ooc-") == 4
    assert rendered.count("<svg") == 5  # and bars
    assert not re.search("<!-- (draw|ooc)", rendered)
    assert re.search(
        r"^\| n=512, c=64, 256×256 \| 2681 \| \d+ \| 2383 \| \d+ \| 2721 \| \d+ \|$", rendered, re.MULTILINE
    )
    assert "conv1_2 (64 × 64): HtoD 1.385 s, computation 0.499 s, DtoH 1.385 s" in rendered


def test_the_page_of_training_has_the_timeline_of_a_step() -> None:
    drawn = page_module("page_pictures").training_step_of(32, 60_000)
    plan, times = drawn.splitlines()[0], drawn.splitlines()[-2:]
    assert plan.startswith("3 segments, 32 images")
    assert [line.partition(":")[0] for line in times] == ["model", "sim"]
    assert times[0].partition(":")[2] == times[1].partition(":")[2]
    assert "<svg" in page_module("page_pictures").training_step_of(32, 60_000, svg=True)


def test_a_line_of_table_4_has_the_printed_rate_and_ours() -> None:
    rows = [
        {"figure": "table 4", "case": "x", "printed": of * 1e9, "rate": of * 1.1e9} for of in (10, 20, 30)
    ]
    table = page_module("page_results").outofcore_table([*rows, {"figure": "figure 9"}])
    assert table.splitlines()[2:] == ["| x | 10 | 11 | 20 | 22 | 30 | 33 |"]


def test_an_efficiency_of_the_page_is_a_mean_over_sizes() -> None:
    rows = [
        {"routine": routine, "variant": variant, "devices": devices, "efficiency": efficiency / devices}
        for routine in page_module("page_results").EFFICIENCIES
        for variant in ("paper", "default")
        for devices in (1, 2, 3)
        for efficiency in (1.2, 1.8 if variant == "paper" else 0.6)
    ]
    table = page_module("page_results").efficiency_table(rows).splitlines()
    assert table[2] == "| DGEMM | 93.53 | 75.0 | 50.0 | 45.0 | 30.0 |"
    assert len(table) == 2 + 6


@every_case("page", sorted((ROOT / "docs" / "api").glob("*.md")))
def test_an_api_page_shows_every_public_name(page: Path) -> None:
    hooks = page_module()
    rendered = hooks.on_page_markdown(page.read_text(), page=None, config=None, files=None)
    package = rendered.splitlines()[0].removeprefix("# ")
    shown = re.findall(r"^::: ([\w.]+)$", rendered, re.MULTILINE)
    assert shown
    assert public_packages().count(package) == 1
    assert shown == [f"{package}.{name}" for name in hooks.names_of(package)]
