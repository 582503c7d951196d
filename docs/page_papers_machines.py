"""Tables of the page of BLASX: printed numbers beside those of simulated machines."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import page_results

MACHINES = page_results.SIMULATED


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of a page."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _rows(name: str, **of: Any) -> list[Mapping[str, Any]]:
    """The rows of a result of simulated machines whose fields are as given."""
    rows = json.loads((MACHINES / f"{name}.json").read_text())["rows"]
    return [row for row in rows if all(row[field] == value for field, value in of.items())]


def ooc_table_2() -> str:
    """GB of each convolution of VGG16, 1,024 images; print has a bar for each, and 24 GB in its text."""
    rows = [
        [
            row["layer"],
            *(f"{row['sizes'][tensor] / 2**30:.2f}" for tensor in ("x", "y")),
            f"{row['sizes']['w'] / 2**20:.2f} MiB",
            f"{row['bytes'] / 2**30:.1f}" + (", over 24" if row["layer"] == "conv1_2" else ""),
        ]
        for row in _rows("outofcore-managed", figure="table 2")
    ]
    return table(("layer", "X, GiB", "Y", "W", "all: ours, printed"), rows)


def ooc_figure_6() -> str:
    """Milliseconds over the number of filters, simulated, and on an H200 once they are recorded."""
    shown = (8, 32, 40, 64, 72, 96, 128, 136, 256, 512, 1024)
    times = [{row["filters"]: row["seconds"] for row in _rows("outofcore-filters", figure="figure 6")}]
    header = ["filters", "simulated P100, ms"]
    if (measured := MACHINES.parent / "h200" / "outofcore-filters.json").is_file():
        of_chip = json.loads(measured.read_text())
        times.append({row["filters"]: row["seconds"] for row in of_chip["rows"]})
        header.append(f"H200, ms (steps of {of_chip['step']})")
    rows = [
        [f"{count:,}", *(f"{1e3 * of[count]:.2f}" if count in of else "–" for of in times)] for count in shown
    ]
    return table(header, rows)


def ooc_figure_14() -> str:
    """GFLOPS with managed memory, by three ways, and ours; the printed least and most in the last line."""
    found = _rows("outofcore-managed", figure="figure 14")
    names = ("in core", *found[0]["printed_least_and_most"])
    rows = [
        [row["case"], *(f"{row['rates'][name] / 1e9:.0f}" if name in row["rates"] else "–" for name in names)]
        for row in found
    ]
    printed = found[0]["printed_least_and_most"]
    ranges = (f"{printed[name][0] / 1e9:.0f} to {printed[name][1] / 1e9:.0f}" for name in names[1:])
    rows.append(["printed, P100", "–", *ranges])
    if (measured := MACHINES.parent / "h200" / "outofcore-managed.json").is_file():
        for row in json.loads(measured.read_text())["rows"]:
            rates = {**row["peers"], "ours": row["ours"]}
            maps = row["case"].removeprefix("managed/").replace("x", "×")
            rows.append([f"{maps}, H200", *(f"{rates[name]:.0f}" for name in names)])
    return table(("maps", *names), rows)


def blasx_table_3() -> str:
    """Mean parallel efficiencies, in percent."""
    return page_results.efficiency_table(_rows("blas-everest"))


def blasx_figure_7() -> str:
    """TFLOP/s of the paper's policy by routine and N, on one to three GPUs."""
    rows = [
        [
            routine.upper(),
            *(
                ", ".join(f"{row['rate'] / 1e12:.2f}" for row in sorted(of, key=lambda row: row["devices"]))
                for of in (
                    _rows("blas-everest", routine=routine, n=n, variant="paper") for n in (4096, 20480, 36864)
                )
            ),
        ]
        for routine in page_results.EFFICIENCIES
    ]
    return table(("routine", *(f"N = {n}: 1, 2, 3 GPUs" for n in ("4,096", "20,480", "36,864"))), rows)


def blasx_table_1() -> str:
    """Percent of the operations that are of GEMM, by routine and N."""
    rows = json.loads((MACHINES / "blas-gemm-shares.json").read_text())
    found = {(row["routine"], row["n"]): row for row in rows}
    sizes, lines = sorted({n for _, n in found}), list[list[str]]()
    for routine in dict.fromkeys(name for name, _ in found):
        of = [found[routine, n] for n in sizes]
        cells = (f"{100 * row['printed']:.1f}, {100 * row['share']:.1f}" for row in of)
        lines.append([routine.upper(), *cells])
    return table(("routine", *(f"N = {n:,}: printed, ours" for n in sizes)), lines)


def blasx_figure_9() -> str:
    """What the CPU adds to DGEMM, in GFLOP/s, by machine, policy and N."""
    lines: list[list[str]] = []
    for name, file in (("Makalu", "makalu"), ("Everest", "everest"), ("2 × H200", "h200x2")):
        parts = json.loads((MACHINES / f"blas-{file}-cpu.json").read_text())["cpu_parts"]
        for variant, policy in (("paper", "`Options.paper()`"), ("default", "default, `cpu=True`")):
            of = sorted((row for row in parts if row["variant"] == variant), key=lambda row: row["n"])
            cells = (f"{row['part'] / 1e9:+,.0f} of {row['without'] / 1e9:,.0f}" for row in of)
            lines.append([f"{name}, {policy}", *cells])
    sizes = sorted({row["n"] for row in parts})
    return table(("machine, policy", *(f"N = {n:,}" for n in sizes)), lines)


def blasx_table_6() -> str:
    """How much of the applications is routed, and how much faster their products are, printed and ours."""
    found = json.loads((MACHINES / "blas-applications.json").read_text())
    lines = [
        [
            f"{small['application']}, {small['dtype']}",
            f"{small['routed']} of {small['calls']}",
            f"{100 * small['operations']:.1f} %",
            f"{large['size']:,} on {large['machine']}",
            large["printed"],
            f"{large['speedup']:.2f}",
        ]
        for small, large in zip(found["routed"], found["predicted"], strict=True)
    ]
    header = ("application", "products routed, N = 512", "of their operations", "N", "speedup: printed")
    return table((*header, "of products: ours"), lines)


PRINTED: dict[tuple[str, str], Callable[[], str]] = {
    ("ooc-cudnn", "table 2"): ooc_table_2,
    ("ooc-cudnn", "figure 6"): ooc_figure_6,
    ("ooc-cudnn", "figure 14"): ooc_figure_14,
    ("blasx", "table I"): blasx_table_1,
    ("blasx", "table III"): blasx_table_3,
    ("blasx", "table VI"): blasx_table_6,
    ("blasx", "figure 7"): blasx_figure_7,
    ("blasx", "figure 9"): blasx_figure_9,
}
"""The function of each table, by paper and by its name there."""
