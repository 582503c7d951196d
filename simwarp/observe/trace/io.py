"""Recordings as .npz files: one array per column of the rows, one with their data, and a JSON header.

A file may come from an untrusted source: nothing in it is executed, and every length and index is checked.
"""

from __future__ import annotations

import json
import math
import zipfile
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from reference.errors import InputFileError
from reference.files import write_output
from simwarp.lanes import WARP_SIZE
from simwarp.observe.trace.model import ADDRESS_BYTES, COLUMNS, KINDS, ROW, SPACES, Integers, Recording, Rows
from simwarp.ptx.rows import DTYPES

FORMAT, VERSION = "simwarp trace", 1
_LARGEST = 4 << 30
_MOST_THREADS = 1024
_MOST = 1 << 31
"""The exclusive upper bound of all numbers in the header."""
_ARRAYS = {**{name: ROW[name] for name in COLUMNS}, "data": np.dtype("u1"), "header": np.dtype("u1")}
_READABLE = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Compressions that zipfile unpacks piece by piece, so that a zip bomb cannot fill the memory."""


class _FormatError(ValueError):
    """The content of a file is not a valid recording."""


def save(recording: Recording, path: Path | str) -> None:
    """Write a recording to a file atomically; equal recordings give equal files.

    Raises
    ------
    InputFileError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from simwarp.observe.trace import Trace
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Trace().recording(), Path(folder) / "nothing.npz")
    ...     load(Path(folder) / "nothing.npz").launches
    []
    """
    names = ("selection", "launches", "codes", "faults")
    header = {"format": FORMAT, "version": VERSION, **{name: getattr(recording, name) for name in names}}
    text = np.frombuffer(json.dumps(header, default=asdict).encode(), np.uint8)
    arrays: dict[str, Any] = {name: np.ascontiguousarray(recording.rows[name]) for name in COLUMNS}
    arrays |= {"data": recording.data, "header": text}
    write_output(path, lambda file: np.savez_compressed(file, **arrays), "choose another file for the trace")


def load(path: Path | str, *, largest: int = _LARGEST) -> Recording:
    """Read a recording from a file of `save`.

    Parameters
    ----------
    path : Path or str
    largest : int
        The most bytes that its arrays may take in memory.

    Raises
    ------
    InputFileError
        If the file cannot be read, is not a trace, or exceeds ``largest``.

    Examples
    --------
    >>> load("no-such-trace.npz")
    Traceback (most recent call last):
    ...
    reference.errors.InputFileError: no-such-trace.npz holds no trace: No such file or directory
    give a file that Trace.save wrote
    """
    try:
        arrays = _read_arrays(path, largest)
        header = _model(dict, json.loads(arrays["header"].tobytes()))
        if header.get("format") != FORMAT:
            raise _FormatError("its header is that of another format")
        if header.get("version") != VERSION:
            raise _FormatError(f"it has version {header.get('version')!r}, expected {VERSION}")
        rows = np.zeros(arrays["step"].size, ROW)
        for name in COLUMNS:
            rows[name] = arrays[name]
        fields = {
            name: kind for name, kind in get_type_hints(Recording).items() if name not in ("rows", "data")
        }
        plain = {name: _model(kind, header.get(name)) for name, kind in fields.items()}
        recording = Recording(rows, arrays["data"], **plain)
        _check_header(recording)
        _check_rows(recording)
    except Exception as error:  # zipfile, json and NumPy raise a dozen types of error for damaged files
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputFileError(f"{path} holds no trace: {reason}\ngive a file that Trace.save wrote") from None
    return recording


def _read_arrays(path: Path | str, largest: int) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an .npz file, after checks of their names, total size, dtypes and lengths."""
    with zipfile.ZipFile(path) as file:
        members = file.infolist()
        if sorted(member.filename for member in members) != sorted(f"{name}.npy" for name in _ARRAYS):
            raise _FormatError("its arrays are not those of a trace")
        size = sum(member.file_size for member in members)
        if size > largest:
            raise _FormatError(f"its arrays take {size} bytes, more than largest={largest}")
        if not all(member.compress_type in _READABLE for member in members):
            raise _FormatError("its arrays are compressed in an unknown way")
        arrays = {name: _read_array(file, f"{name}.npy", dtype) for name, dtype in _ARRAYS.items()}
    if len({arrays[name].size for name in COLUMNS}) != 1:
        raise _FormatError("its columns have different lengths")
    return arrays


def _read_array(file: zipfile.ZipFile, name: str, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    with file.open(name) as member:
        np.lib.format.read_magic(member)
        shape, _, found = np.lib.format.read_array_header_1_0(member)
        data = member.read()
    if len(shape) != 1 or found != dtype:
        raise _FormatError(f"{name} is not one array of {dtype}")
    if shape[0] * dtype.itemsize != len(data):
        raise _FormatError(f"{name} is not as long as its header claims")
    return np.frombuffer(data, dtype)


# ---- the header ----------------------------------------------------------------------------------


def _model(kind: Any, given: Any) -> Any:
    """JSON data as a value of type ``kind``: a dataclass, list, tuple, dict, string or number below 2**31."""
    parts, plain = get_args(kind), get_origin(kind) or kind
    expected = dict if is_dataclass(kind) else list if plain is tuple else plain
    if type(given) is not expected or (expected is int and not 0 <= given < _MOST):
        bound = f" from 0 to {_MOST - 1}" if expected is int else ""
        raise _FormatError(f"its header has {given!r:.40}, expected {expected.__name__}{bound}")
    if is_dataclass(kind):
        make: Any = kind
        return make(**{name: _model(hint, given.get(name)) for name, hint in get_type_hints(kind).items()})
    if plain is tuple and parts[-1] is not ...:
        if len(given) != len(parts):
            raise _FormatError(f"its header has {given!r:.40}, expected {len(parts)} values")
        return tuple(map(_model, parts, given))
    if plain in (list, tuple):
        items = [_model(parts[0], one) for one in given]
        return items if plain is list else tuple(items)
    return _printable(given) if plain is str else given


def _printable(text: str) -> str:
    """A text with control characters, which could drive a terminal, replaced by "?"."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def _check_header(recording: Recording) -> None:
    """Check the sizes and kernel indices of launches, and the types of registers."""
    for launch in recording.launches:
        if min(*launch.grid, *launch.block) < 1 or math.prod(launch.block) > _MOST_THREADS:
            raise _FormatError(f"grid {launch.grid} of blocks {launch.block} is not a launch")
        _check_below(launch.code, len(recording.codes), "kernel")
    for name, kind in (register for code in recording.codes for it in code for register in it.registers):
        if kind not in DTYPES:
            raise _FormatError(f"register {name} has the unknown type {kind}")


# ---- the rows ------------------------------------------------------------------------------------


def _check_rows(recording: Recording) -> None:
    """Check the indices in all rows, the order of the rows, and the size of their data."""
    rows, launches, codes = recording.rows, recording.launches, recording.codes
    for name, count in (("kind", len(KINDS)), ("space", len(SPACES)), ("launch", len(launches))):
        _check_below(rows[name], count, name)
    warps = recording.warps
    if list(warps) != sorted(warps) or sum(place.stop - place.start for place in warps.values()) != rows.size:
        raise _FormatError("its rows are not in order")
    for launch, place in zip(launches, recording.by_launch(), strict=True):
        mine = rows[place]
        _check_below(mine["block"], math.prod(launch.grid), "block")
        _check_below(mine["warp"], -(-math.prod(launch.block) // WARP_SIZE), "warp")
        items = np.array([it.layout.itemsize for it in codes[launch.code]], np.int64)
        _check_steps(mine, len(recording.faults), items)
    if int(recording.starts[-1]) != recording.data.size:
        raise _FormatError("its data has another length than its rows need")


def _check_steps(rows: Rows, faults: int, items: Integers) -> None:
    """Check the rows of one launch: step numbers, and sizes of data; ``items`` are bytes per lane by step."""
    barrier, fault, step = (rows["kind"] == KINDS.index(kind) for kind in ("barrier", "fault", "step"))
    executed = ~(barrier | fault)
    _check_below(rows["step"][executed], items.size, "step")
    _check_below(rows["step"][fault], faults, "fault")
    expected = np.where(executed, ADDRESS_BYTES, 0)
    expected[step] = np.where(rows["item"][step] == 0, 0, items[rows["step"][step]])
    if (rows["item"] != expected).any():
        raise _FormatError("its rows have data of another width than their instructions write")


def _check_below(numbers: npt.ArrayLike, count: int, what: str) -> None:
    found = np.asarray(numbers)
    if found.size and not 0 <= int(found.min()) <= int(found.max()) < count:
        raise _FormatError(f"it refers to a {what} that it does not have")
