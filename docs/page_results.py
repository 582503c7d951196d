"""Results of benchmarks, studies and traces on the pages: tables and bars."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from simwarp.lab.papers.blasx import EFFICIENCIES

ROOT = Path(__file__).resolve().parents[1]
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
FIGURE_MARKER = re.compile(r"<!-- figure (\S+) (\S+) (\S+?)(?: of ([^>]*?))? -->")
"""A file in benchmarks/results, a case, a format; of a peer, the target or a parameter, or of ours."""
RATIO_MARKER = re.compile(r"<!-- ratio (\S+) (\S+) (\S+) of ([^>]*?) -->")
"""The same: a peer, the target or a parameter over ours."""
UNITS = {"us": "µs"}
PARAMETER_UNITS = {"seconds": "s", "device": "ms", "mb": "MB"}
"""By the last word of a parameter's name."""
STUDY_MARKER = re.compile(r"<!-- study (\S+) -->")
BAR, BAR_START, BAR_END = 18, 250, 560
"""Height of a bar of a picture, and where the longest one begins and ends."""
MTTKRP_MARKER = "<!-- mttkrp results -->"
DOOR_RESULTS = [
    ROOT / "benchmarks" / "results" / "h200" / name
    for name in ("door-other-host.json", "door.json", "door-auto.json")
]
"""Of a row that several files have, the last one counts."""
TORCH_DOOR_MARKER = re.compile(r"<!-- torch door results (\S+) -->")
TORCH_DOOR_HEADER = (
    "| call | tensors that rotate | a new tensor in each call | its peer |\n" + "|---" * 4 + "|"
)
BITS_RESULTS = [
    ROOT / "benchmarks" / "results" / "h200" / name for name in ("bits.json", "bits-convolutions.json")
]
"""One table each."""
STRANGERS_MARKER = "<!-- strangers results -->"
STRANGERS_HEADER = "| kernel | form | runs | agrees | findings | bugs |\n" + "|---" * 6 + "|"
STRANGERS_RESULTS = ROOT / "benchmarks" / "results" / "cpu" / "strangers.json"
BOTH_MARKER = "<!-- kernels on both devices -->"
BOTH_HEADER = "| repository | kernels | the simulator calls it | the chip |\n" + "|---" * 4 + "|"
BOTH_RESULTS = ROOT / "benchmarks" / "results" / "h200" / "both-strangers.json"
LABELLED_MARKER = "<!-- labelled results -->"
LABELLED_RESULTS = [
    ROOT / "benchmarks" / "results" / "cpu" / f"{name}.json" for name in ("gpuverify", "scor")
]
MTTKRP_RESULTS = ROOT / "benchmarks" / "results" / "h200" / "mttkrp.json"
SIMULATED = ROOT / "benchmarks" / "results" / "sim"
"""What ``simwarp blas bench`` and ``simwarp ooc bench`` wrote, by the clocks of simulated machines."""
OUTOFCORE_MARKER = "<!-- ooc table 4 -->"
OUTOFCORE_HEADER = (
    "| problem | greedy, printed | here | steepest, printed | here | best, printed | here |\n"
    + "|---" * 7
    + "|"
)
STUDIES = ROOT / "benchmarks" / "results" / "h100" / "studies"
"""What ``simwarp net study`` wrote."""
TRACES = ROOT / "benchmarks" / "results" / "h100" / "traces"
"""What ``simwarp blas trace --json`` wrote."""
ROUTINES_MARKER = "<!-- blas routines -->"
EFFICIENCY_MARKER = "<!-- blas efficiency -->"
EFFICIENCY_HEADER = (
    "| routine | paper, BLASX | its policy, 2 GPUs | 3 GPUs | default, 2 GPUs | 3 GPUs |\n" + "|---" * 6 + "|"
)


def filled(markdown: str) -> str:
    """Put results where a page asks for them."""
    if RESULTS_MARKER in markdown:
        elsewhere = {
            *DOOR_RESULTS,
            *(ROOT / "benchmarks" / "results").rglob("door-torch*.json"),
            *(path for of in (SIMULATED, STUDIES, TRACES) for path in of.rglob("*.json")),
            *(ROOT / "benchmarks" / "results").rglob("exec-*.json"),
            *(ROOT / "benchmarks" / "results").rglob("latency*.json"),
            *(
                ROOT / "benchmarks" / "results" / "h200" / f"{name}.json"
                for name in ("outofcore-filters", "blas3-cpu")
            ),
            BOTH_RESULTS,
            *(ROOT / "benchmarks" / "results" / "h200" / "papers").rglob("*.json"),
            *(ROOT / "benchmarks" / "results" / "tensors").glob("*.json"),
        }
        paths = sorted(set((ROOT / "benchmarks" / "results").rglob("*.json")) - elsewhere)
        markdown = markdown.replace(RESULTS_MARKER, results_table(json.loads(p.read_text()) for p in paths))
    if DOOR_MARKER in markdown:
        found = [path for path in DOOR_RESULTS if path.exists()]
        markdown = markdown.replace(
            DOOR_MARKER,
            door_table(row for path in found for row in json.loads(path.read_text())["rows"]),
        )
    markdown = TORCH_DOOR_MARKER.sub(lambda found: torch_door_table(_rows_of(found[1])), markdown)
    if BITS_MARKER in markdown:
        found = [bits_results(json.loads(path.read_text())) for path in BITS_RESULTS if path.exists()]
        markdown = markdown.replace(BITS_MARKER, "\n\n".join(found) or "*Not measured yet.*")
    markdown = SPEEDS_MARKER.sub(lambda found: speeds(found[1].split(","), found[2], found[3]), markdown)
    markdown = FIGURE_MARKER.sub(lambda found: figure(*found.groups()), markdown)
    markdown = RATIO_MARKER.sub(lambda found: ratio(*found.groups()), markdown)
    markdown = STUDY_MARKER.sub(lambda found: study(found[1]), markdown)
    markdown = TRACES_MARKER.sub(lambda found: traces(found[1].split(",")), markdown)
    if MTTKRP_MARKER in markdown:
        rows = json.loads(MTTKRP_RESULTS.read_text())["rows"]
        markdown = markdown.replace(MTTKRP_MARKER, mttkrp_table(rows))
    if STRANGERS_MARKER in markdown:
        rows = json.loads(STRANGERS_RESULTS.read_text())["rows"]
        markdown = markdown.replace(STRANGERS_MARKER, strangers_table(rows))
    if BOTH_MARKER in markdown:
        rows = json.loads(BOTH_RESULTS.read_text())["rows"]
        markdown = markdown.replace(BOTH_MARKER, both_table(row["params"] for row in rows))
    if LABELLED_MARKER in markdown:
        found = [json.loads(path.read_text())["rows"] for path in LABELLED_RESULTS if path.exists()]
        markdown = markdown.replace(LABELLED_MARKER, labelled_tables([row for rows in found for row in rows]))
    if ROUTINES_MARKER in markdown:
        markdown = markdown.replace(ROUTINES_MARKER, routines_table())
    if EFFICIENCY_MARKER in markdown:
        rows = json.loads((SIMULATED / "blas-everest.json").read_text())["rows"]
        markdown = markdown.replace(EFFICIENCY_MARKER, efficiency_table(rows))
    if OUTOFCORE_MARKER in markdown:
        markdown = markdown.replace(OUTOFCORE_MARKER, outofcore_table(outofcore_results()["rows"]))
    return markdown


def figure(name: str, case: str, form: str, other: str | None = None) -> str:
    """The measured figure of one row with its unit; a row or peer that is not there is an error."""
    value, unit = _figures(name, case, other)[other or "ours"]
    return f"{value:{form}} {unit}"


def ratio(name: str, case: str, form: str, other: str) -> str:
    """A figure of one row over ours."""
    found = _figures(name, case, other)
    return f"{found[other][0] / found['ours'][0]:{form}}".replace("%", " %")


def _figures(name: str, case: str, asked: str | None) -> dict[str, tuple[float, str]]:
    """The figures of one row and their units: ours, peers, the target, and parameters with a unit."""
    result = json.loads((ROOT / "benchmarks" / "results" / name).read_text())
    rows = [row for row in result["rows"] if row["case"] == case]
    found: dict[str, tuple[float, str]] = {}
    for row in rows:
        own = {"ours": row["ours"], "target": row["target"], **row["peers"]}
        found |= {key: (value, UNITS.get(row["unit"], row["unit"])) for key, value in own.items()}
        for key, value in row["params"].items():
            inner = {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
            found |= {k: (v, unit) for k, v in inner.items() if (unit := _unit_of_parameter(k))}
    if len(rows) != 1 or found.get(asked or "ours", (None,))[0] is None:
        raise LookupError(
            f"{name} has {len(rows)} rows {case} ({asked or 'ours'}), and a page shows one; "
            "give a case and a peer of the file, or take the sentence out"
        )
    return found


def _unit_of_parameter(name: str) -> str | None:
    return PARAMETER_UNITS.get(re.split("[_.]", name)[-1])


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


def _rows_of(name: str) -> Sequence[Mapping[str, Any]]:
    """The rows of a file in benchmarks/results."""
    rows: Sequence[Mapping[str, Any]] = json.loads((ROOT / "benchmarks" / "results" / name).read_text())[
        "rows"
    ]
    return rows


def torch_door_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Microseconds of calls with tensors of other libraries: with the result, and until the call returns."""
    pairs: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        kind, _, call = row["case"].partition("/")
        library = kind.removeprefix("door-").removesuffix("-host")
        if call != "nothing":
            pairs.setdefault((library, call), []).append(row)
    lines = [TORCH_DOOR_HEADER]
    for (library, call), (whole, host) in pairs.items():
        fresh = [row["peers"]["fresh"] for row in (whole, host) if "fresh" in row["peers"]]
        names = [name for name in whole["peers"] if name != "fresh"]
        peers = [f"{name} {_number(whole['peers'][name])} ({_number(host['peers'][name])})" for name in names]
        name = f"`{call}`" if library == "torch" else f"`{call}`, {library}"
        new = f"{_number(fresh[0])} ({_number(fresh[1])})" if fresh else ""
        lines.append(f"| {name} | {_door_cell(whole, host)} | {new} | {', '.join(peers)} |")
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


def both_table(kernels: Iterable[Mapping[str, Any]]) -> str:
    """Public kernels that were held on both devices, by repository and by how they agree."""
    groups: dict[tuple[str, str, str], dict[str, None]] = {}
    for kernel in sorted(kernels, key=lambda one: one["repository"].lower()):
        chip = "equal bits" if kernel["equal_bits"] else "within the bound"
        if not kernel["equal_bits"] and kernel["equal_without_fusion"]:
            chip += "; equal with `-fmad=false`"
        key = kernel["repository"], kernel["simulator_calls_it"], chip
        groups.setdefault(key, {})[f"`{kernel['kernel']}`"] = None
    rows = (
        f"| {repository} | {', '.join(names)} | {grade} | {chip} |"
        for (repository, grade, chip), names in groups.items()
    )
    return "\n".join([BOTH_HEADER, *rows])


def labelled_tables(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many labelled kernels are named in which way, and those that are not so by default."""
    ways = list(dict.fromkeys(way for row in rows for way in row["params"]["ways"]))
    lines = [f"| suite | as expected | {' | '.join(ways)} |", "|---" * (2 + len(ways)) + "|"]
    others = ["| kernel | named | why |", "|---|---|---|"]
    for row in rows:
        _, suite, label = row["case"].split("/")
        counts = (str(row["params"]["ways"].get(way, "")) for way in ways)
        cells = (f"**{suite}**, {label}", f"{row['ours']:.0f} of {row['target']:.0f}", *counts)
        lines.append(f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in cells)}|")
        usual = "default" if label == "faulty" else ""
        for kernel in row["params"]["kernels"]:
            if kernel["reason"] or kernel["named"] != usual:
                others.append(
                    f"| `{kernel['kernel']}`, {label} | {kernel['named'] or 'no'} | {kernel['reason']} |"
                )
    return "\n".join([*lines, "", *others])


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _number(value: float) -> str:
    """Three digits that count; all of them before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


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


def routines_table() -> str:
    """The routines of level-3 BLAS: dtypes, formula, arguments before those for the machine."""
    lines = ["| routine | computes | arguments |", "|---|---|---|"]
    for row in import_module("gpu.blas3.table").ROWS.values():
        names, arguments = f"`[{row.prefixes}]{row.name}`", f"`{', '.join(row.arguments)}`"
        lines.append(f"| {names} | {row.computed} | {arguments} |")
    return "\n".join(lines)


def outofcore_results() -> Any:
    """The paper's figures on a simulated P100."""
    return json.loads((SIMULATED / "outofcore-p100.json").read_text())


def outofcore_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """The GFLOPS of the paper's table 4 by planner, printed and simulated."""
    cases: dict[str, list[str]] = {}
    for row in rows:
        if row["figure"] == "table 4":
            rates = (f"{row[name] / 1e9:.0f}" for name in ("printed", "rate"))
            cases.setdefault(row["case"], []).extend(rates)
    lines = [f"| {case} | {' | '.join(cells)} |" for case, cells in cases.items()]
    return "\n".join([OUTOFCORE_HEADER, *lines])
