"""The subject that records random programs of `simwarp.lab.fuzz`: digests of their texts and results.

The seed and the vocabulary determine the programs, so the recording does not store their text. This example
uses the simulator in place of hardware:

>>> from simwarp import Device
>>> texts, digests, vocabulary = ask_programs(Asking(Device), seed=0, count=1).arrays.values()
>>> replay(Programs({"seed": 0}, texts, digests, all_rows()), Device())
[]
>>> replay(Programs({"seed": 0}, texts, digests ^ 1, all_rows()), Device())
[0]
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import InputFileError
from simwarp.lab.fuzz.generate import VERSION, generate
from simwarp.lab.fuzz.hunt import Witness
from simwarp.lab.fuzz.mutate import mutate
from simwarp.lab.fuzz.program import Program
from simwarp.lab.fuzz.run import answers, digest
from simwarp.lab.fuzz.vocabulary import Vocabulary, all_rows
from simwarp.lab.fuzz.workers import Workers
from simwarp.lab.fuzz.writer import module_text
from simwarp.lab.recording import Answers, Asking, Subject
from simwarp.testing.golden import read

SEED, COUNT = 0, 10_000
_SLICE = 1024
"""The number of programs that are in memory at a time."""
_NONE = bytes(16)
"""Stands for the digest of a program without an answer."""


@dataclass(frozen=True)
class Programs:
    """The recorded results of hardware for randomly generated programs."""

    meta: dict[str, Any]  # header, version of the generator, seed, number of programs without an answer
    texts: npt.NDArray[np.uint8]  # (count, 4): the start of the SHA-256 of each program's text
    # (count, 16): the start of the SHA-256 of each answer; zeros if there is none
    digests: npt.NDArray[np.uint8]
    vocabulary: Vocabulary

    def program(self, number: int) -> Program:
        """Generate a recorded program again; InputFileError if its text has changed."""
        reason = "the generator now makes another program"
        try:
            program = generate(self.meta["seed"], number, self.vocabulary)
            if _text_digest(module_text([program])) == self.texts[number].tobytes():
                return program
        except KeyError as missing:
            reason = f"no row has {missing} any more"
        raise InputFileError(
            f"program {number} of this recording cannot be generated again: {reason}\n"
            "record the programs again on a GPU: simwarp record fuzz"
        )


def ask(asking: Asking) -> Answers:
    """Run the first programs of a seed; on hardware in worker processes, since they may crash or hang."""
    workers = None if asking.simulated else Workers(asking.make)
    try:
        return ask_programs(asking, SEED, asking.number(COUNT, 8), workers)
    finally:
        if workers:
            workers.close()


def ask_programs(asking: Asking, seed: int, count: int, workers: Workers | None = None) -> Answers:
    """Run programs 0 … ``count`` - 1; a program has no result if the compiler crashes or mutants disagree."""
    vocabulary = all_rows()
    texts: list[bytes] = []
    digests: list[bytes] = []
    whole = hashlib.sha256()
    witnesses = [Witness("", asking.device, change, workers) for change in (None, mutate)]
    for first in asking.each(range(0, count, _SLICE)):
        programs = [generate(seed, k, vocabulary) for k in range(first, min(first + _SLICE, count))]
        for program in programs:
            text = module_text([program])
            whole.update(text.encode())
            texts.append(_text_digest(text))
        pairs = zip(*(witness.digests(programs) for witness in witnesses), strict=True)
        digests += [one if one and one == other else _NONE for one, other in pairs]
    words = json.dumps(vocabulary).encode()
    arrays = {"texts": _bytes(texts), "digests": _bytes(digests), "vocabulary": _bytes([words])}
    facts = {"generator": VERSION, "seed": seed, "count": count, "without": digests.count(_NONE)}
    return Answers(facts, arrays, {"programs": whole.hexdigest()})


def load(file: Path, *, trial: bool = False) -> Programs:
    """Read a recording of programs, given the path of its .json or .npz file."""
    recording = read(file.with_suffix(".json"), trial=trial)
    meta, arrays = recording.meta, recording.arrays
    try:
        texts, digests = arrays["texts"], arrays["digests"]
        opcodes = json.loads(arrays["vocabulary"].tobytes())
        if texts.shape != (meta["count"], 4) or digests.shape != (meta["count"], 16):
            raise ValueError("the shapes of its arrays do not match its number of programs")
    except (KeyError, ValueError) as error:
        raise InputFileError(
            f"{file} is not a recording of programs: {error}\nrecord it on a GPU with `simwarp record fuzz`"
        ) from None
    vocabulary = {
        kind: {name: tuple(forms) for name, forms in rows.items()} for kind, rows in opcodes.items()
    }
    return Programs(meta, texts, digests, vocabulary)


def replay(
    recording: Programs,
    device: Any,
    numbers: Iterable[int] | None = None,
    *,
    progress: Callable[[int], None] = lambda done: None,
) -> list[int]:
    """Run programs again, all or ``numbers``; return the numbers of those with another result."""
    wrong: list[int] = []
    for done, number in enumerate(range(len(recording.digests)) if numbers is None else numbers):
        right = recording.digests[number].tobytes()
        if right != _NONE:
            (answer,) = answers(device, [recording.program(number)])
            if digest(answer) != right:
                wrong.append(number)
        progress(done + 1)
    return wrong


def _text_digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:4]


def _bytes(rows: list[bytes]) -> npt.NDArray[np.uint8]:
    """A uint8 array whose rows are byte strings of equal length."""
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)


SUBJECTS = [Subject("fuzz", "10,000 random programs, by digest", ask)]
