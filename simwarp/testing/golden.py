"""Recordings of the results of hardware, with which any machine can check the simulator.

A recording is a file ``<subject>.json`` with its origin and plain data, and, for arrays, a file
``<subject>.npz``; the first holds the SHA-256 of the second. A *golden* is the recording of a case of
`simwarp.verify`: the device's raw outputs by input number. Inputs are not stored: `simwarp.verify.draw` draws
them again from the seed. An output of more than 32 KiB is stored as its SHA-256.
"""

from __future__ import annotations

import datetime
import hashlib
import io
import json
import os
import struct
import subprocess
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from reference.errors import InputFileError, MissingExtraError, SchemeError
from reference.files import write_whole
from reference.values import shortened
from simwarp.verify.case import Case
from simwarp.verify.draw import Draw

VERSION = 1
"""The version of the file format; `read` refuses others."""
_WHOLE = 32 * 1024
"""The largest output that is stored whole, in bytes."""
_DAMAGED = (OSError, ValueError, TypeError, EOFError, BadZipFile, zlib.error, struct.error, RuntimeError)
"""Exceptions that `json` and `numpy.load` raise for a damaged file."""
_HEADER: dict[str, type] = dict.fromkeys(("subject", "driver", "date", "command"), str)
_HEADER.update({"version": int, "gpu": dict, "arch": list, "trial": bool})
"""The type of each field that every recording has."""


@dataclass(frozen=True)
class Recording:
    """The recorded hardware answers of one subject: arrays and their metadata."""

    meta: dict[str, Any]  # the fields of `header`, and plain data
    arrays: dict[str, npt.NDArray[Any]]


@shortened
@dataclass(frozen=True)
class Golden:
    """The recorded hardware outputs of a verification case.

    Attributes
    ----------
    meta : dict
        ``case``, ``seed``, ``inputs`` (their number), ``gpu`` (name, uuid), ``driver``, ``nvrtc``, ``arch``,
        ``ptx`` (title to SHA-256 of the normalised text), ``date``, ``command``, ``commit``, and ``sha256``
        of the ``.npz``.
    outputs : dict
        Raw output words, or the digest (32 bytes) of a large output, by input number.
    """

    meta: dict[str, Any]
    outputs: dict[int, npt.NDArray[Any]]


# ------------------------------------------------------------------------------------ the container


def header(
    device: Any, subject: str, command: str, ptx: Mapping[str, str], *, trial: bool = False
) -> dict[str, Any]:
    """The origin of a recording; one of a simulator, or of some inputs, is a trial and not evidence."""
    hardware = hasattr(device, "uuid")
    return {
        "version": VERSION,
        "subject": subject,
        "gpu": {"name": device.name, "uuid": device.uuid if hardware else ""},
        "driver": device.driver_version if hardware else "",
        "nvrtc": _compiler(),
        "arch": list(device.compute_capability),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": command,
        "commit": commit(),
        "trial": trial or not hardware,
        "ptx": dict(ptx),
    }


def _compiler() -> str | None:
    """The version of NVRTC; None if NVRTC is not installed."""
    from gpu.compile import compiler_version

    try:
        return compiler_version()
    except MissingExtraError:  # compiled PTX can be recorded without NVRTC
        return None


def commit() -> str | None:
    """The commit of this checkout, with "-dirty" if files differ; None outside of a checkout.

    A tree without its history takes it from ``SIMWARP_COMMIT``.
    """
    if "SIMWARP_COMMIT" in os.environ:
        return os.environ["SIMWARP_COMMIT"]
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    describe = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip() or None
    except (OSError, subprocess.CalledProcessError):
        return None


def write(folder: Path, recording: Recording) -> list[Path]:
    """Write both files of a recording; if that fails, restore the recording that was there before."""
    sidecar = folder / f"{recording.meta['subject']}.json"
    data, meta, content = sidecar.with_suffix(".npz"), dict(recording.meta), b""
    try:
        if recording.arrays:
            packed = io.BytesIO()
            np.savez_compressed(packed, **recording.arrays)  # pyright: ignore[reportArgumentType]
            content = packed.getvalue()
            meta["sha256"] = hashlib.sha256(content).hexdigest()
        text = as_text(meta).encode()
        folder.mkdir(parents=True, exist_ok=True)
        before = data.read_bytes() if data.exists() else None
        try:
            if content:
                write_whole(data, lambda file: file.write(content))
            write_whole(sidecar, lambda file: file.write(text))
        except BaseException:
            if before is None:
                data.unlink(missing_ok=True)
            else:
                write_whole(data, lambda file: file.write(before))
            raise
    except OSError as error:
        raise InputFileError(
            f"{folder} cannot be written: {error.strerror or error}\nchoose another folder with --out"
        ) from None
    return [data, sidecar] if content else [sidecar]


def as_text(meta: Mapping[str, Any]) -> str:
    """JSON with one line per field and per entry of a field, so that a diff shows single entries."""

    def entries(value: Mapping[str, Any], indent: str, show: Callable[[Any], str]) -> str:
        lines = ",\n".join(f"{indent}  {json.dumps(key)}: {show(one)}" for key, one in value.items())
        return f"{{\n{lines}\n{indent}}}"

    def field(value: Any) -> str:
        if not isinstance(value, dict) or not value:
            return json.dumps(value)
        return entries(cast("dict[str, Any]", value), "  ", json.dumps)

    return entries(meta, "", field) + "\n"


def read(sidecar: Path, *, trial: bool = False) -> Recording:
    """Read a recording by the path of its ``.json``; with ``trial``, also accept one that is not evidence."""
    advice = f"record it on a GPU with `simwarp record {sidecar.stem}`"
    arrays: dict[str, npt.NDArray[Any]] = {}
    digest, data = None, sidecar.with_suffix(".npz")
    try:
        meta = json.loads(sidecar.read_text())
        if not isinstance(meta, dict):
            raise ValueError(f"it holds {type(meta).__name__}")
        if "sha256" in meta or data.exists():
            # np.load does not close a file that it cannot read; this does.
            with data.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
                file.seek(0)
                digest = hashlib.file_digest(file, "sha256").hexdigest()
    except (*_DAMAGED, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputFileError(f"no recording at {sidecar}: {reason}\n{advice}") from None
    known: dict[str, Any] = {**meta}
    require(sidecar, known, _HEADER)
    if known["version"] != VERSION:
        raise InputFileError(
            f"{sidecar} has version {known['version']}, this simwarp reads version {VERSION}\n{advice}"
        )
    if known.get("sha256") != digest:
        raise InputFileError(
            f"{data} has another SHA-256 than {sidecar.name} names\n"
            f"a recording was interrupted between the two files, or one was replaced\n{advice}"
        )
    if known["trial"] and not trial:
        raise InputFileError(
            f"{sidecar} is a trial on {known['gpu'].get('name')}, not evidence of hardware\n{advice}"
        )
    return Recording(known, arrays)


def require(sidecar: Path, meta: Mapping[str, Any], fields: Mapping[str, type]) -> None:
    """Raise InputFileError unless every field exists and has its type."""
    for name, kind in fields.items():
        if type(meta.get(name)) is not kind:
            found = f"has {meta[name]!r:.60} as {name}" if name in meta else f"lacks {name}"
            raise InputFileError(
                f"{sidecar} {found}: expected {kind.__name__}\n"
                f"record it on a GPU with `simwarp record {sidecar.stem}`"
            )


# -------------------------------------------------------------------------------- goldens of cases


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
        If the device is a simulator, or the folder cannot be written.
    SchemeError
        If the outputs of the case are floats that depend on the order of a sum.

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
    facts, outputs = case_answers(case, device, range(inputs), seed)
    origin = header(device, case.name, f"simwarp record {case.name}", case.kernels(device.compute_capability))
    return write(folder, Recording(origin | facts, outputs))


def case_answers(
    case: Case, device: Any, inputs: range, seed: int
) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Run inputs of a case on a device; return the plain data and the arrays of its golden."""
    if case.differs is not None:
        raise SchemeError(
            f"the outputs of {case.name} are floats that depend on the order of a sum\n"
            "goldens hold exact outputs\nrecord its deterministic variant (simwarp record --list)"
        )
    answer = case.answers["gpu"]
    outputs = {str(k): _stored(answer(case.draw(Draw(seed, case.name, k)), device)) for k in inputs}
    return {"case": case.name, "seed": seed, "inputs": len(inputs)}, outputs


def load(sidecar: Path, *, trial: bool = False) -> Golden:
    """Read a golden by the path of its ``.json``.

    Parameters
    ----------
    sidecar : Path
    trial : bool
        Whether a recording of the simulator is accepted.

    Raises
    ------
    InputFileError
        If either file is missing or damaged, or they do not fit each other.

    Examples
    --------
    >>> load(Path("no-such-golden.json"))
    Traceback (most recent call last):
    ...
    reference.errors.InputFileError: no recording at no-such-golden.json: No such file or directory
    record it on a GPU with `simwarp record no-such-golden`
    """
    recording = read(sidecar, trial=trial)
    meta, advice = recording.meta, f"record it on a GPU with `simwarp record {sidecar.stem}`"
    require(sidecar, meta, {"case": str, "seed": int, "inputs": int, "nvrtc": str, "ptx": dict})
    expected = [str(k) for k in range(meta["inputs"])]
    missing = [k for k in expected if k not in recording.arrays]
    if missing or not expected or len(recording.arrays) > len(expected):
        what = f"no answer to input {missing[0]}" if missing else "answers to other inputs"
        raise InputFileError(
            f"{sidecar.with_suffix('.npz')} has {what}: {len(recording.arrays)} answers\n"
            f"{sidecar.name} has {meta['inputs']} inputs\n{advice}"
        )
    return Golden(meta, {int(k): recording.arrays[k] for k in expected})


def replay(golden: Golden, case: Case, answer: Callable[[Any], npt.NDArray[Any]]) -> list[int]:
    """Find the inputs for which ``answer`` differs from the output of the hardware.

    Parameters
    ----------
    golden : Golden
    case : Case
    answer : callable
        The function of a tier: (input) → array.

    Raises
    ------
    InputFileError
        If the golden has no outputs, or those of another case.

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


def sha256(*arrays: npt.NDArray[Any]) -> str:
    """The SHA-256 of dtypes, shapes and bits of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        words = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
        digest.update(f"{words.dtype.str} {words.shape}".encode() + words.tobytes())
    return digest.hexdigest()


def _stored(output: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The form in which an output is stored: the array, or for a large one a digest of its content."""
    words = np.ascontiguousarray(output, output.dtype.newbyteorder("<"))
    return words if words.nbytes <= _WHOLE else np.frombuffer(bytes.fromhex(sha256(words)), np.uint8)
