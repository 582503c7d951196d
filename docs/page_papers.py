"""Tables of the pages of the papers: a paper's printed numbers beside those of committed results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import page_papers_machines
import page_papers_made
from page_papers_machines import table

from simwarp.lab.papers import bstc, btc
from simwarp.lab.papers.mm_csf import FIBERS, GFLOPS, MEBIBYTES, MILLISECONDS, MODE_BINS, NONZEROS, TABLE_6
from simwarp.lab.papers.nets import SUBJECTS

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
TENSOR_INFO = RESULTS / "tensors"
"""What ``simwarp tensor info FILE --json`` printed for the tensors of ``benchmarks/tensors.py``."""
PRINTED_MARKER = re.compile(r"<!-- printed (\S+) (.*?) -->")
"""A paper, and its figure or table."""

LOOK_ALIKES = ("nell2", "darpa", "fr_s", "flick4d", "uber4d")
"""Ours: of the shape of the tensors of these names, with fewer nonzeros."""
RANK = 32

SIZES = (1024, 2048, 4096, 8192)
CHANNELS = (128, 256, 512, 1024)


def filled(markdown: str) -> str:
    """Put the tables where a page of a paper asks for them."""
    markdown = PRINTED_MARKER.sub(lambda found: PRINTED[found[1], found[2]](), markdown)
    return page_papers_made.filled(markdown)


def _rows(name: str) -> dict[str, Any]:
    rows = json.loads((RESULTS / name).read_text())["rows"]
    return {row["case"]: row for row in rows}


def _times() -> Callable[[str, str], Mapping[str, Any]]:
    """The row of a tensor and a format in the benchmark of MTTKRP."""
    rows = _rows("h200/mttkrp.json")
    return lambda name, form: rows[f"mttkrp-{form}/{name}/r{RANK}-f32"]


def _nonzeros(name: str) -> int:
    nonzeros: int = _rows("cpu/storage.json")[f"storage/{name}/coo"]["params"]["nonzeros"]
    return nonzeros


def _gflops(name: str, milliseconds: float) -> float:
    """With the operations of COO: as many for each nonzero, column and mode as the tensor has modes."""
    order = len(_info(name)["shape"])
    return order**2 * _nonzeros(name) * RANK / milliseconds / 1e6


def _info(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((TENSOR_INFO / f"{name}.json").read_text())
    return found


def table_2() -> str:
    """Histograms of the lengths of fibers, of the mode that SPLATT-ONE selects and of the others."""
    rows: list[list[str]] = []
    for name, printed in MODE_BINS.items():
        info = _info(name)
        selected = max((dimension, mode) for mode, dimension in enumerate(info["shape"]))[1]
        for label, bins in zip(("selected", "a candidate"), printed, strict=True):
            rows.append([f"{name}, printed", label, *(_count(n) for n in bins)])
        for mode, row in enumerate(info["modes"]):
            label = f"along {mode}, selected" if mode == selected else f"along {mode}"
            rows.append([f"{name}, ours", label, *(_count(n) for n in row["fibers_histogram"])])
    return table(("tensor", "fibers", "up to 100", "up to 5,000", "up to 10,000", "more"), rows)


def table_3() -> str:
    """Operations, reads and writes of the look-alikes of three modes, by table 3 and by the algorithms."""
    rows: list[list[str]] = []
    for name in NONZEROS:
        work = {row["format"]: row for row in _info(name)["work"]}
        for form, paper in (
            ("coo", "COO"),
            ("csf-all", "SPLATT-ALL"),
            ("csf-one", "SPLATT-ONE"),
            ("mm-csf", "MM-CSF"),
        ):
            row = work[form]
            kinds = ("flops", "reads", "writes")
            rows.append([name, paper, *(f"{row['table'][k] / 1e9:.3g}, {row[k] / 1e9:.3g}" for k in kinds)])
    return table(("tensor", "format", "flops: table 3, ours", "reads", "writes"), rows)


def table_5() -> str:
    """Fibers in millions, and how many fewer than SPLATT-ALL."""
    rows = _rows("cpu/storage.json")
    lines: list[list[str]] = []
    for name, printed in FIBERS.items():
        for form, (millions, percent) in printed.items():
            ours = rows[f"fibers/{name}/{form}"]
            here = f"{ours['ours'] / 1e6:.3g}, {round(ours['params']['reduction'])} %"
            lines.append([name, f"`{form}`", f"{millions:g}, {percent} %", here])
    return table(("tensor", "format", "printed", "ours"), lines)


def table_6() -> str:
    """Occupancy, global loads and DRAM of B-CSF-ALL and MM-CSF: printed, and by the counters of an H200."""
    rows = [
        [f"{name}, printed", *(f"{balanced}, {mixed}" for balanced, mixed in printed)]
        for name, printed in TABLE_6.items()
    ]
    if (RESULTS / "h200" / "mttkrp-counters.json").is_file():
        of = _rows("h200/mttkrp-counters.json")
        for name in TABLE_6:
            pair = [of[f"counters-{form}/{name}/r{RANK}-f32"]["params"] for form in ("b-csf", "mm-csf")]
            kinds = (("occupancy", ".0f"), ("loads_gib", ".1f"), ("dram_read_gib", ".2f"))
            rows.append(
                [f"{name}, H200", *(", ".join(f"{one[k]:{form}}" for one in pair) for k, form in kinds)]
            )
    found = json.loads((RESULTS / "sim" / "mttkrp-nell2.json").read_text())
    loads = {row["format"]: 32 * row["load_sectors"] / 2**20 for row in found["rows"]}
    simulated = f"{loads['b-csf']:.1f} MiB, {loads['mm-csf']:.1f} MiB"
    rows.append([f"nell2 with {found['nonzeros']:,} nonzeros, simulated", "–", simulated, "–"])
    return table(("tensor", "occupancy, %: B-CSF-ALL, MM-CSF", "global loads, GiB", "DRAM, GiB"), rows)


def figure_6() -> str:
    """How many times as long as MM-CSF a single direction takes, once it is measured; storage until then."""
    if not (RESULTS / "h200" / "mttkrp-directions.json").is_file():
        return "Not recorded yet: the command below makes it."
    of, lines = _rows("h200/mttkrp-directions.json"), list[list[str]]()
    for name in NONZEROS:
        mixed = of[f"mttkrp-mm-csf/{name}/r{RANK}-f32"]["ours"]
        ratios = (of[f"mttkrp-mm-csf-along-{n}/{name}/r{RANK}-f32"]["ours"] / mixed for n in range(3))
        lines.append([name, f"{mixed:.2f}", *(f"{ratio:.2f}" for ratio in ratios)])
    return table(("tensor", "MM-CSF, ms", *(f"along {n} only" for n in range(3))), lines)


def table_7() -> str:
    """How many times as long as MM-CSF other formats take, printed and ours."""
    of = _times()
    rows: list[list[str]] = []
    for name in LOOK_ALIKES:
        printed, mixed = MILLISECONDS[name], of(name, "mm-csf")["ours"]
        cells = [name, f"{printed['mm-csf']:g}", f"{mixed:.2f}"]
        for form, ours in (("b-csf", "b-csf"), ("b-csf-one", "csf-one"), ("coo", "coo")):
            theirs = f"{printed[form] / printed['mm-csf']:.2f}" if form in printed else "–"
            cells.append(f"{theirs}, {of(name, ours)['ours'] / mixed:.2f}")
        rows.append(cells)
    header = ("tensor", "MM-CSF, ms, V100", "H200", "B-CSF-ALL: printed, ours", "B-CSF-ONE, `csf-one`", "COO")
    return table(header, rows)


def table_8() -> str:
    """Bytes of indices and pointers for each nonzero, printed and ours."""
    rows = _rows("cpu/storage.json")
    lines: list[list[str]] = []
    for form, sizes in MEBIBYTES.items():
        cells = [f"`{form}`"]
        for name in NONZEROS:
            printed = sizes[name] * 2**20 / NONZEROS[name]
            ours = 1e6 * rows[f"storage/{name}/{form}"]["ours"] / _nonzeros(name)
            cells.append(f"{printed:.1f}, {ours:.1f}")
        lines.append(cells)
    return table(("format", *(f"{name}: printed, ours" for name in NONZEROS)), lines)


def figure_7() -> str:
    """How many times as long as MM-CSF B-CSF-ALL takes, by mode."""
    of = _times()
    rows: list[list[str]] = []
    for name in LOOK_ALIKES:
        pairs = zip(*(of(name, form)["params"]["modes_ms"] for form in ("b-csf", "mm-csf")), strict=True)
        ratios = [f"{balanced / mixed:.2f}" for balanced, mixed in pairs]
        rows.append([name, *ratios, *[""] * (4 - len(ratios))])
    return table(("tensor", *(f"mode {mode}" for mode in range(4))), rows)


def figure_8() -> str:
    """Operations in a second beside those at which memory ends, by the bytes that have to be moved."""
    of = _times()
    rows: list[list[str]] = []
    for name in LOOK_ALIKES:
        row = of(name, "mm-csf")
        reached, most = _gflops(name, row["ours"]), _gflops(name, row["floor"])
        printed = f"{GFLOPS[name][0]}" if name in GFLOPS else "–"
        rows.append([name, printed, f"{reached:,.0f}", f"{most:,.0f}", f"{100 * reached / most:.0f} %"])
    header = ("tensor", "MM-CSF, GFLOPS, V100, printed", "H200", "at the bound of memory", "of it")
    return table(header, rows)


def figure_10() -> str:
    """How many times as long as B-CSF-ALL making MM-CSF takes."""
    rows = _rows("cpu/storage.json")
    lines: list[list[str]] = []
    for name in LOOK_ALIKES:
        balanced, mixed = (
            rows[f"storage/{name}/{form}"]["params"]["core_seconds"] for form in ("b-csf", "mm-csf")
        )
        lines.append([name, f"{balanced:.1f}", f"{mixed:.1f}", f"{mixed / balanced:.2f}"])
    return table(("tensor", "`b-csf`, s", "`mm-csf`, s", "ratio"), lines)


def btc_table_7() -> str:
    """Latency of 8 images and throughput of the six networks, printed and ours."""
    of, lines = _rows("h200/networks.json"), list[list[str]]()
    for name, schemes in btc.RTX_2080_TI.items():
        images, (*_, fine, bits, fsb) = SUBJECTS[name].many, schemes
        latency, rate = of[f"net/{name}/8"], of[f"net/{name}/{images}"]
        ours = (latency["ours"], rate["ours"])
        whole = (latency["peers"]['way="whole"'], rate["peers"]['way="whole"'])
        pairs = (fine, bits, fsb, whole, ours)
        lines.append([name, *(f"{ms:.3g} ms, {_count(rate)}/s" for ms, rate in pairs)])
    header = ("network", "SBNN-64-Fine, RTX 2080 Ti", "BTC", "BTC-FMT", "ours in one launch, H200", "ours")
    return table(header, lines)


def btc_figure_16() -> str:
    """Speeds of the designs and of the fastest scheme of the chip, by size of square matrices."""
    designs, fastest = _rows("h200/bmm.json"), _rows("h200/bits.json")
    lines: list[list[str]] = []
    for n in (1024, 2048, 4096, 8192):
        for suffix, output in (("", "int32"), ("b", "bits")):
            schemes = ("bstc/bmms64", "btc1", "btc2", "btc3")
            speeds = [f"{designs[f'{scheme}{suffix}/{n}']['ours']:,.0f}" for scheme in schemes]
            best = fastest.get(f"bmm-{output}/{n}")
            of_best = (best["ours"], best["peers"]["CUTLASS b1"]) if best else ()
            lines.append(
                [str(n), output, *speeds, *(f"{x:,.0f}" for x in of_best), *["–"] * (2 - len(of_best))]
            )
    return table(("n", "output", "`bmms64`", "`btc1`", "`btc2`", "`btc3`", "`wgmma`", "CUTLASS b1"), lines)


def btc_figure_20() -> str:
    """Microseconds of the convolutions to bits, by channels, and how many times as fast as cuDNN they are."""
    of, lines = _rows("h200/bconv.json"), list[list[str]]()
    for channels in (128, 256, 512, 1024):
        float16 = of[f"bconv/btc1-bits/{channels}"]["peers"]["cuDNN fp16"]
        rows = [of[f"bconv/{scheme}-bits/{channels}"]["ours"] for scheme in ("bconv64", "btc1", "btc2")]
        lines.append([str(channels), *(f"{x:.0f} µs, {float16 / x:.2f}" for x in rows), f"{float16:.0f} µs"])
    return table(("C = O", "`bconv64`", "`btc1`", "`btc2`", "cuDNN, float16"), lines)


def btc_figure_24() -> str:
    """The first layer's share of each network's time, the longest other part's, and the answer's."""
    facts = json.loads((RESULTS / "h200" / "papers" / "btc" / "figure-24.json").read_text())
    networks: dict[str, dict[str, float]] = {}
    for row in facts["rows"]:
        networks.setdefault(row["network"], {})[row["part"]] = row["percent"]
    lines: list[list[str]] = []
    for name, parts in networks.items():
        printed = f"{btc.FIRST_LAYER[name]:g} %" if name in btc.FIRST_LAYER else "–"
        first, answer = parts.pop("first layer"), parts.pop("answer", None)
        shown = "–" if answer is None else f"{answer:.1f} %"
        lines.append([name, printed, f"{first:.1f} %", f"{max(parts.values()):.1f} %", shown])
    header = (
        "of the network's time, 8 images",
        "first layer: printed",
        "H200",
        "longest other part",
        "answer",
    )
    return table(header, lines)


def approaches() -> str:
    """Cycles of the four approaches, and the votes and shuffles of a step."""
    costs = import_module("simwarp.listings").approach_costs
    rows: list[list[str]] = []
    for name, cycles in bstc.CYCLES.items():
        counted = costs(name, 32, 32, 32)
        numbers = (str(counted[what]) for what in ("votes", "shuffles", "loads", "stores"))
        rows.append([name, f"{cycles}K", *numbers])
    return table(("approach", "cycles, printed", "votes", "shuffles", "loads", "stores"), rows)


def products() -> str:
    """The speeds of products from bits to bits on CUDA cores."""
    rows = _rows("h200/bmm.json")
    lines = [
        [f"BMM{scheme.upper()}B", *(f"{rows[f'bstc/bmm{scheme}b/{n}']['ours']:.0f}" for n in SIZES)]
        for scheme in ("32", "64", "s32", "s64")
    ]
    return table(("scheme", *(f"{n:,}" for n in SIZES)), lines)


def convolutions() -> str:
    """The times of convolutions from bits to bits on CUDA cores."""
    rows = _rows("h200/bconv.json")
    lines: list[list[str]] = []
    for channels in CHANNELS:
        narrow, wide = (rows[f"bconv/bconv{word}-bits/{channels}"]["ours"] for word in (32, 64))
        lines.append([f"{channels:,}", f"{narrow:,.0f}", f"{wide:,.0f}", f"{narrow / wide:.2f}"])
    return table(("channels in and out", "BConv-32B", "BConv-64B", "speed of 64 beside 32"), lines)


def networks() -> str:
    """Latency and throughput of the networks."""
    rows = _rows("h200/networks.json")
    lines: list[list[str]] = []
    for name, printed in _fine_networks().items():
        many = 1024 if f"net/{name}/1024" in rows else 512
        few, most = rows[f"net/{name}/8"], rows[f"net/{name}/{many}"]
        *latencies, rate = (
            "–" if number is None else f"{number:,.{3 * (number < 99)}f}" for number in printed
        )
        whole = few["peers"]['way="whole"']
        lines.append([name, *latencies, f"{few['ours']:.3f}", f"{whole:.3f}", rate, f"{most['ours']:,.0f}"])
    header = ("network", "SBNN-32-Fine, ms", "SBNN-64-Fine, ms", "ours, ms", "one launch, ms")
    return table((*header, "SBNN-64-Fine, images/s", "ours, images/s"), lines)


def _fine_networks() -> dict[str, tuple[float | None, float, float]]:
    """Milliseconds of SBNN-32-Fine and -64-Fine, and images a second of the latter, printed for a V100."""
    found: dict[str, tuple[float | None, float, float]] = {
        name.partition(",")[0]: (narrow[0], wide[0], wide[1])
        for name, (_, narrow, _, wide) in bstc.V100.items()
    }
    return {**found, "vgg16": (None, *bstc.SINGLE["vgg16"])}


def _count(number: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "K")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:g}"


PRINTED: dict[tuple[str, str], Callable[[], str]] = {
    ("btc", "table 7"): btc_table_7,
    ("btc", "figure 16"): btc_figure_16,
    ("btc", "figure 20"): btc_figure_20,
    ("btc", "figure 24"): btc_figure_24,
    ("mm-csf", "table 2"): table_2,
    ("mm-csf", "table 3"): table_3,
    ("mm-csf", "table 5"): table_5,
    ("mm-csf", "table 6"): table_6,
    ("mm-csf", "table 7"): table_7,
    ("mm-csf", "figure 6"): figure_6,
    ("mm-csf", "table 8"): table_8,
    ("mm-csf", "figure 7"): figure_7,
    ("mm-csf", "figure 8"): figure_8,
    ("mm-csf", "figure 10"): figure_10,
    **page_papers_machines.PRINTED,
    ("bstc", "section 5.1"): approaches,
    ("bstc", "figures 9 to 12"): products,
    ("bstc", "figures 13 to 20"): convolutions,
    ("bstc", "tables 4 to 9"): networks,
}
"""The function of each table, by paper and by its name there."""
