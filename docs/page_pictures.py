"""Pictures of the pages: what `simwarp.draw` and the simulator draw, and their text."""

from __future__ import annotations

import json
import re
import runpy
from argparse import ArgumentParser
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from html import escape
from importlib import import_module
from io import BytesIO
from typing import Any

import numpy as np
from page_results import ROOT, SIMULATED, bars, outofcore_results

DRAW_MARKER = re.compile(r"<!-- draw (.*?) -->")
EDGES_MARKER = "<!-- edges -->"
EDGES = (
    "A photograph of a temple; its edges, with the padding excluded; and the same edges with padding that is "
    "taken for -1, which draws a frame along the border."
)
RING_COLUMNS = 64


def filled(markdown: str) -> str:
    """Put pictures where a page asks for them."""
    markdown = markdown.replace(EDGES_MARKER, edges()) if EDGES_MARKER in markdown else markdown
    return DRAW_MARKER.sub(lambda found: picture(found[1].split()), markdown)


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
    trace = kinds.add_parser("ooc-trace")
    trace.add_argument("routine")
    for name in ("images", "filters", "pieces"):
        trace.add_argument(name, type=_sizes)
    trace.add_argument("topology")
    kinds.add_parser("ooc-curves").add_argument("figure", type=int)
    kinds.add_parser("ooc-layers")
    step = kinds.add_parser("training-step")
    for name in ("batch", "budget"):
        step.add_argument(name, type=int)
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
        "ooc-trace": ooc_trace_of,
        "ooc-curves": ooc_curves_of,
        "ooc-layers": ooc_layers_of,
        "training-step": training_step_of,
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
    return _curves_as_text(draw.plot_of(data | {"rows": rows}))


def _curves_as_text(plot: Any) -> str:
    """The points of the curves of a plot, in its unit with the prefix T."""
    lines = [
        f"{', '.join(filter(None, (panel, curve)))}: "
        + ", ".join(f"{rate / 1e12:.2f} at {size}" for size, rate in sorted(points))
        for panel, curves in plot.panels.items()
        for curve, points in curves.items()
    ]
    return "\n".join([f"T{plot.unit} over {plot.across}", *lines])


# --------------------------------------------------------------------------------------------------
# Out-of-core convolutions
# --------------------------------------------------------------------------------------------------


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


@cache
def _traced(
    routine: str, images: tuple[int, ...], filters: tuple[int, ...], pieces: tuple[int, ...], topology: str
) -> tuple[list[Mapping[str, Any]], Mapping[str, Any]]:
    """The timelines and the report of ``simwarp ooc trace``."""
    machines, report = (import_module(f"simwarp.lab.{name}") for name in ("machines", "outofcore.report"))
    limits = {"pieces": import_module("gpu.outofcore").Pieces(*pieces)}
    request = report.Request(routine, images, (filters[0], images[1], *filters[1:]), {}, limits)
    facts = report.traced(request, machines.host(machines.topology_of(topology)))
    return report.runs_of(facts), facts


def ooc_trace_of(svg: bool = False, **call: Any) -> str:
    """The predicted timeline of an out-of-core convolution above that of a simulated machine."""
    runs, facts = _traced(**call)
    if svg:
        drawn: str = import_module("simwarp.draw.machine").to_svg(runs)
        return drawn
    return "\n".join(
        f"{name}: {facts[name]['seconds'] * 1e3:.3f} ms, "
        + ", ".join(f"{kind} {seconds * 1e3:.3f} ms" for kind, seconds in facts[name]["busy"].items())
        for name in ("predicted", "measured")
    )


def ooc_curves_of(figure: int, svg: bool = False) -> str:
    """A figure of curves that ``simwarp ooc bench`` made."""
    draw, name = import_module("simwarp.draw.outofcore"), f"figure {figure}"
    if svg:
        drawn: str = draw.to_svg(outofcore_results(), name)
        return drawn
    return _curves_as_text(draw.plot_of(outofcore_results(), name))


def ooc_layers_of(svg: bool = False) -> str:
    """The seconds of copies and routines of each layer of VGG16."""
    rows = [row for row in outofcore_results()["rows"] if row["figure"] == "figure 13"]
    names = {"in": "HtoD", "routine": "computation", "out": "DtoH"}
    groups = {
        row["layer"]: {names[kind]: (seconds, kind == "routine") for kind, seconds in row["busy"].items()}
        for row in rows
    }
    if svg:
        return bars("VGG16, 1,024 images, simulated P100", groups, "s")
    return "\n".join(
        f"{layer}: " + ", ".join(f"{name} {seconds:.3f} s" for name, (seconds, _) in group.items())
        for layer, group in groups.items()
    )


def training_step_of(batch: int, budget: int, svg: bool = False) -> str:
    """The predicted timeline of a step of ``simwarp ooc train`` above that of a simulated machine."""
    machines, report = (import_module(f"simwarp.lab.{name}") for name in ("machines", "outofcore.report"))
    outofcore, train = (import_module(name) for name in ("gpu.outofcore", "simwarp.cli.ooc_train"))
    on = machines.host(machines.topology_of("H200"))
    options = outofcore.TrainingOptions(accumulation=False)
    network = train.digits_network()
    trainer = outofcore.Trainer(network, batch, device=on.machine, memory_budget=budget, options=options)
    runs = report.step_of(trainer.explain(), on)
    if svg:
        drawn: str = import_module("simwarp.draw.machine").to_svg(runs)
        return drawn
    return f"{trainer.explain()}\n" + "\n".join(
        f"{run['device']}: {run['seconds'] * 1e6:.1f} µs, "
        + ", ".join(f"{kind} {seconds * 1e6:.1f} µs" for kind, seconds in run["busy"].items())
        for run in runs
    )
