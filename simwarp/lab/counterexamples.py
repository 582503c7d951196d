"""Saves and replays the fuzzer's counterexamples: the PTX, and a recording of its correct output words.

>>> from tempfile import TemporaryDirectory
>>> from simwarp import Device
>>> program = generate(0, 0)
>>> (answer,) = answers(Device(), [program])
>>> found = Difference(0, program, ("one", "other"), (answer, answer + np.uint64(1)))
>>> with TemporaryDirectory() as folder:
...     still_right(keep(found, Path(folder), Device()), Device())
True
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from reference.errors import InputFileError, SimwarpError
from reference.files import write_whole
from simwarp.lab.fuzz.generate import generate
from simwarp.lab.fuzz.hunt import Difference
from simwarp.lab.fuzz.program import Program
from simwarp.lab.fuzz.run import answers, text_answers
from simwarp.testing.golden import Recording, header, read, write

__all__ = ["answers", "generate", "keep", "still_right"]


def keep(found: Difference, folder: Path, device: Any) -> Path:
    """Write a counterexample with the first device's result; return the path of the ``.ptx``."""
    program, words, text = found.program, found.words[0], found.text.encode()
    digest = hashlib.sha256(text).hexdigest()
    name = digest[:12]
    facts = {field: getattr(program, field) for field in ("seed", "number", "blocks", "block")}
    facts |= {"witnesses": list(found.names), "differed": found.lines()}
    meta = header(device, name, f"simwarp fuzz --seed {program.seed}", {"program": digest}) | facts
    write(folder, Recording(meta, {} if isinstance(words, SimwarpError) else {"words": words}))
    ptx = folder / f"{name}.ptx"
    write_whole(ptx, lambda file: file.write(text))
    return ptx


def still_right(ptx: Path, device: Any) -> bool:
    """True if a device's result for a saved counterexample equals the recorded words."""
    try:
        recording = read(ptx.with_suffix(".json"), trial=True)
        meta, words, text = recording.meta, recording.arrays["words"], ptx.read_text()
        program = Program(meta["seed"], meta["number"], (), meta["blocks"], meta["block"])
    except (InputFileError, KeyError, OSError) as error:
        raise InputFileError(
            f"{ptx} is not a complete counterexample: {error}\ndelete it, or run simwarp fuzz again"
        ) from None
    (answer,) = text_answers(device, text, [program])
    return not isinstance(answer, SimwarpError) and np.array_equal(answer, words)
