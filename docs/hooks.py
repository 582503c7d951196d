"""What the pages take from elsewhere: PTX instructions, modules, kernels; and pictures and results."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

import page_microbenchmarks
import page_papers
import page_pictures
import page_results
from page_results import ROOT

ROWS_MARKER = "<!-- ptx rows -->"
NAMES_MARKER = re.compile(r"<!-- names of ([\w.]+) -->")
HEADER = "| instruction | PTX ISA | types | fidelity | from | what it does |\n|---|---|---|---|---|---|"
README_MARKER = "<!-- readme -->"
LOWERINGS_MARKER = "<!-- lowerings -->"
LOWERINGS_HEADER = "| instruction | sm_80 | sm_90 | |\n|---|---|---|---|"
LOWERINGS = (
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
    "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32",
    "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc",
    "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
    "wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32",
    "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32",
    "mma.sync.aligned.m16n8k64.row.col.s32.u4.u4.s32",
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32",
    "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
)
"""One of each kind that a chip has, and of each that sm_90 lacks."""
KERNELS_MARKER = re.compile("<!-- kernels of (bmm|bconv2d) -->")
PRODUCTS = {
    "up to 16 rows or columns; int32 or bits": ((16, 999, 999), "int32", "real"),
    "more rows and columns; int32 or bits": ((99, 99, 999), "words", "real"),
    "more rows and columns, K of 2^24 and more": ((99, 99, 2**24), "int32", "real"),
    "int16, float16, float32, or bits with `prepared=True`": ((16, 99, 999), "int16", "real"),
    'words of 32 bits, `first="msb"`': ((99, 99, 999), "int32", "msb32"),
    "words of 64 bits": ((99, 99, 999), "int32", "64"),
}
"""What a product is → sizes, output and format of an example; without a format real, lsb or lines."""
CONVOLUTIONS: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {
    "34 channels and more, more than 32 filters": ((34, 33), {}),
    "up to 32 channels": ((32, 33), {}),
    "bits of more than 2^24 − 1 products each": ((2**21, 33), {"bits": True}),
    "words of 64 bits": ((34, 33), {"word": 64}),
    "tiles of 8 × 128 bits (FSB)": ((34, 33), {"layouts": ("HWNC-FSB", "HWOI-FSB")}),
}
"""What a convolution is → channels and filters of an example, and options of its plan."""
CENSUS = ROOT / "tests" / "data" / "census_forms.txt"
OUTSIDE_HEADER = (
    "### What is outside\n\n"
    "Forms that nvcc 13.0 emits for some public CUDA kernel, and that no row has:\n\n"
    "| instruction | forms |\n|---|---|"
)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the generated parts where a page asks for them (called by mkdocs for every page)."""
    markdown = markdown.replace(README_MARKER, front_page()) if README_MARKER in markdown else markdown
    if ROWS_MARKER in markdown:
        rows = table(import_module("simwarp.ptx.instructions").ROWS)
        markdown = markdown.replace(ROWS_MARKER, f"{rows}\n\n{outside()}")
    markdown = markdown.replace(LOWERINGS_MARKER, lowerings()) if LOWERINGS_MARKER in markdown else markdown
    markdown = KERNELS_MARKER.sub(lambda found: kernels_of(found[1]), markdown)
    for pages in (page_results, page_papers, page_microbenchmarks, page_pictures):
        markdown = pages.filled(markdown)
    return NAMES_MARKER.sub(lambda found: reference_of(found[1]), markdown)


def front_page() -> str:
    """The README with the links of a page; files outside of docs have none."""
    text = (ROOT / "README.md").read_text()
    linked = re.sub(r"\]\(docs/", "](", text)
    return re.sub(r"\[([^\]]*)\]\((?!https?:)(?![\w/-]+\.md\b)[^)]*\)", r"\1", linked)


def table(rows: Mapping[str, Any]) -> str:
    """One line for each row, in the rows' own order."""
    return "\n".join([HEADER, *(_line(name, row) for name, row in rows.items())])


def _line(name: str, row: Any) -> str:
    types = " ".join(f"`.{t}`" for t in row.types)
    fidelity = f"bounded: {row.bound}" if row.fidelity == "bounded" else row.fidelity
    cells = (f"`{name}`", row.section, types, fidelity, f"sm_{row.minimum_sm}", row.summary)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def outside() -> str:
    """What nvcc emits for public kernels and no row has, one line for each instruction."""
    find = import_module("simwarp.ptx.instructions").TABLE.find
    lines = CENSUS.read_text().splitlines()
    lacking = [line for line in lines if line and not line.startswith("#") and find(line) is None]
    bases = sorted(set(map(_base, lacking)))
    rows = (f"| `{base}` | {_listed(form for form in lacking if _base(form) == base)} |" for base in bases)
    return "\n".join([OUTSIDE_HEADER, *rows])


def _base(form: str) -> str:
    return form.partition(".")[0]


def _listed(forms: Iterable[str]) -> str:
    return ", ".join(f"`{form}`" for form in forms)


def reference_of(package: str) -> str:
    """A mkdocstrings block for each public name of a package."""
    return "\n\n".join(f"::: {package}.{name}" for name in names_of(package))


def names_of(package: str) -> list[str]:
    """The public names of a package, or of a module without ``__all__`` those that it defines."""
    try:
        module = import_module(package)
    except ImportError as error:
        if (error.name or "").partition(".")[0] in ("", "gpu", "reference", "simwarp"):
            raise
        return _declared_names(package)  # it needs a package that is not installed
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == package]
    names = getattr(module, "__all__", [name for name in own if not name.startswith("_")])
    return [name for name in names if name != "__version__" and not _has_a_page(getattr(module, name))]


def _has_a_page(value: Any) -> bool:
    """Whether a value is a module, or a function that is named like its package, as `gpu.bmm`."""
    return isinstance(value, ModuleType) or hasattr(value, "__path__")


def _declared_names(package: str) -> list[str]:
    """The ``__all__`` in the source of a package, which is not imported."""
    source = (ROOT / package.replace(".", "/") / "__init__.py").read_text()
    lists = [
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    return [str(name) for name in ast.literal_eval(lists[0])]


def lowerings() -> str:
    """What ptxas makes of some matrix instructions on two chips."""
    lowering = import_module("simwarp.chips.lowering").lowering
    lines = [LOWERINGS_HEADER]
    for opcode in LOWERINGS:
        made = {cc: _made(lowering, opcode, cc) for cc in ((8, 0), (9, 0))}
        note = lowering(opcode, (9, 0)).note
        lines.append(f"| `{opcode}` | {made[8, 0]} | {made[9, 0]} | {note} |")
    return "\n".join(lines)


def _made(lowering: Any, opcode: str, cc: tuple[int, int]) -> str:
    try:
        return ", ".join(f"{n} `{name}`" for name, n in lowering(opcode, cc).instructions.items())
    except ValueError:
        return "none"


def kernels_of(operation: str) -> str:
    """The scheme that "auto" takes for each kind of call, on each chip from which on the choice differs."""
    chips = sorted(chip for chip in import_module("gpu.chips").CHIPS if chip >= (7, 5))
    cell, kinds = (_product, PRODUCTS) if operation == "bmm" else (_convolution, CONVOLUTIONS)
    lines = ["| | " + " | ".join(f"from sm_{major}{minor}" for major, minor in chips) + " |"]
    lines.append("|---" * (len(chips) + 1) + "|")
    lines += [f"| {kind} | {' | '.join(cell(kind, chip) for chip in chips)} |" for kind in kinds]
    return "\n".join(lines)


def _product(kind: str, chip: tuple[int, int]) -> str:
    choice = import_module("gpu.bmm.choice")
    sizes, output, form = PRODUCTS[kind]
    scheme = choice.fastest_scheme(chip, sizes, output, form)
    return f"`{scheme.name}`" if choice.gives(scheme, output) else "–"


def _convolution(kind: str, chip: tuple[int, int]) -> str:
    (channels, filters), options = CONVOLUTIONS[kind]
    sizes = (1, 8, 8, channels), (3, 3, channels, filters)
    return f"`{import_module('gpu.bconv').plan(*sizes, compute_capability=chip, **options).scheme.name}`"
