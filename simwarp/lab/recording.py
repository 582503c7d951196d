"""Runs subjects on a device and writes their recordings.

A recording is in the folder of its architecture, such as ``tests/golden/sm_90``, so that each chip has its
own; `simwarp.testing.golden` reads and writes the files.

>>> from tempfile import TemporaryDirectory
>>> from simwarp import Device
>>> subject = Subject("sum", "a sum", lambda asking: Answers({"sum": 3}))
>>> with TemporaryDirectory() as folder:
...     outcome = record(subject, Asking(Device), Path(folder))
...     recorded("sum", Path(folder), trial=True).meta["sum"]
3
>>> outcome.paths[0].parent.name, outcome.differences
('sm_90', [])
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy.typing as npt

from reference.errors import InputFileError, SchemeError
from reference.files import write_whole
from simwarp.chips.chips import RECORDED
from simwarp.fragments.opcodes import RECORD as OBSERVED
from simwarp.lab.evidence.forms import RECORD as EVIDENCE
from simwarp.testing.golden import Recording, as_text, header, read, write

CHECKOUT = Path(__file__).parents[2]
GOLDEN = CHECKOUT / "tests" / "golden"
"""The folder of the project's recordings."""
TABLES = {path.name: path for path in (EVIDENCE, OBSERVED)}
"""By file name, the tables of recorded facts that are part of the package."""
_CHIP = f"sm_{RECORDED.sm}"

T = TypeVar("T")
R = TypeVar("R")


@dataclass
class Asking:
    """The options of one run of a subject: device, size, number of processes, progress callback."""

    make: Callable[[], Any]  # a function that makes the device, called in each process
    small: bool = False  # only a few inputs of each kind
    processes: int = 1
    progress: Callable[[int, int], None] = lambda done, total: None

    @property
    def device(self) -> Any:
        """The device of this process, made at the first access."""
        return _device(self.make)

    @property
    def simulated(self) -> bool:
        """Whether the device is the simulator."""
        return not hasattr(self.device, "uuid")

    def number(self, full: int, small: int) -> int:
        """``small`` in a small run, else ``full``."""
        return small if self.small else full

    def each(self, items: Sequence[T]) -> Iterator[T]:
        """Yield the items, and report how many are done to ``progress``."""
        for done, item in enumerate(items):
            self.progress(done, len(items))
            yield item
        self.progress(len(items), len(items))

    def map(self, function: Callable[..., R], tasks: Sequence[tuple[Any, ...]]) -> Iterator[R]:
        """The results of ``function(device, *task)`` for each task, in order, computed in `processes`."""
        if self.processes == 1:
            yield from (function(self.device, *task) for task in self.each(tasks))
            return
        pool = ProcessPoolExecutor(self.processes, multiprocessing.get_context("spawn"))
        try:
            waiting = [pool.submit(_answer, self.make, function, task) for task in tasks]
            yield from (one.result() for one in self.each(waiting))
        finally:
            pool.shutdown(cancel_futures=True)


@cache
def _device(make: Callable[[], Any]) -> Any:
    return make()


def _answer(make: Callable[[], Any], function: Callable[..., R], task: tuple[Any, ...]) -> R:
    return function(_device(make), *task)


@dataclass(frozen=True)
class Answers:
    """The result of a subject's ``ask``, as written to its recording."""

    facts: dict[str, Any]  # facts as JSON values
    arrays: dict[str, npt.NDArray[Any]] = field(default_factory=dict[str, Any])
    ptx: Mapping[str, str] = field(default_factory=dict[str, str])  # title of each PTX text → its SHA-256
    differences: list[str] = field(
        default_factory=list[str]
    )  # descriptions of differences from the simulator or the reference
    table: str = ""  # the key in `TABLES` of the table that gets `forms`
    forms: dict[str, Any] = field(
        default_factory=dict[str, Any]
    )  # opcode → table entry; None removes the chip from the entry


@dataclass(frozen=True)
class Subject:
    """A named set of hardware experiments, whose results are recorded."""

    name: str
    about: str
    ask: Callable[[Asking], Answers]
    needs: tuple[str, ...] = ()  # programs that must be on PATH; each needs a GPU


@dataclass(frozen=True)
class Outcome:
    """The result of recording one subject: files written and differences found."""

    subject: str
    paths: list[Path]
    differences: list[str]
    seconds: float


def record(subject: Subject, asking: Asking, folder: Path = GOLDEN) -> Outcome:
    """Run a subject, and write its recording when it has finished."""
    if lacking := [program for program in subject.needs if not shutil.which(program)]:
        raise InputFileError(
            f"{subject.name} needs {', '.join(lacking)}\nrecord it on a GPU with the CUDA toolkit"
        )
    start = time.perf_counter()
    answers = subject.ask(asking)
    seconds = time.perf_counter() - start
    command = f"simwarp record {subject.name}{' --small' * asking.small}"
    meta = header(asking.device, subject.name, command, answers.ptx, trial=asking.small)
    home = folder / architecture(asking.device)
    paths = write(home, Recording(meta | {"seconds": round(seconds, 1)} | answers.facts, answers.arrays))
    if answers.table:
        table = TABLES[answers.table] if folder == GOLDEN else folder / answers.table
        enter(table, home.name, meta, answers.forms)
        paths.append(table)
    if answers.differences:
        report = home / f"{subject.name}-differences.txt"
        report.write_text("\n\n".join(answers.differences) + "\n")
        paths.append(report)
    return Outcome(subject.name, paths, answers.differences, seconds)


def recorded(subject: str, folder: Path = GOLDEN, chip: str = _CHIP, *, trial: bool = False) -> Recording:
    """Read the recording of a subject on an architecture."""
    return read(folder / chip / f"{subject}.json", trial=trial)


def architecture(device: Any) -> str:
    """The name of the folder of a device's recordings, such as "sm_90"."""
    return "sm_{}{}".format(*device.compute_capability)


def enter(table: Path, chip: str, origin: Mapping[str, Any], forms: Mapping[str, Any]) -> None:
    """Replace a chip's entries for some forms in a table file; other chips and forms stay."""
    known: dict[str, dict[str, Any]] = {"meta": {}, "forms": {}}
    known |= json.loads(table.read_text()) if table.exists() else {}
    for form, entry in forms.items():
        chips = {**known["forms"].get(form, {}), chip: entry}
        known["forms"][form] = {name: chips[name] for name in sorted(chips) if chips[name] is not None}
    known["meta"][chip] = {name: origin[name] for name in ("gpu", "driver", "date", "command")}
    known["forms"] = {form: chips for form, chips in known["forms"].items() if chips}
    text = as_text(known).encode()
    table.parent.mkdir(parents=True, exist_ok=True)
    write_whole(table, lambda file: file.write(text))


@cache
def example(folder: str, name: str) -> ModuleType:
    """Import a module of a folder in ``examples``, with that folder on the import path."""
    home = examples(folder)
    sys.path.insert(0, os.fspath(home))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(os.fspath(home))


def examples(folder: str) -> Path:
    """The path of a folder of examples; InputFileError outside a checkout."""
    home = CHECKOUT / "examples" / folder
    if not home.exists():
        raise InputFileError(f"{home} does not exist\nrecord in a checkout of the repository")
    return home


def named(words: Iterable[str], subjects: Mapping[str, Subject]) -> list[Subject]:
    """The subjects that the words name; a word may contain the wildcard ``*``."""
    found: dict[str, Subject] = {}
    for word in words:
        mine = {name: subject for name, subject in subjects.items() if fnmatchcase(name, word)}
        if not mine:
            raise SchemeError(f"unknown subject {word!r}\nchoose one of {', '.join(subjects)}")
        found |= mine
    return list(found.values())
