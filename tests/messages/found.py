"""The faults whose messages are recorded: one of each kind, from kernels here and from ``examples/bugs``.

``python tests/messages/found.py`` writes the recorded texts again; read them before they are committed.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.console import Console

import simwarp
from simwarp import faults
from simwarp.findings import Finding
from simwarp.run import Out, run
from simwarp.run.outcome import styled
from simwarp.run.source import load

FOLDER = Path(__file__).parent
BUGS = FOLDER.parents[1] / "examples" / "bugs"
WHOLE = np.arange(64, dtype=np.int32)

LAUNCHES = {
    "foreign_pointer": {
        "grid": 2,
        "block": 32,
        "args": [np.zeros(1, np.uint64), Out("int32", 32)],
        "cooperative": True,
    },
    "read_only_write": {"grid": 1, "block": 1, "args": [2]},
    "stale_read": {"grid": 1, "block": 64, "args": [Out("int32", 128)]},
    "double_free": {"grid": 1, "block": 1},
    "uninitialised_register": {"grid": 1, "block": 32, "args": [Out("int32", 32), 20]},
    "division_by_zero": {"grid": 1, "block": 32, "args": [Out("int32", 32), 5]},
    "skipped_barrier": {"grid": 1, "block": 64, "args": [WHOLE, Out("int32", 64), 40]},
    "skipped_member": {"grid": 1, "block": 32, "args": [WHOLE, Out("int32", 32)]},
    "early_exit": {"grid": 1, "block": 64, "args": [Out("int32", 64), 40], "checks": {"exits": "raise"}},
    "divergent_matrix": {"grid": 1, "block": 32, "args": [Out("uint32", 32)], "shared": 128},
    "trap": {"grid": 2, "block": 64, "args": [33]},
    "not_cooperative": {"grid": 2, "block": 32, "args": [Out("int32", 32)]},
    "unreachable": {"grid": 1, "block": 32, "args": [WHOLE, Out("int32", 32)]},
    "not_clustered": {"grid": 1, "block": 1, "args": [Out("uint32", 1)]},
    "assertion_failed": {"grid": 1, "block": 32, "args": [WHOLE, Out("int32", 32)]},
    "runaway_kernel": {"grid": 1, "block": 32, "args": [np.zeros(1, np.int32)], "instruction_budget": 2000},
    "needs_independent_progress": {
        "grid": 1,
        "block": 32,
        "args": [np.zeros(1, np.int32), np.zeros(1, np.int32)],
        "schedule": "stack",
    },
    "wrong_stride": {"grid": 1, "block": 32, "args": [np.zeros(288, np.float16), Out("float32", 32)]},
    "no_tensor_map": {
        "grid": 1,
        "block": 32,
        "args": [np.zeros(128, np.uint8).view("V128")[0], Out("int32", 32)],
    },
    "unequal_registers": {"grid": 1, "block": 128, "args": [Out("int32", 128)]},
    "no_texture": {"grid": 1, "block": 32, "args": [5, Out("int32", 32)]},
    "tiles<double>": {"grid": 1, "block": (8, 8), "args": [np.arange(64.0), Out("float64", 64)]},
}
"""Kernel → its launch."""

OF_BUGS = (
    "off_by_one",
    "misaligned_vector",
    "use_after_free",
    "uninitialised_shared",
    "wrong_mask",
    "stale_shuffle",
    "divergent_barrier",
    "livelock",
    "race_between_blocks",
    "stale_parity",
    "too_few_bytes",
    "missing_proxy_fence",
    "unattended_read",
    "unfinished_product",
    "wrong_swizzle",
    "too_many_registers",
    "few_releases",
    "early_read",
)
"""Bugs of ``examples/bugs`` whose messages are recorded, too."""


def found() -> Iterator[tuple[str, faults.KernelFault]]:
    """Each kernel's name and its fault."""
    sources = (
        load(FOLDER / "kinds.cu"),
        load(FOLDER / "unoptimised.cu", options=["-G"]),
        load(FOLDER / "hopper.cu", options=["--gpu-architecture=compute_90a"]),
    )
    for name, launch in LAUNCHES.items():
        try:
            run(next(source for source in sources if name in source.kernels), name, **launch)
        except faults.KernelFault as fault:
            yield name, fault
    sys.path.insert(0, str(BUGS))
    from asynchronous import BUGS as ASYNCHRONOUS
    from bugs import BUGS as ORDINARY

    for name in OF_BUGS:
        try:
            (ORDINARY | ASYNCHRONOUS)[name].run(simwarp.Device(instruction_budget=100_000))
        except faults.KernelFault as fault:
            yield name, fault


def terminal(fault: faults.KernelFault) -> str:
    """The message as a terminal gets it."""
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, color_system="standard", width=240, soft_wrap=True)
    console.print(styled(Finding.of(fault).lines()))
    return text.getvalue()


def recorded() -> dict[str, str]:
    """File name → the text that it should have."""
    all_found = dict(found())
    fields = {name: Finding.of(fault).to_json() for name, fault in all_found.items()}
    return {
        "plain.txt": "\n".join(f"== {name}\n{fault}\n" for name, fault in all_found.items()),
        "terminal.txt": "\n".join(f"== {name}\n{terminal(fault)}" for name, fault in all_found.items()),
        "fields.json": json.dumps(fields, indent=1, default=str) + "\n",
    }


if __name__ == "__main__":
    for name, text in recorded().items():
        (FOLDER / name).write_text(text)
