"""The command ``simwarp probe latency``: figures 2 to 13 of the paper on bit tensor cores.

>>> latency_command(2, OneDevice.sim, as_json=False)  # doctest: +ELLIPSIS
wmma.load.a.sync.aligned.row.m8n8k128.global.b1, figures 2 and 4
...
0
"""

from __future__ import annotations

from itertools import groupby
from typing import Any, cast

from rich.console import Console
from rich.text import Text

from simwarp.cli.output import OneDevice, cuda_device, print_json, table, wide_console

_ABOUT = {"study", "figures", "instruction", "memory", "accumulators"}
"""What all rows of a table share; the other fields are its columns."""


def latency_command(figure: int | None, device: OneDevice, *, as_json: bool) -> int:
    """Print the latencies of loads, stores and products of bits; on the simulator what explains them."""
    from simwarp.device.device import Device
    from simwarp.lab.probe.latency import latencies

    advice = "give --device sim to count what explains the cycles"
    target = Device() if device is OneDevice.sim else cuda_device(advice)
    rows = latencies(target, figure)
    if as_json:
        print_json({"device": target.name, "rows": rows})
        return 0
    console = wide_console()
    for about, group in groupby(rows, lambda row: {key: row[key] for key in row if key in _ABOUT}):
        _show(console, about, list(group))
    return 0


def _show(console: Console, about: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    figures = " and ".join(map(str, about["figures"]))
    with_accumulators = f", {about['accumulators']} accumulators" if "accumulators" in about else ""
    console.print(Text(f"{about['instruction']}{with_accumulators}, figures {figures}"))
    first, *columns = (name for name in rows[0] if name not in _ABOUT)
    shown = table(first, numbers=tuple(name.replace("_", " ") for name in columns))
    for row in rows:
        shown.add_row(str(row[first]), *(_cell(row[name]) for name in columns))
    console.print(shown)


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        executed = cast("dict[str, int]", value)
        return ", ".join(f"{count} {name}" for name, count in executed.items())
    return f"{value:.1f}" if isinstance(value, float) else str(value)
