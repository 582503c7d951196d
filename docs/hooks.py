"""What the pages take from elsewhere: PTX instructions, modules, pictures, the results of benchmarks."""

from __future__ import annotations

import ast
import json
import re
import runpy
from argparse import ArgumentParser
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from html import escape
from importlib import import_module
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

ROWS_MARKER = "<!-- ptx rows -->"
NAMES_MARKER = re.compile(r"<!-- names of ([\w.]+) -->")
DRAW_MARKER = re.compile(r"<!-- draw (.*?) -->")
HEADER = "| instruction | PTX ISA | types | fidelity | from | what it does |\n|---|---|---|---|---|---|"
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
EDGES_MARKER = "<!-- edges -->"
EDGES = (
    "A photograph of a temple; its edges, with the padding excluded; and the same edges with padding that is "
    "taken for -1, which draws a frame along the border."
)
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
RESULTS_MARKER = "<!-- benchmark results -->"
RESULTS_HEADER = "| case | time of | unit | ours | peers | target | machine | date |\n" + "|---" * 8 + "|"
DOOR_MARKER = "<!-- door results -->"
DOOR_HEADER = (
    "| call | prepared | packed | float32 | the kernels of these | torch, synchronised |\n" + "|---" * 6 + "|"
)
OPERANDS = ("prepared", "packed", "f32")
BITS_MARKER = "<!-- bits results -->"
BITS_STYLE = ".simwarp-picture .ours{fill:var(--one)}.simwarp-picture .peer{fill:var(--marked-one)}"
SPEEDS_MARKER = re.compile(r"<!-- speeds (\S+) (\S+) (.*?) -->")
"""Files in benchmarks/results, of which the last one counts; the unit of the rows; a title."""
TRACES_MARKER = re.compile(r"<!-- traces (\S+) -->")
STUDY_MARKER = re.compile(r"<!-- study (\S+) -->")
BAR, BAR_START, BAR_END = 18, 250, 560
"""Height of a bar of a picture, and where the longest one begins and ends."""
MTTKRP_MARKER = "<!-- mttkrp results -->"
ROOT = Path(__file__).resolve().parents[1]
DOOR_RESULTS = [
    ROOT / "benchmarks" / "results" / "h200" / name
    for name in ("door-other-host.json", "door.json", "door-auto.json")
]
"""Of a row that several files have, the last one counts."""
BITS_RESULTS = [
    ROOT / "benchmarks" / "results" / "h200" / name for name in ("bits.json", "bits-convolutions.json")
]
"""One table each."""
STRANGERS_MARKER = "<!-- strangers results -->"
STRANGERS_HEADER = "| kernel | form | runs | agrees | findings | bugs |\n" + "|---" * 6 + "|"
STRANGERS_RESULTS = ROOT / "benchmarks" / "results" / "cpu" / "strangers.json"
MTTKRP_RESULTS = ROOT / "benchmarks" / "results" / "h200" / "mttkrp.json"
SIMULATED = ROOT / "benchmarks" / "results" / "sim"
"""What ``simwarp blas bench`` wrote, by the clocks of simulated machines."""
STUDIES = ROOT / "benchmarks" / "results" / "h100" / "studies"
"""What ``simwarp net study`` wrote."""
TRACES = ROOT / "benchmarks" / "results" / "h100" / "traces"
"""What ``simwarp blas trace --json`` wrote."""
EFFICIENCY_MARKER = "<!-- blas efficiency -->"
EFFICIENCY_HEADER = (
    "| routine | paper, BLASX | `paper()`, 2 GPUs | 3 GPUs | default, 2 GPUs | 3 GPUs |\n" + "|---" * 6 + "|"
)
EFFICIENCIES = {
    "dgemm": "93.53",
    "dsymm": "90.36",
    "dsyrk": "85.54",
    "dsyr2k": "85.54",
    "dtrmm": "88.99",
    "dtrsm": "81.58",
}
"""Those of BLASX in the paper's table III, in percent."""
RING_COLUMNS = 64
CENSUS = ROOT / "tests" / "data" / "census_forms.txt"
OUTSIDE_HEADER = (
    "### What is outside\n\n"
    "Forms that nvcc 13.0 emits for some public CUDA kernel, and that no row has:\n\n"
    "| instruction | forms |\n|---|---|"
)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the generated parts where a page asks for them (called by mkdocs for every page)."""
    if ROWS_MARKER in markdown:
        rows = table(import_module("simwarp.ptx.instructions").ROWS)
        markdown = markdown.replace(ROWS_MARKER, f"{rows}\n\n{outside()}")
    if RESULTS_MARKER in markdown:
        elsewhere = {
            *DOOR_RESULTS,
            *(path for of in (SIMULATED, STUDIES, TRACES) for path in of.glob("*.json")),
        }
        paths = sorted(set((ROOT / "benchmarks" / "results").rglob("*.json")) - elsewhere)
        markdown = markdown.replace(RESULTS_MARKER, results_table(json.loads(p.read_text()) for p in paths))
    if DOOR_MARKER in markdown:
        found = [path for path in DOOR_RESULTS if path.exists()]
        markdown = markdown.replace(
            DOOR_MARKER,
            door_table(row for path in found for row in json.loads(path.read_text())["rows"]),
        )
    if BITS_MARKER in markdown:
        found = [bits_results(json.loads(path.read_text())) for path in BITS_RESULTS if path.exists()]
        markdown = markdown.replace(BITS_MARKER, "\n\n".join(found) or "*Not measured yet.*")
    markdown = SPEEDS_MARKER.sub(lambda found: speeds(found[1].split(","), found[2], found[3]), markdown)
    markdown = STUDY_MARKER.sub(lambda found: study(found[1]), markdown)
    markdown = TRACES_MARKER.sub(lambda found: traces(found[1].split(",")), markdown)
    if MTTKRP_MARKER in markdown:
        rows = json.loads(MTTKRP_RESULTS.read_text())["rows"]
        markdown = markdown.replace(MTTKRP_MARKER, mttkrp_table(rows))
    if STRANGERS_MARKER in markdown:
        rows = json.loads(STRANGERS_RESULTS.read_text())["rows"]
        markdown = markdown.replace(STRANGERS_MARKER, strangers_table(rows))
    if EFFICIENCY_MARKER in markdown:
        rows = json.loads((SIMULATED / "blas-everest.json").read_text())["rows"]
        markdown = markdown.replace(EFFICIENCY_MARKER, efficiency_table(rows))
    markdown = markdown.replace(LOWERINGS_MARKER, lowerings()) if LOWERINGS_MARKER in markdown else markdown
    markdown = markdown.replace(EDGES_MARKER, edges()) if EDGES_MARKER in markdown else markdown
    markdown = KERNELS_MARKER.sub(lambda found: kernels_of(found[1]), markdown)
    markdown = DRAW_MARKER.sub(lambda found: picture(found[1].split()), markdown)
    return NAMES_MARKER.sub(lambda found: reference_of(found[1]), markdown)


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
    return [
        name for name in names if name != "__version__" and not isinstance(getattr(module, name), ModuleType)
    ]


def _declared_names(package: str) -> list[str]:
    """The ``__all__`` in the source of a package, which is not imported."""
    source = (ROOT / package.replace(".", "/") / "__init__.py").read_text()
    lists = [
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    return [str(name) for name in ast.literal_eval(lists[0])]


def picture(arguments: list[str]) -> str:
    """A picture by `simwarp.draw`, and its text for who cannot see it or wants to copy it."""
    parser = ArgumentParser(prog="draw", exit_on_error=False)
    kinds = parser.add_subparsers(dest="kind", required=True)
    layout = kinds.add_parser("layout")
    layout.add_argument("layout")
    layout.add_argument("--word", type=int, default=32)
    layout.add_argument("--rows", type=int, required=True)
    layout.add_argument("--cols", type=int, required=True, dest="columns")
    layout.add_argument("--first", default="msb")
    kinds.add_parser("tile").add_argument("word", type=int)
    kinds.add_parser("operation").add_argument("name")
    fsb = kinds.add_parser("fsb")
    for name in ("rows", "columns"):
        fsb.add_argument(name, type=int)
    fsb.add_argument("--tile", type=int, nargs=2, default=(8, 128))
    fsb.add_argument("--order", default="row")
    fsb.add_argument("--word", type=int, default=32)
    exclude = kinds.add_parser("exclude")
    for name in ("image", "filter"):
        exclude.add_argument(name, type=int, nargs=2)
    for name, default in (("stride", (1, 1)), ("dilation", (1, 1)), ("pixel", (0, 0))):
        exclude.add_argument(f"--{name}", type=int, nargs=2, default=default)
    exclude.add_argument("--channels", type=int)
    same = kinds.add_parser("same")
    for name in ("size", "window", "stride"):
        same.add_argument(name, type=int)
    fragment = kinds.add_parser("fragment")
    fragment.add_argument("instruction")
    fragment.add_argument("--operand")
    fragment.add_argument("--registers", action="store_true")
    fragment.add_argument("--most", type=int, nargs=2)
    kinds.add_parser("swizzle").add_argument("span", type=int)
    kinds.add_parser("quad")
    ring = kinds.add_parser("ring")
    for name in "mnk":
        ring.add_argument(name, type=int)
    life = kinds.add_parser("blas-life")
    life.add_argument("routine")
    for name in ("size", "tile"):
        life.add_argument(name, type=int)
    life.add_argument("topology")
    rates = kinds.add_parser("blas-rates")
    for name in ("name", "routine"):
        rates.add_argument(name)
    rates.add_argument("--variants", nargs="+")
    rates.add_argument("--devices", type=int, nargs="+")
    options = vars(parser.parse_args(arguments))
    kind = options.pop("kind")
    own = {
        "fragment": fragment_of,
        "exclude": exclude_of,
        "same": same_of,
        "swizzle": swizzle_of,
        "quad": quad_of,
        "ring": ring_of,
        "blas-life": blas_life_of,
        "blas-rates": blas_rates_of,
    }
    draw = own.get(kind) or getattr(import_module("simwarp.draw"), kind)
    text = f"<pre><code>{escape(draw(**options))}</code></pre>"
    twin = f'<details style="text-align: left"><summary>as text</summary>{text}</details>'
    return f"<figure data-search-exclude>\n{draw(**options, svg=True)}\n{twin}\n</figure>"


def fragment_of(
    instruction: str, operand: str | None, registers: bool, most: tuple[int, int] | None, svg: bool = False
) -> str:
    """The picture of ``simwarp frag``, of so many rows and columns at most."""
    picture_of = import_module("simwarp.cli.frag_picture").picture_of
    cut = {} if most is None else {"most": tuple(most)}
    return _drawn(picture_of(instruction, operand, registers=registers, **cut), svg)


def exclude_of(
    image: tuple[int, int],
    filter: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    pixel: tuple[int, int],
    channels: int | None,
    svg: bool = False,
) -> str:
    """The picture of ``simwarp exclude``, with TensorFlow's SAME."""
    g = import_module("reference").conv_geometry(
        (1, *image, 1), (*filter, 1, 1), stride=tuple(stride), dilation=tuple(dilation)
    )
    exclude_picture = import_module("simwarp.draw").exclude_picture
    drawn = exclude_picture(
        *(tuple(image), tuple(filter), (g.out_height, g.out_width)),
        pad=(g.pad_top, g.pad_left),
        stride=tuple(stride),
        dilation=tuple(dilation),
        pixel=tuple(pixel),
        channels=channels,
    )
    return _drawn(drawn, svg)


def same_of(size: int, window: int, stride: int, svg: bool = False) -> str:
    """Where the windows are over a line of an image: TensorFlow's SAME, and half a window on either side."""
    parts = import_module("simwarp.draw.picture")
    total = max((-(-size // stride) - 1) * stride + window - size, 0)
    halves = window // 2
    grids = tuple(
        _windows(parts, title, size, window, stride, before, after, halves)
        for title, before, after in (
            ("TensorFlow, SAME", total // 2, total - total // 2),
            (f"PyTorch, padding={halves}", halves, halves),
        )
    )
    title = f"{size} pixels, a window of {window}, stride {stride}"
    notes = ("A line is a window; pad is a tap outside the image.",)
    return _drawn(parts.Picture(title, tuple((grid,) for grid in grids), notes), svg)


def _windows(
    parts: Any, title: str, size: int, window: int, stride: int, before: int, after: int, room: int
) -> Any:
    """A line for each window, over ``room`` places on either side of the image."""
    places = range(-room, size + room)
    starts = range(-before, size + after - window + 1, stride)

    def cell(place: int, start: int) -> Any:
        inside = 0 <= place < size
        if place not in range(start, start + window):
            return parts.Cell("", "plain" if inside else "gap")
        return parts.Cell(str(place), "tint") if inside else parts.Cell("pad", "padding")

    return parts.Grid(
        tuple(tuple(cell(place, start) for place in places) for start in starts),
        f"{title}: {before} before, {after} after",
        corner="pixel",
        column_labels=tuple(str(place) if 0 <= place < size else "" for place in places),
        row_labels=tuple(f"{'output ' * (p == 0)}{p}" for p in range(len(starts))),
        least=3,
    )


def swizzle_of(span: int, svg: bool = False) -> str:
    """Eight rows of a span: the chunks of 16 bytes of a matrix, and where shared memory has them."""
    parts = import_module("simwarp.draw.picture")
    chunks = np.arange(span // 2).reshape(8, span // 16)
    placed = np.empty_like(chunks)
    swizzled = import_module("simwarp.fragments.swizzles").swizzled
    placed.flat[swizzled(chunks * 16, span) // 16] = chunks

    def grid(found: np.ndarray[Any, Any], title: str, lead: str = "") -> Any:
        rows = tuple(
            tuple(parts.Cell(str(chunk), hue=chunk % (span // 16) // 2 * 8) for chunk in row)
            for row in found.tolist()
        )
        labels = tuple(str(16 * column) for column in range(span // 16))
        return parts.Grid(
            rows,
            title,
            corner="byte",
            column_labels=labels,
            row_labels=tuple(f"{'row ' * (row == 0)}{row}" for row in range(8)),
            lead=lead,
        )

    notes = (
        "A cell is 16 bytes; its number is its place in the matrix.",
        f"A colour is 32 bytes along k: what one product reads of the {span} bytes of a step.",
    )
    line = (grid(chunks, "the matrix"), grid(placed, "shared memory", "→"))
    return _drawn(parts.Picture(f"The swizzle of {span} bytes", (line,), notes), svg)


def quad_of(svg: bool = False) -> str:
    """Which lanes' bits are in each word of a lane, after each exchange of `simwarp.listings.wgmma`."""
    parts = import_module("simwarp.draw.picture")
    exchanged = import_module("simwarp.listings.wgmma").exchanged
    lane = np.arange(32, dtype=np.uint32) % 4
    first = [np.uint32(1) << (4 * word + lane) for word in range(4)]
    second = [exchanged(*first[:2], 1), exchanged(*first[2:], 1)]

    def grid(words: list[np.ndarray[Any, Any]], title: str, lead: str = "") -> Any:
        return parts.Grid(
            tuple(tuple(_bits_of_word(parts, int(word[of])) for of in range(4)) for word in words),
            title,
            corner="lane",
            column_labels=tuple("0123"),
            row_labels=("",) * len(words),
            least=len("w0: 0 1 2 3"),
            lead=lead,
        )

    steps = (
        (grid(first, "each lane has a quarter of four words"),),
        (grid(second, "after two shuffles with lane ^ 1"),),
        (grid([exchanged(*second, 2)], "after one shuffle with lane ^ 2"),),
    )
    notes = ("w2: 0 1 is word 2 with the bits of lanes 0 and 1. Colours are words.",)
    return _drawn(parts.Picture("Four words in a quad of lanes", steps, notes), svg)


def _bits_of_word(parts: Any, bits: int) -> Any:
    """The cell of a word: four bits for each word that it may be, one for each lane."""
    word = (bits.bit_length() - 1) // 4
    lanes = [str(lane) for lane in range(4) if bits >> 4 * word & 1 << lane]
    return parts.Cell(f"w{word}: {' '.join(lanes)}", hue=8 * word)


@cache
def _ring(m: int, n: int, k: int) -> dict[str, str]:
    """The timeline of the ring of a block that computes a product by itself."""
    choice = {"schedule": "random", "seed": 1}
    device = import_module("simwarp").Device((9, 0), observe="pipeline", multiprocessors=1, **choice)
    ones = np.ones((m, k), np.int8), np.ones((k, n), np.int8)
    import_module("gpu").bmm(*ones, scheme="wgmma", device=device)
    rows: dict[str, str] = device.report.pipeline.cells(RING_COLUMNS)
    return {f"stage {stage}": row for stage, row in enumerate(rows.values())}


def ring_of(m: int, n: int, k: int, svg: bool = False) -> str:
    """When the stages of ``gpu.bmm(scheme="wgmma")`` are filled and read."""
    rows = _ring(m, n, k)
    if svg:
        title = f"The stages of a block: {m} × {k} by {k} × {n}"
        return _drawn(replace(import_module("simwarp.draw.pipeline").timeline(rows), title=title), svg)
    lines = [f"{stage}  {row}" for stage, row in rows.items()]
    return "\n".join([*lines, "", "~ copy in flight, = filled, # read, . free"])


def _drawn(picture: Any, svg: bool) -> str:
    text: str = getattr(import_module("simwarp.draw"), "to_svg" if svg else "to_text")(picture)
    return text


def edges() -> str:
    """The three pictures of examples/edges.py, as its convolution makes them on the simulator."""
    example = runpy.run_path(str(ROOT / "examples" / "edges.py"))
    device = import_module("simwarp").Device()
    response = import_module("gpu").bconv2d(example["x"], example["w"], device=device)
    image = BytesIO()
    example["picture"](response).save(image, "PNG")
    data = b64encode(image.getvalue()).decode()
    style = "width: 100%; image-rendering: pixelated"
    return f'<figure>\n<img alt="{EDGES}" style="{style}" src="data:image/png;base64,{data}">\n</figure>'


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
    chip_tables = [import_module(f"gpu.{name}").PREFERRED for name in ("bmm.choice", "bconv.schemes")]
    chips = sorted({chip for table in chip_tables for chip in table if chip >= (7, 5)})
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


def results_table(results: Iterable[Mapping[str, Any]]) -> str:
    """One line for each row of each benchmark result, those of the door first."""
    rows = [(row, result["meta"]) for result in results for row in result["rows"]]
    rows.sort(key=lambda row: not time_of(*row).startswith("door"))
    return "\n".join([RESULTS_HEADER, *(_result(*row) for row in rows)])


def time_of(row: Mapping[str, Any], meta: Mapping[str, Any]) -> str:
    """Whose time a row gives: that of a call from Python, of kernels on a GPU, or of the simulator."""
    if row["case"].startswith(("door", "cpd/")):
        return "door"
    return "kernel" if "gpu" in meta else "simulator"


def door_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Microseconds of calls by operands: with the result there, and in parentheses until the call returns."""
    whole: dict[str, dict[str, Mapping[str, Any]]] = {}
    host: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in rows:
        kind, _, case = row["case"].partition("/")
        call, _, last = case.rpartition("/")
        operands = row["params"].get("operands")
        if operands is None:
            call, last = case, "f32" if case.startswith("pack") else "prepared"
        if kind == "door-graph":
            call = f"{case}, in a graph"
        if kind != "door-host":
            whole.setdefault(call, {})[last] = row
        else:
            host[call, last] = row
    lines = [DOOR_HEADER]
    for call, by_operands in whole.items():
        cells = [_door_cell(by_operands.get(each), host.get((call, each))) for each in OPERANDS]
        peers = [by_operands[each]["peers"] for each in OPERANDS if each in by_operands]
        alone = " / ".join(_number(p["the kernels alone"]) for p in peers if "the kernels alone" in p)
        torch = ", ".join(f"{k[6:]} {_number(v)}" for k, v in peers[0].items() if k.startswith("torch "))
        lines.append("| " + " | ".join((f"`{call}`", *cells, alone, torch)) + " |")
    return "\n".join(lines)


def _door_cell(row: Mapping[str, Any] | None, host: Mapping[str, Any] | None) -> str:
    """A dagger where a target is missed."""
    if row is None:
        return ""
    over = [r for r in (row, host) if r and r["target"] is not None and r["ours"] > r["target"]]
    until = f" ({_number(host['ours'])})" if host else ""
    return f"{_number(row['ours'])}{until}{' †' if over else ''}"


def bits_results(result: Mapping[str, Any]) -> str:
    """Bars and a table of speeds, and a table of the other rows of ``benchmarks/bits.py``."""
    rows, meta = result["rows"], result["meta"]
    held = {row["case"].removesuffix("-sustained"): row for row in rows if row["case"].endswith("-sustained")}
    speeds = [row for row in rows if row["unit"] == "TOPS" and row not in held.values()]
    peers = list(dict.fromkeys(name for row in speeds for name in row["peers"]))
    columns = ("TOPS", "ours", "sustained", "target", *peers)
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in speeds:
        best = max(row["ours"], *row["peers"].values()) if row["peers"] else None
        long = held.get(row["case"])
        ours = (
            f"`{row['case']}`",
            _with_target(row, best),
            _with_target(long) if long else "",
            _target_of(row),
        )
        others = (_number_or_best(row["peers"].get(name), best) for name in peers)
        lines.append(f"| {' | '.join((*ours, *others))} |")
    lines += ["", "| | ours | target |", "|---|---|---|"]
    for row in rows:
        if row["unit"] != "TOPS":
            lines.append(f"| `{row['case']}`, {row['unit']} | {_with_target(row)} | {_target_of(row)} |")
    calls = f", medians of {meta['parts']} files" if "parts" in meta else ""
    origin = f"{meta['gpu']}, {meta['date']}, commit {meta['commit'][:7]}{calls}."
    pictures = [
        bars(title, groups)
        for title, name in (("Products of bits", "bmm"), ("Convolutions of bits", "bconv"))
        if (groups := _groups(speeds, name))
    ]
    return "\n".join([*(f"<figure>\n{picture}\n</figure>\n" for picture in pictures), *lines, "", origin])


def _groups(speeds: Iterable[Mapping[str, Any]], operation: str) -> dict[str, dict[str, tuple[float, bool]]]:
    """By size: the speeds of packed operands, each with whether it is ours."""
    groups: dict[str, dict[str, tuple[float, bool]]] = {}
    for row in speeds:
        kind, _, size = row["case"].partition("/")
        if kind in (f"{operation}-bits", f"{operation}-int32"):
            group = groups.setdefault(size, {})
            group[f"ours, to {kind.partition('-')[2]}"] = row["ours"], True
            group.update({name: (value, False) for name, value in row["peers"].items()})
    return {size: dict(sorted(group.items(), key=lambda item: -item[1][0])) for size, group in groups.items()}


def speeds(names: Iterable[str], unit: str, title: str) -> str:
    """Bars and a table of the rows of some results that have a unit, beside their peers."""
    results = [json.loads((ROOT / "benchmarks" / "results" / name).read_text()) for name in names]
    rows = {row["case"]: row for result in results for row in result["rows"] if row["unit"] == unit}
    peers = list(dict.fromkeys(name for row in rows.values() for name in row["peers"]))
    lines = [f"| {' | '.join((unit, 'ours', 'target', *peers))} |", "|---" * (3 + len(peers)) + "|"]
    groups: dict[str, dict[str, tuple[float, bool]]] = {}
    for case, row in rows.items():
        pick = max if row["better"] == "higher" else min
        best = pick(row["ours"], *row["peers"].values()) if row["peers"] else None
        others = (_number_or_best(row["peers"].get(name), best) for name in peers)
        lines.append(f"| {' | '.join((f'`{case}`', _with_target(row, best), _target_of(row), *others))} |")
        if row["peers"]:
            group = {"ours": (row["ours"], True), **{name: (x, False) for name, x in row["peers"].items()}}
            groups[case] = dict(sorted(group.items(), key=lambda item: -item[1][0]))
    origins = {f"{x['meta']['gpu']}, {x['meta']['date']}, commit {x['meta']['commit'][:7]}" for x in results}
    drawn = bars(title, groups, unit)
    return "\n".join([f"<figure>\n{drawn}\n</figure>\n", *lines, "", f"{'; '.join(sorted(origins))}."])


def study(name: str) -> str:
    """The picture of a study of a network."""
    draw = import_module("simwarp.draw.study")
    drawn = draw.to_svg(json.loads((STUDIES / f"{name}.json").read_text()))
    return f"<figure>\n{drawn}\n</figure>"


def traces(names: Iterable[str]) -> str:
    """The timelines of some runs of level-3 BLAS, one above the other."""
    runs = [json.loads((TRACES / f"{name}.json").read_text()) for name in names]
    return f"<figure>\n{import_module('simwarp.draw.machine').to_svg(runs)}\n</figure>"


def bars(title: str, groups: Mapping[str, Mapping[str, tuple[float, bool]]], unit: str = "TOPS") -> str:
    """A bar for each speed of each group, ours in a colour of their own."""
    svg = import_module("simwarp.draw.svg")
    most = max(value for group in groups.values() for value, _ in group.values())
    body, top = [svg.text_element(f"{title}, {unit}", 18, 32, "title")], 50
    has_own_line = max(map(len, groups)) > 8  # else beside the name of the first bar
    for size, group in groups.items():
        body.append(svg.text_element(size, 18, top + BAR - 5, "grid-title"))
        top += BAR if has_own_line else 0
        for name, (value, ours) in group.items():
            width = value / most * (BAR_END - BAR_START)
            kind = "ours" if ours else "peer"
            body.append(
                f'<rect class="{kind}" x="{BAR_START}" y="{top + 3}" width="{width:.1f}" height="{BAR - 6}"/>'
            )
            body.append(svg.text_element(name, BAR_START - 8, top + BAR - 5, "axis", "end"))
            body.append(svg.text_element(_number(value), BAR_START + width + 6, top + BAR - 5, "axis"))
            top += BAR
        top += 12
    drawn: str = svg.element(title, (), f"{svg.STYLE}\n{BITS_STYLE}", ("620", f"{top}"), body)
    return drawn


def _with_target(row: Mapping[str, Any], best: float | None = None) -> str:
    """What a row reached, in bold if it is the best, with a dagger if it misses its target."""
    sign = 1 if row["better"] == "higher" else -1
    missed = row["target"] is not None and sign * row["ours"] < sign * row["target"]
    return f"{_number_or_best(row['ours'], best)}{' †' if missed else ''}"


def _number_or_best(value: float | None, best: float | None) -> str:
    if value is None:
        return ""
    return f"**{_number(value)}**" if value == best else _number(value)


def _target_of(row: Mapping[str, Any]) -> str:
    return "" if row["target"] is None else _number(row["target"])


def _result(row: Mapping[str, Any], meta: Mapping[str, Any]) -> str:
    peers = ", ".join(f"{name}: {_number(value)}" for name, value in row["peers"].items())
    target = "" if row["target"] is None else _number(row["target"])
    unit = f"{row['unit']}, {row['better']} is better"
    machine = meta.get("gpu") or meta["cpu"]
    cells = (
        f"`{row['case']}`",
        time_of(row, meta),
        unit,
        _number(row["ours"]),
        peers,
        target,
        machine,
        meta["date"],
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def mttkrp_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Formats and quoted peers by tensor, in milliseconds; the fastest of ours in bold, last CPD."""
    times: dict[str, dict[str, float]] = {}
    quoted: dict[str, dict[str, float]] = {}
    for row in rows:
        kind, tensor, _ = row["case"].split("/")
        times.setdefault(kind.partition("-")[2] or kind, {})[tensor] = row["ours"]
        if kind == "mttkrp":
            for peer, value in row["peers"].items():
                quoted.setdefault(peer, {})[tensor] = value
    fastest, cpd = times.pop("mttkrp"), times.pop("cpd")
    lines = [f"| | {' | '.join(fastest)} |", "|---" * (1 + len(fastest)) + "|"]
    for name, of_format in sorted(times.items(), key=lambda item: sum(item[1].values())):
        cells = (f"**{v:.2f}**" if v == fastest[t] else f"{v:.2f}" for t, v in of_format.items())
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    for name, figures in (*quoted.items(), ("an iteration of `gpu.cpd_als`", cpd)):
        cells = (f"{figures[t]:.2f}" if t in figures else "" for t in fastest)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def strangers_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Public kernels by project: whether they run and agree, and what was found in them."""
    lines = [STRANGERS_HEADER]
    for row in rows:
        project, commit = row["case"].partition("/")[2], row["params"]["commit"]
        lines.append(f"| **{project}**, at {commit[:7]} | | | | | |")
        lines += [_stranger(kernel) for kernel in row["params"]["kernels"]]
    return "\n".join(lines)


def _stranger(kernel: Mapping[str, Any]) -> str:
    kinds = Counter(finding.partition(":")[0] for finding in kernel["findings"])
    found = ", ".join(f"{count} `{kind}`" for kind, count in kinds.items())
    ran = "waits for " + kernel["waits_for"] if kernel["waits_for"] else _yes(kernel["runs"])
    agrees = "" if kernel["waits_for"] else _yes(kernel["agrees"])
    cells = (f"`{kernel['kernel']}`", kernel["form"], ran, agrees, found, "; ".join(kernel["bugs"]))
    return f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in cells)}|"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _number(value: float) -> str:
    """Three digits that count; all of them before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


# --------------------------------------------------------------------------------------------------
# Level-3 BLAS
# --------------------------------------------------------------------------------------------------


@cache
def _trace(routine: str, size: int, tile: int, topology: str) -> Mapping[str, Any]:
    """What ``simwarp blas trace`` finds on a simulated machine."""
    parts = {name: import_module(f"simwarp.lab.blas.{name}") for name in ("report", "request")}
    machines = import_module("simwarp.lab.machines")
    on = machines.host(machines.topology_of(topology))
    options = import_module("gpu.blas3").Options()
    facts: Mapping[str, Any] = parts["report"].traced(
        parts["request"].Request.of(routine, size), tile, on, options
    )
    return facts


def blas_life_of(routine: str, size: int, tile: int, topology: str, svg: bool = False) -> str:
    """The timeline of a call on a simulated machine, with its steps."""
    facts = _trace(routine, size, tile, topology)
    marks = import_module("simwarp.lab.blas.life").marks_of_report(facts)
    if svg:
        drawn: str = import_module("simwarp.draw.machine").to_svg([facts], marks)
        return drawn
    return "\n".join(f"{mark.seconds * 1e3:.2f} ms, GPU {mark.device}: {mark.text}" for mark in marks)


def blas_rates_of(
    name: str, routine: str, variants: list[str] | None, devices: list[int] | None, svg: bool = False
) -> str:
    """The rates that ``simwarp blas bench`` found, over sizes or tiles."""
    data = json.loads((SIMULATED / f"{name}.json").read_text())
    rows = [
        row
        for row in data["rows"]
        if row["routine"] == routine
        and row["variant"] in (variants or [row["variant"]])
        and row["devices"] in (devices or [row["devices"]])
    ]
    draw = import_module("simwarp.draw.blas")
    if svg:
        drawn: str = draw.to_svg(data | {"rows": rows})
        return drawn
    plot = draw.plot_of(data | {"rows": rows})
    lines = [
        f"{curve}: " + ", ".join(f"{rate / 1e12:.2f} at {size}" for size, rate in sorted(points))
        for curve, points in plot.panels[routine].items()
    ]
    return "\n".join([f"TFLOP/s over {plot.across}", *lines])


def efficiency_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Mean parallel efficiencies by routine, beside those of the paper's table III, in percent."""
    found: dict[tuple[str, str, int], list[float]] = {}
    for row in rows:
        if row["devices"] > 1:
            found.setdefault((row["routine"], row["variant"], row["devices"]), []).append(row["efficiency"])
    lines = [EFFICIENCY_HEADER]
    for routine, printed in EFFICIENCIES.items():
        means = (
            f"{100 * sum(of) / len(of):.1f}"
            for variant in ("paper", "default")
            for devices in (2, 3)
            if (of := found[routine, variant, devices])
        )
        lines.append(f"| {routine.upper()} | {printed} | {' | '.join(means)} |")
    return "\n".join(lines)
