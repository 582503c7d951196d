"""Makes entries of papers, one after another, and keeps each in a file of its own."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import simwarp
from reference.errors import InputFileError, MissingExtraError, NoGpuError
from reference.files import write_output
from simwarp.lab.network_studies import Facts
from simwarp.lab.papers.compare import beside, differences
from simwarp.lab.papers.data import Data
from simwarp.lab.papers.entries import Device, Item, Making, Paper
from simwarp.testing import golden

Chosen = Sequence[tuple[Paper, Item]]


def made(
    chosen: Chosen,
    device: Device,
    data: Data,
    progress: Callable[[Item, int, int], None],
    folder: Path | None = None,
) -> Iterator[Facts]:
    """Yield each entry once it is made, and write it to the folder; one that is there already is read.

    Before the first one raises SchemeError for an entry that the device does not make, NoGpuError without a
    GPU, and InputFileError for a folder of data without any.
    """
    makers = [paper.maker(item, device) for paper, item in chosen]
    data.check()
    on = _gpu() if device == "cuda" else None
    about, kept = _about(on, data), dict[Any, Any]()
    for (paper, item), maker in zip(chosen, makers, strict=True):
        path = None if folder is None else folder / paper.name / f"{item.slug}.json"
        before = None if path is None else _finished(path, about)
        if before is not None:
            yield before
            continue
        begin, worked = time.perf_counter(), time.process_time()
        found = maker(Making(data, lambda done, total, item=item: progress(item, done, total), on, kept))
        seconds = {
            "seconds": round(time.perf_counter() - begin, 2),
            "core_seconds": round(time.process_time() - worked, 2),
        }
        rows = beside(item, found.rows)
        facts = {
            "paper": paper.name,
            "item": item.name,
            "title": item.title,
            "device": device,
            "meta": {**about, "date": datetime.now(UTC).date().isoformat(), **seconds},
            "sizes": found.sizes,
            "data": found.data,
            "reasons": {name: item.reason(name, device) for name in differences(rows)},
            "rows": rows,
        }
        if path is not None:
            _write(path, facts)
        yield facts


def _gpu() -> Any:
    """The first GPU."""
    from gpu.cuda import default_device

    try:
        return default_device()
    except (NoGpuError, MissingExtraError) as error:
        raise NoGpuError(
            f"{str(error).splitlines()[0]}\ngive --device sim for what the simulator makes"
        ) from None


def _about(gpu: Any, data: Data) -> Facts:
    """What a result depends on: the code, the libraries, the device and the data."""
    from gpu.compile import compiler_version

    versions = {"simwarp": simwarp.__version__, "numpy": np.__version__, "python": platform.python_version()}
    with suppress(MissingExtraError):  # simulated machines need no compiler
        versions["nvrtc"] = compiler_version().removeprefix("NVRTC ")
    machine = {} if gpu is None else {"gpu": gpu.name, "driver": str(gpu.driver_version)}
    folder = None if data.folder is None else str(data.folder.resolve())
    return {"commit": golden.commit(), "versions": versions, **machine, "data": folder}


def _finished(path: Path, about: Facts) -> Facts | None:
    """What an earlier run of the same code wrote; None otherwise, and for code that is not committed."""
    if str(about["commit"]).endswith("-dirty"):
        return None
    try:
        found: Facts = json.loads(path.read_text())
        meta = found["meta"]
        return found if all(meta.get(name) == value for name, value in about.items()) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write(path: Path, facts: Facts) -> None:
    advice = "choose another folder with --out"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputFileError(f"{path.parent} cannot be made: {error.strerror or error}\n{advice}") from None
    text = as_text(facts)
    write_output(path, lambda file: file.write(text.encode()), advice)


def as_text(facts: Facts) -> str:
    """An entry as JSON, a row a line."""
    head = json.dumps({**facts, "rows": []}, indent=1, default=str, ensure_ascii=False).removesuffix("[]\n}")
    rows = ",\n".join(f"  {json.dumps(row, default=str, ensure_ascii=False)}" for row in facts["rows"])
    return f"{head}[\n{rows}\n ]\n}}\n"
