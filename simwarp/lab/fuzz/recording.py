"""Recordings: the answers of hardware to many programs, by which any machine can check the simulator.

A recording is two files: ``<name>.npz`` with a digest of each program's text and one of its answer,
and the vocabulary that the programs were drawn from; ``<name>.json`` with its origin. The programs
themselves are generated again from the seed. A counterexample is kept as ``<name>.ptx``, and its right
answer in ``<name>.npz`` and ``<name>.json``.

Examples
--------
A counterexample is kept with the words of the first witness, with which any device can be compared:

>>> from tempfile import TemporaryDirectory
>>> from simwarp import Device
>>> program = generate(0, 0)
>>> (answer,) = answers(Device(), [program])
>>> found = Difference(0, program, ("one", "other"), (answer, answer + np.uint64(1)))
>>> with TemporaryDirectory() as folder:
...     still_right(keep(found, Path(folder)), Device())
True

A recording is replayed from its digests; here the simulator's own stand for the hardware's:

>>> text = hashlib.sha256(module_text([program]).encode()).digest()[:4]
>>> texts, digests = (np.frombuffer(row, np.uint8).reshape(1, -1) for row in (text, digest(answer)))
>>> replay(Recording({"seed": 0}, texts, digests, all_rows()), Device())
[]
>>> replay(Recording({"seed": 0}, texts, digests ^ 1, all_rows()), Device())
[0]
>>> record(Device(), Path("fuzz.npz"), seed=0, count=1)
Traceback (most recent call last):
...
reference.errors.InputFileError: programs are recorded on hardware, not on simwarp simulator (sm_90)
give --device cuda
>>> load(Path("no-such-recording.npz"))
Traceback (most recent call last):
...
reference.errors.InputFileError: no recording at no-such-recording.npz: No such file or directory
record one on a GPU: simwarp fuzz --record FILE
"""

from __future__ import annotations

import datetime
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from reference.errors import InputFileError, SimwarpError
from reference.files import write_whole
from simwarp.lab.fuzz.generate import VERSION, generate
from simwarp.lab.fuzz.hunt import Difference, Witness
from simwarp.lab.fuzz.mutate import mutate
from simwarp.lab.fuzz.program import Program
from simwarp.lab.fuzz.run import answers, digest, text_answers
from simwarp.lab.fuzz.vocabulary import Vocabulary, all_rows
from simwarp.lab.fuzz.workers import Workers
from simwarp.lab.fuzz.writer import module_text

_SLICE = 1024
"""Programs in memory at a time."""
_NONE = bytes(16)
"""The digest of no answer."""
_DAMAGED = (OSError, ValueError, TypeError, KeyError, EOFError, BadZipFile, zlib.error)


@dataclass(frozen=True)
class Recording:
    """The answers of hardware to generated programs."""

    meta: dict[str, Any]  # the generator's version, the seed, the origin, the SHA-256 of all texts
    texts: npt.NDArray[np.uint8]  # (count, 4): the start of the SHA-256 of each program's text
    digests: npt.NDArray[np.uint8]  # (count, 16) of the answers; zeros if there was none
    vocabulary: Vocabulary

    def program(self, number: int) -> Program:
        """Generate a program again; an InputFileError if it is not the recorded one."""
        reason = "the generator has changed"
        try:
            program = generate(self.meta["seed"], number, self.vocabulary)
            if _text_digest(module_text([program])) == self.texts[number].tobytes():
                return program
        except KeyError as missing:
            reason = f"no row has {missing} any more"
        raise InputFileError(
            f"program {number} of this recording cannot be generated again: {reason}\n"
            "record it anew on a GPU: simwarp fuzz --record FILE"
        )


def record(
    device: Any,
    file: Path,
    *,
    seed: int,
    count: int,
    workers: Workers | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Recording:
    """Run programs 0 … ``count`` - 1 of a seed on hardware, and keep the digests of its answers.

    Those that crash the compiler, or that it compiles otherwise than their mutants, are kept without one.
    """
    if not hasattr(device, "uuid"):
        raise InputFileError(f"programs are recorded on hardware, not on {device.name}\ngive --device cuda")
    vocabulary = all_rows()
    texts: list[bytes] = []
    digests: list[bytes] = []
    whole = hashlib.sha256()
    witnesses = [Witness("", device, change, workers) for change in (None, mutate)]
    for first in range(0, count, _SLICE):
        programs = [generate(seed, k, vocabulary) for k in range(first, min(first + _SLICE, count))]
        for program in programs:
            text = module_text([program])
            whole.update(text.encode())
            texts.append(_text_digest(text))
        answered = zip(*(witness.digests(programs) for witness in witnesses), strict=True)
        digests += [one if one and one == other else _NONE for one, other in answered]
        progress(len(digests))
    meta = {
        "generator": VERSION,
        "seed": seed,
        "count": count,
        "without": digests.count(_NONE),
        "texts": whole.hexdigest(),
        **_origin(device),
        "command": f"simwarp fuzz --record {file.name} --programs {count} --seed {seed}",
    }
    recording = Recording(meta, _bytes(texts), _bytes(digests), vocabulary)
    words = json.dumps(vocabulary).encode()
    arrays = {"texts": recording.texts, "digests": recording.digests, "vocabulary": _bytes([words])}
    _write(file, meta, arrays)
    return recording


def load(file: Path) -> Recording:
    """Read a recording; an InputFileError if either of its files is missing or damaged."""
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as stored:
            texts, digests = stored["texts"], stored["digests"]
            opcodes = json.loads(stored["vocabulary"].tobytes())
        meta = json.loads(file.with_suffix(".json").read_text())
        vocabulary = {k: {name: tuple(forms) for name, forms in v.items()} for k, v in opcodes.items()}
        if texts.shape != (meta["count"], 4) or digests.shape != (meta["count"], 16):
            raise ValueError("its parts do not fit each other")
    except _DAMAGED as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputFileError(
            f"no recording at {file}: {reason}\nrecord one on a GPU: simwarp fuzz --record FILE"
        ) from None
    return Recording(meta, texts, digests, vocabulary)


def replay(
    recording: Recording,
    device: Any,
    numbers: Iterable[int] | None = None,
    *,
    progress: Callable[[int], None] = lambda done: None,
) -> list[int]:
    """The programs, of some or all with an answer, that a device answers otherwise than the hardware did."""
    wrong: list[int] = []
    for done, number in enumerate(range(len(recording.digests)) if numbers is None else numbers):
        right = recording.digests[number].tobytes()
        if right != _NONE:
            (answer,) = answers(device, [recording.program(number)])
            if digest(answer) != right:
                wrong.append(number)
        progress(done + 1)
    return wrong


def keep(found: Difference, folder: Path, device: Any = None) -> Path:
    """Write a counterexample with the answer of the first witness, perhaps hardware; return the ``.ptx``."""
    program, words = found.program, found.words[0]
    name = hashlib.sha256(found.text.encode()).hexdigest()[:12]
    meta = {
        "seed": program.seed,
        "number": program.number,
        "blocks": program.blocks,
        "block": program.block,
        "witnesses": list(found.names),
        "differed": found.lines(),
        **(_origin(device) if device is not None and hasattr(device, "uuid") else {}),
    }
    ptx = folder / f"{name}.ptx"
    arrays = {} if isinstance(words, SimwarpError) else {"words": words}
    _write(folder / f"{name}.npz", meta, arrays)
    write_whole(ptx, lambda file: file.write(found.text.encode()))
    return ptx


def still_right(ptx: Path, device: Any) -> bool:
    """Whether a device has the answer that was kept for a counterexample."""
    try:
        meta = json.loads(ptx.with_suffix(".json").read_text())
        with ptx.with_suffix(".npz").open("rb") as opened, np.load(opened, allow_pickle=False) as stored:
            words: npt.NDArray[np.uint64] = stored["words"]
        text = ptx.read_text()
        program = Program(meta["seed"], meta["number"], (), meta["blocks"], meta["block"])
    except _DAMAGED as error:
        raise InputFileError(
            f"{ptx} is not a whole counterexample: {error}\ndelete it, or search for it again"
        ) from None
    (answer,) = text_answers(device, text, [program])
    return not isinstance(answer, SimwarpError) and np.array_equal(answer, words)


def _origin(device: Any) -> dict[str, Any]:
    return {
        "gpu": {"name": device.name, "uuid": device.uuid},
        "driver": device.driver_version,
        "arch": list(device.compute_capability),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def _write(file: Path, meta: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> None:
    text = json.dumps(meta, indent=2).encode() + b"\n"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, lambda opened: np.savez_compressed(opened, **arrays))  # pyright: ignore[reportArgumentType]
        write_whole(file.with_suffix(".json"), lambda opened: opened.write(text))
    except OSError as error:
        raise InputFileError(
            f"{file} cannot be written: {error.strerror or error}\nchoose another place"
        ) from None


def _text_digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:4]


def _bytes(rows: list[bytes]) -> npt.NDArray[np.uint8]:
    """Rows of equally many bytes as an array."""
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)
