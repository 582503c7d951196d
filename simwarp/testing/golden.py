"""Goldens: what hardware answered, kept so that any machine can hold the simulator against it.

A golden is two files: ``<case>.npz`` with the raw device outputs by input number, and ``<case>.json``
that says where they come from. The inputs are not stored: `simwarp.verify.draw` makes them again
from the seed. An output of more than 32 KiB is stored as its SHA-256.
"""

from __future__ import annotations

import datetime
import hashlib
import io
import json
import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from reference.errors import InputFileError, SchemeError
from reference.files import write_whole
from simwarp.verify.case import Case
from simwarp.verify.draw import Draw

_WHOLE = 32 * 1024
"""Outputs up to this many bytes are stored whole."""


@dataclass(frozen=True)
class Golden:
    """One recorded case.

    Attributes
    ----------
    meta : dict
        ``case``, ``seed``, ``inputs`` (how many; older ones say it in the command alone), ``gpu`` (name,
        uuid), ``driver``, ``nvrtc``, ``arch``, ``ptx`` (title to SHA-256 of the normalised text), ``date``,
        ``command``, and in newer ones ``sha256`` of the ``.npz``.
    outputs : dict
        Raw output words, or the digest (32 bytes) of a large output, by input number.
    """

    meta: dict[str, Any]
    outputs: dict[int, npt.NDArray[Any]]


def record(case: Case, device: Any, folder: Path, *, inputs: int, seed: int) -> list[Path]:
    """Run inputs 0 … ``inputs`` - 1 of a case on hardware and write its golden.

    Parameters
    ----------
    case : Case
    device : gpu.CudaDevice
    folder : Path
    inputs, seed : int

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    InputFileError
        If the device is a simulator, which is no witness of itself, or the folder cannot be written.
    SchemeError
        If the case's answers are not exact: hardware would give others the next time.

    Examples
    --------
    >>> from simwarp import Device
    >>> from simwarp.verify import CASES
    >>> record(CASES["bmm"], Device(), Path("."), inputs=1, seed=0)
    Traceback (most recent call last):
    ...
    reference.errors.InputFileError: goldens are recorded on hardware, not on simwarp simulator (sm_90)
    pass a gpu.CudaDevice()
    """
    if not hasattr(device, "uuid"):
        raise InputFileError(
            f"goldens are recorded on hardware, not on {device.name}\npass a gpu.CudaDevice()"
        )
    if case.differs is not None:
        raise SchemeError(
            f"the answers of {case.name} are floats, which the order of a sum decides\n"
            "goldens hold exact answers\nrecord its deterministic variant (tests/record_*.py)"
        )
    from gpu.compile import compiler_version

    outputs: dict[str, npt.NDArray[Any]] = {}
    for k in range(inputs):
        answer = case.answers["gpu"](case.draw(Draw(seed, case.name, k)), device)
        outputs[str(k)] = _stored(answer)
    meta = {
        "case": case.name,
        "seed": seed,
        "inputs": inputs,
        "gpu": {"name": device.name, "uuid": device.uuid},
        "driver": device.driver_version,
        "nvrtc": compiler_version(),
        "arch": list(device.compute_capability),
        "ptx": case.kernels(device.compute_capability),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": f"simwarp golden record --case {case.name} --inputs {inputs} --seed {seed}",
    }
    data, sidecar = folder / f"{case.name}.npz", folder / f"{case.name}.json"
    packed = io.BytesIO()
    try:
        np.savez_compressed(packed, **outputs)  # pyright: ignore[reportArgumentType]
        meta["sha256"] = hashlib.sha256(packed.getvalue()).hexdigest()
        text = json.dumps(meta, indent=2).encode() + b"\n"
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(data, lambda file: file.write(packed.getvalue()))
        write_whole(sidecar, lambda file: file.write(text))
    except OSError as error:
        raise InputFileError(
            f"{folder} cannot be written: {error.strerror or error}\nchoose another folder with --out"
        ) from None
    return [data, sidecar]


def load(sidecar: Path) -> Golden:
    """Read a golden by the path of its ``.json``.

    Raises
    ------
    InputFileError
        If either file is missing or damaged, or one lacks what the other says.

    Examples
    --------
    >>> load(Path("no-such-golden.json"))
    Traceback (most recent call last):
    ...
    reference.errors.InputFileError: no golden at no-such-golden.json: No such file or directory
    record it on a GPU with `simwarp golden record`
    """
    try:
        meta = json.loads(sidecar.read_text())
        # NumPy leaves a file open that it cannot read; this closes it.
        with sidecar.with_suffix(".npz").open("rb") as file, np.load(file, allow_pickle=False) as stored:
            outputs = {int(k): stored[k] for k in stored.files}
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except (*_DAMAGED, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputFileError(
            f"no golden at {sidecar}: {reason}\nrecord it on a GPU with `simwarp golden record`"
        ) from None
    _check(sidecar, meta, outputs)
    if meta.get("sha256", digest) != digest:  # older ones do not have it
        raise InputFileError(
            f"{sidecar.with_suffix('.npz')} is another one than {sidecar.name} was recorded with\n"
            "a recording was stopped between the two, or one was replaced\n"
            "record it on a GPU with `simwarp golden record`"
        )
    return Golden(meta, outputs)


_DAMAGED = (OSError, ValueError, TypeError, EOFError, BadZipFile, zlib.error, struct.error, RuntimeError)
"""What `json` and `numpy.load` raise for what they cannot read."""

_META: dict[str, type] = {
    **dict.fromkeys(("case", "driver", "nvrtc", "date", "command"), str),
    **dict.fromkeys(("gpu", "ptx"), dict),
    "seed": int,
    "arch": list,
}


def _check(sidecar: Path, meta: Any, outputs: dict[int, npt.NDArray[Any]]) -> None:
    """Raise InputFileError unless the record says where it comes from and has an answer for every input."""
    advice = "record it on a GPU with `simwarp golden record`"
    if not isinstance(meta, dict):
        raise InputFileError(f"{sidecar} is no record of a golden\nit holds {type(meta).__name__}\n{advice}")
    known: dict[str, Any] = {**meta}
    for name, kind in _META.items():
        if type(known.get(name)) is not kind:
            found = f"has {known[name]!r:.60} as {name}" if name in known else f"lacks {name}"
            raise InputFileError(f"{sidecar} {found}\na {kind.__name__} is needed\n{advice}")
    told = re.search(r"--inputs (\d+)", known["command"])
    inputs = known.get("inputs", int(told[1]) if told else None)
    if type(inputs) is not int or inputs < 1:
        raise InputFileError(
            f"{sidecar} does not say how many inputs were recorded\nit is `inputs`\n{advice}"
        )
    missing = [k for k in range(inputs) if k not in outputs]
    if missing or len(outputs) > inputs:
        what = f"no answer to input {missing[0]}" if missing else "answers to more inputs"
        raise InputFileError(
            f"{sidecar.with_suffix('.npz')} has {what}: {len(outputs)} answers\n"
            f"{sidecar.name} says that there were {inputs} inputs\n{advice}"
        )


def replay(golden: Golden, case: Case, answer: Callable[[Any], npt.NDArray[Any]]) -> list[int]:
    """The inputs for which ``answer`` differs from what the hardware said.

    Parameters
    ----------
    golden : Golden
    case : Case
    answer : callable
        (input) → array: any tier.

    Raises
    ------
    InputFileError
        If the golden has no answers, or those of another case.

    Examples
    --------
    >>> from simwarp.verify import CASES
    >>> case = CASES["bmm"]
    >>> reference = case.answers["reference"]
    >>> output = reference(case.draw(Draw(0, case.name, 2)))
    >>> golden = Golden({"seed": 0}, {2: output})
    >>> replay(golden, case, reference)
    []
    """
    if not golden.outputs or golden.meta.get("case", case.name) != case.name:
        raise InputFileError(
            f"nothing to replay: {len(golden.outputs)} answers to {golden.meta.get('case', case.name)}\n"
            f"the case is {case.name}\nload the golden of the case"
        )
    wrong: list[int] = []
    for k, stored in golden.outputs.items():
        got = answer(case.draw(Draw(golden.meta["seed"], case.name, k)))
        again = _stored(got)
        if again.dtype != stored.dtype or not np.array_equal(again, stored):
            wrong.append(k)
    return wrong


def _stored(output: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An output as it is, or the digest of its type, shape and bytes if it is large."""
    words = np.ascontiguousarray(output, output.dtype.newbyteorder("<"))
    if words.nbytes <= _WHOLE:
        return words
    kind = f"{words.dtype.str} {words.shape}".encode()
    return np.frombuffer(hashlib.sha256(kind + words.tobytes()).digest(), np.uint8)
