"""Text tables of a device's report, from the plain data of ``device.report.to_json()``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Data: TypeAlias = Mapping[str, Any]

_TITLES = {
    "banks": "Bank conflicts: wavefronts of accesses to shared memory",
    "sectors": "Sectors: 32-byte pieces of global memory",
    "divergence": "Divergence: active lanes of warps",
    "coverage": "Coverage: instructions, and the classes of their operand values",
    "traffic": "Traffic",
    "fidelity": "Fidelity",
    "pipeline": "Pipeline: stages in shared memory of block 0; ~ copy in flight, = filled, # read, . free",
    "products": "Products of warpgroups, by number of the warpgroup in its block",
}


def to_text(report: Data) -> str:
    """A report, of ``device.report.to_json()``, as text: tables for each observer, and one line for fidelity.

    >>> lines = {"bmm.cu:7": {"requests": 4, "conflicts": 0}, "bmm.cu:42": {"requests": 1024, "conflicts": 3}}
    >>> print(to_text({"banks": {"lines": lines, "total": {"requests": 1028, "conflicts": 3}}}))
    Bank conflicts: wavefronts of accesses to shared memory
    <BLANKLINE>
    line       requests  conflicts
    bmm.cu:7          4          0
    bmm.cu:42     1,024          3
    total         1,028          3
    """
    if not report:
        return 'nothing was observed: simwarp.Device(observe="all") counts everything'
    parts = [f"{_TITLES.get(name, name)}\n\n{_body(name, data)}" for name, data in report.items()]
    return "\n\n\n".join(parts)


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A text table with text left-aligned and numbers right-aligned, without trailing spaces.

    >>> print(table(["space", "bytes"], [["global", 4096], ["shared", 64]]))
    space   bytes
    global  4,096
    shared     64
    """
    texts = [[*header], *([_cell(value) for value in row] for row in rows)]
    numbers = [
        bool(rows) and all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(header))
    ]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = (
        "  ".join(
            f"{text:>{width}}" if number else f"{text:<{width}}"
            for text, width, number in zip(line, widths, numbers, strict=True)
        )
        for line in texts
    )
    return "\n".join(line.rstrip() for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _body(name: str, data: Data) -> str:
    if name == "fidelity":
        return data["text"]
    if name == "pipeline":
        width = max(map(len, data["rows"]), default=0)
        return "\n".join(f"{stage:>{width}}  {row}" for stage, row in data["rows"].items()) or "none"
    if name == "traffic":
        return _traffic(data)
    if name == "products":
        return _products(data)
    return _coverage(data) if name == "coverage" else _by_line(data)


def _by_line(data: Data) -> str:
    """The table by line with its total as the last row, then the tables by opcode or other keys."""
    if not data["lines"]:
        return "none"
    parts = [_numbers("line", {**data["lines"], "total": data["total"]})]
    parts += [_numbers(key, rows) for key, rows in data.items() if key not in ("lines", "total") and rows]
    return "\n\n".join(parts)


def _numbers(first: str, rows: Data) -> str:
    columns = list(dict.fromkeys(column for numbers in rows.values() for column in numbers))
    return table(
        [first.removesuffix("s"), *(column.replace("_", " ") for column in columns)],
        [[key, *(numbers.get(column) for column in columns)] for key, numbers in rows.items()],
    )


def _traffic(data: Data) -> str:
    distinct = [
        ["requested", data["requested"]],
        ["compulsory, read", data["compulsory_read"]],
        ["compulsory, written", data["compulsory_written"]],
    ]
    parts = [table(["global memory", "bytes"], distinct)]
    if data["spaces"]:
        parts.insert(0, _numbers("space", data["spaces"]))
    if data["units"].keys() - {"lanes"}:
        parts.insert(1, _of_units(data["units"]))
    if data["operations"]:
        parts.append(table(["type", "operations"], list(data["operations"].items())))
    return "\n\n".join(parts)


def _of_units(units: Data) -> str:
    """The bytes of lanes, copies and products by state space."""
    rows = [
        [unit, space, *counts.values()] for unit, spaces in units.items() for space, counts in spaces.items()
    ]
    counted = next(iter(next(iter(units.values())).values()))
    return table(["by", "space", *(column.replace("_", " ") for column in counted)], rows)


def _products(data: Data) -> str:
    """The counts of each warpgroup by line, with their total."""
    if not data["lines"]:
        return "none"
    rows = [
        [number, line, *counts.values()]
        for number, one in {**data["warpgroups"], "all": data}.items()
        for line, counts in {**one["lines"], "total": one["total"]}.items()
    ]
    return table(["warpgroup", "line", *(column.replace("_", " ") for column in data["total"])], rows)


def _coverage(data: Data) -> str:
    rows = [
        [
            name,
            row["count"],
            " ".join(row["forms"]),
            "; ".join(f"{operand}: {', '.join(met)}" for operand, met in row["operands"].items() if met),
        ]
        for name, row in data["rows"].items()
    ]
    executed = table(["row", "thread-instructions", "forms", "operands"], rows)
    return f"{executed}\n\n{len(rows)} rows of {len(rows) + len(data['not_met'])}"
