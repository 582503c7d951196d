"""Goldens of the forms: what hardware answered, one file for each family of PTX ISA sections.

A file ``ptx-<family>.npz`` holds, for each form in order: its name (``forms``), a SHA-256 of kernel
text and operands (``questions``), one of all answers that are compared (``answers``), how many sets
it was asked (``sets``), and some answers as they are (``raw`` from ``starts`` on): all of them where
answers may differ, else evenly chosen ones that show what is wrong. ``ptx.json`` says where the
answers come from.

Examples
--------
>>> from tempfile import TemporaryDirectory
>>> import simwarp
>>> from simwarp.lab.evidence.catalogue import probe_of
>>> from simwarp.lab.evidence.launch import ask
>>> probe = probe_of("popc.b32")
>>> answers = ask(simwarp.Device(), [probe])
>>> with TemporaryDirectory() as folder:
...     path = Path(folder, "ptx-integer.npz")
...     write(path, [probe], answers)
...     (kept,) = read(path, {"popc.b32": probe})
>>> kept.form, kept.sets, kept.raw.shape
('popc.b32', 1024, (256, 1))
>>> kept.question == question(probe), kept.digest == digest(probe, answers[0])
(True, True)
>>> whole(probe), whole(probe_of("ex2.approx.f32"))
(False, True)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from reference.errors import InputFileError
from simwarp.lab.evidence.catalogue import operands_of
from simwarp.lab.evidence.judge import comparable, found, strategy
from simwarp.lab.evidence.operands import Column, Words, width
from simwarp.lab.evidence.probe import Probe
from simwarp.ptx.rows import Row

FAMILIES = {
    "9.7.1": "integer",
    "9.7.2": "integer",
    "9.7.3": "floating",
    "9.7.4": "floating",
    "9.7.5": "floating",
    "9.7.6": "comparison",
    "9.7.7": "comparison",
    "9.7.8": "integer",
    "9.7.9": "memory",
    "9.7.12": "control",
    "9.7.13": "control",
    "9.7.14": "matrix",
    "9.7.18": "integer",
}
"""The family of each section; all others are with control flow."""
LARGEST = 1 << 20
"""Bytes of a file, at most."""
SIDECAR = "ptx.json"


@dataclass(frozen=True)
class Answer:
    """What hardware answered to one probe.

    Attributes
    ----------
    form : str
    question, digest : bytes
        The SHA-256 of kernel and operands, and of the compared answers.
    sets : int
        How many sets it was asked.
    raw : uint64 (n, results)
        The answers to the sets `chosen` (sets, n).
    """

    form: str
    question: bytes
    digest: bytes
    sets: int
    raw: Words


def family(row: Row) -> str:
    """The family of a row: the middle of its golden's name.

    Examples
    --------
    >>> from simwarp.ptx.instructions import ROWS
    >>> [family(ROWS[name]) for name in ("popc", "cvt", "mma.s8", "ldmatrix")]
    ['integer', 'floating', 'matrix', 'tiles']
    """
    if row.base == "cvt":
        return "floating"
    if row.kind in ("matrix load", "matrix store"):
        return "tiles"
    return FAMILIES.get(".".join(row.section.split(".")[:3]), "control")


def chosen(sets: int, count: int) -> npt.NDArray[np.intp]:
    """Which of the sets are kept raw: evenly spread, so that edges and random ones are among them.

    Examples
    --------
    >>> chosen(1024, 4).tolist()
    [0, 256, 512, 768]
    """
    return np.arange(count) * sets // count


def question(probe: Probe) -> bytes:
    """The SHA-256 of what a device is asked: kernel text and operands."""
    return hashlib.sha256(probe.digest + operands_of(probe).astype("<u8").tobytes()).digest()


def digest(probe: Probe, answer: Words) -> bytes:
    """The SHA-256 of the answers that are compared."""
    return hashlib.sha256(_bytes(probe.results, comparable(probe, operands_of(probe), answer))).digest()


def whole(probe: Probe) -> bool:
    """Whether all answers are kept, since allowed ones may differ."""
    row, _ = found(probe.form)
    plan = strategy(row)
    return row.fidelity == "bounded" or (plan is not None and plan.holds is not None)


def write(path: Path, probes: Sequence[Probe], answers: Sequence[Words]) -> None:
    """Write one file, with as many raw answers as its size allows.

    Raises
    ------
    InputFileError
        If it cannot be written.
    """
    for count in (256, 128, 64, 32, 16):
        data = _archive(probes, answers, count)
        if len(data) <= LARGEST:
            break
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise InputFileError(
            f"{path} cannot be written: {error.strerror or error}\nchoose another folder with --out"
        ) from None


def _archive(probes: Sequence[Probe], answers: Sequence[Words], count: int) -> bytes:
    raw: list[bytes] = []
    for probe, answer in zip(probes, answers, strict=True):
        kept = answer if whole(probe) else comparable(probe, operands_of(probe), answer)
        rows = chosen(
            len(kept), len(kept) if whole(probe) else max(1, min(count, len(kept)) // _share(probe))
        )
        raw.append(_bytes(probe.results, kept[rows]))
    arrays: dict[str, Any] = {
        "forms": np.array([probe.form.encode() for probe in probes]),
        "questions": np.array([list(question(probe)) for probe in probes], np.uint8),
        "answers": np.array([list(digest(p, a)) for p, a in zip(probes, answers, strict=True)], np.uint8),
        "sets": np.array([len(answer) for answer in answers], np.uint32),
        "starts": np.cumsum([0, *map(len, raw)]).astype(np.uint32),
        "raw": np.frombuffer(b"".join(raw), np.uint8),
    }
    buffer = BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def _share(probe: Probe) -> int:
    """Kernels with many results keep fewer sets."""
    return max(1, len(probe.results) // 4)


def read(path: Path, probes: dict[str, Probe]) -> list[Answer]:
    """The answers in one file, of those forms that have a probe.

    Parameters
    ----------
    path : Path
    probes : dict
        By form.

    Raises
    ------
    InputFileError
        If the file is missing or damaged.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays: dict[str, npt.NDArray[Any]] = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputFileError(
            f"no golden at {path}: {reason}\nrecord it on a GPU with `python -m simwarp.lab.evidence record`"
        ) from None
    answers: list[Answer] = []
    for k, name in enumerate(arrays["forms"].tolist()):
        form = name.decode()
        if form in probes:
            data = arrays["raw"][arrays["starts"][k] : arrays["starts"][k + 1]]
            raw = _words(probes[form].results, data)
            given = arrays["questions"][k].tobytes(), arrays["answers"][k].tobytes()
            answers.append(Answer(form, *given, int(arrays["sets"][k]), raw))
    return answers


def provenance(folder: Path) -> dict[str, Any]:
    """What ``ptx.json`` says: ``gpu`` (name, uuid), ``driver``, ``date``, ``command``, ``files``.

    Raises
    ------
    InputFileError
        If there is none.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "ptx.json").write_text('{"gpu": {"name": "NVIDIA H200"}, "driver": "580"}')
    ...     provenance(Path(folder))["gpu"]["name"]
    'NVIDIA H200'
    """
    try:
        return json.loads((folder / SIDECAR).read_text())
    except (OSError, ValueError) as error:
        raise InputFileError(
            f"no provenance at {folder / SIDECAR}: {error}\n"
            "record it on a GPU with `python -m simwarp.lab.evidence record`"
        ) from None


def _size(column: Column) -> int:
    """Bytes of a stored result: those of its register; of a predicate, one."""
    return 1 if column.type == "pred" else max(2, width(column.type) // 8)


def _bytes(results: Sequence[Column], answer: Words) -> bytes:
    """Result columns one behind the other, each as wide as its register."""
    return b"".join(answer[:, j].astype(f"<u{_size(column)}").tobytes() for j, column in enumerate(results))


def _words(results: Sequence[Column], data: npt.NDArray[np.uint8]) -> Words:
    sizes = [_size(column) for column in results]
    count = len(data) // sum(sizes) if sizes else 0
    words = np.zeros((count, len(results)), np.uint64)
    at = 0
    for j, size in enumerate(sizes):
        words[:, j] = data[at : at + count * size].view(f"<u{size}")
        at += count * size
    return words
