"""Recordings in files: an .npz of plain arrays and a JSON header, nothing in it that runs.

The arrays are the columns of `simwarp.observe.trace.rows.ROW`, the rows' ``data``, and a ``header`` of text.
A file may come from a stranger: every length and number in it is checked before it is used.

>>> import tempfile
>>> from simwarp.observe.trace import Trace
>>> with tempfile.TemporaryDirectory() as folder:
...     save(Trace().recording(), Path(folder) / "nothing.npz")
...     load(Path(folder) / "nothing.npz").launches
[]
>>> load("no-such-trace.npz")
Traceback (most recent call last):
...
reference.errors.InputFileError: no-such-trace.npz holds no trace: No such file or directory
give a file that Trace.save wrote
"""

from __future__ import annotations

import json
import re
import struct
import zipfile
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import InputFileError
from reference.files import write_whole
from simwarp.lanes import WARP_SIZE
from simwarp.observe.trace.header import HeaderError, read_header
from simwarp.observe.trace.recording import Recording
from simwarp.observe.trace.rows import KINDS, ROW, SPACES, Rows, starts

FORMAT, VERSION = "simwarp trace", 1
_LARGEST = 4 << 30
_COLUMNS: dict[str, np.dtype[Any]] = {name: ROW[name] for name in ROW.names or ()}
_ARRAYS = {**_COLUMNS, "data": np.dtype("u1"), "header": np.dtype("u1")}
_NPY = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([^']*)', 'fortran_order': False, 'shape': \((\d{1,18}),\), \} *\n",
    re.S,
)
"""How the arrays of a trace start: NumPy's header, version 1.0, of one dimension."""
_READABLE = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_NOT_A_TRACE = (
    ValueError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    RecursionError,
    RuntimeError,
)
"""What reading raises for files of other kinds, and for damaged ones."""


def save(recording: Recording, path: Path | str) -> None:
    """Write a recording, to a temporary name first; equal recordings make equal files.

    Raises
    ------
    InputFileError
        If it cannot be written.
    """
    header = {
        "format": FORMAT,
        "version": VERSION,
        "selection": recording.selection,
        "launches": [asdict(launch) for launch in recording.launches],
        "codes": [[asdict(instruction) for instruction in code] for code in recording.codes],
        "faults": recording.faults,
    }
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    arrays: dict[str, Any] = {name: np.ascontiguousarray(recording.rows[name]) for name in _COLUMNS}
    arrays |= {"data": recording.data, "header": text}
    try:
        write_whole(Path(path), lambda file: np.savez_compressed(file, **arrays))
    except OSError as error:
        reason = error.strerror or error
        raise InputFileError(
            f"{path} cannot be written: {reason}\nchoose another file for the trace"
        ) from None


def load(path: Path | str, *, largest: int = _LARGEST) -> Recording:
    """Read a recording.

    Parameters
    ----------
    path : Path or str
    largest : int
        Bytes that its arrays may take in memory.

    Raises
    ------
    InputFileError
        If there is no such file, or it holds no trace, or a larger one.
    """
    try:
        with zipfile.ZipFile(path) as file:
            arrays = _arrays(file, largest)
        header = read_header(arrays["header"].tobytes(), FORMAT, VERSION)
        rows = np.zeros(arrays["step"].size, ROW)
        for name in _COLUMNS:
            rows[name] = arrays[name]
        recording = Recording(rows, arrays["data"], *header)
        _check(recording)
    except (OSError, *_NOT_A_TRACE) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        advice = "give a file that Trace.save wrote"
        raise InputFileError(f"{path} holds no trace: {reason}\n{advice}") from None
    return recording


def _arrays(file: zipfile.ZipFile, largest: int) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an .npz, each of its type and as long as it says, the columns all alike."""
    members = {member.filename: member for member in file.infolist()}
    if set(members) != {f"{name}.npy" for name in _ARRAYS} or len(file.infolist()) != len(_ARRAYS):
        raise HeaderError("it holds other arrays")
    size = sum(member.file_size for member in members.values())
    if size > largest:
        raise HeaderError(f"its arrays take {size} bytes, more than largest={largest}")
    arrays = {name: _array(file, members[f"{name}.npy"], dtype) for name, dtype in _ARRAYS.items()}
    if len({arrays[name].size for name in _COLUMNS}) != 1:
        raise HeaderError("its columns have different lengths")
    return arrays


def _array(file: zipfile.ZipFile, member: zipfile.ZipInfo, wanted: np.dtype[Any]) -> npt.NDArray[Any]:
    if member.compress_type not in _READABLE:
        raise HeaderError(f"{member.filename} is compressed in an unknown way")
    data = file.read(member)
    found = _NPY.match(data)
    if found is None or found[1].decode("latin-1") != wanted.str:
        raise HeaderError(f"{member.filename} is not one array of {wanted}")
    if int(found[2]) * wanted.itemsize != len(data) - found.end():
        raise HeaderError(f"{member.filename} is not as long as it says")
    return np.frombuffer(data, wanted, offset=found.end())


# ---- what rows may say ---------------------------------------------------------------------------


def _check(recording: Recording) -> None:
    """Every number of a row must name something that is there."""
    rows, launches, codes = recording.rows, recording.launches, recording.codes
    _within(rows["kind"], len(KINDS), "kind")
    _within(rows["space"], len(SPACES), "space")
    _within(rows["launch"], len(launches), "launch")
    _check_order(rows)
    ends = np.searchsorted(rows["launch"], np.arange(len(launches) + 1))
    items = [np.array([instruction.layout.itemsize for instruction in code], np.int64) for code in codes]
    for launch, first, end in zip(launches, ends[:-1], ends[1:], strict=True):
        mine = rows[first:end]
        _within(mine["block"], int(np.prod(launch.grid, dtype=object)), "block")
        _within(mine["warp"], -(-int(np.prod(launch.block)) // WARP_SIZE), "warp")
        _check_steps(mine, len(recording.faults), items[launch.code])
    if int(starts(rows)[-1]) != recording.data.size:
        raise HeaderError("its data has another length than its rows say")


def _check_order(rows: Rows) -> None:
    """Rows go by launch, block and warp."""
    ahead = np.ones(max(rows.size - 1, 0), np.bool_)
    for name in ("warp", "block", "launch"):
        before, behind = rows[name][:-1], rows[name][1:]
        ahead = (before < behind) | (before == behind) & ahead
    if not ahead.all():
        raise HeaderError("its rows are not in order")


def _check_steps(rows: Rows, faults: int, items: npt.NDArray[np.int64]) -> None:
    """The step of each row, and the bytes that each of its lanes has."""
    barrier, fault, step = (rows["kind"] == KINDS.index(kind) for kind in ("barrier", "fault", "step"))
    executed = ~(barrier | fault)
    _within(rows["step"][executed], items.size, "step")
    _within(rows["step"][fault], faults, "fault")
    wanted = np.where(executed, 8, 0)
    wanted[step] = np.where(rows["item"][step] == 0, 0, items[rows["step"][step]])
    if (rows["item"] != wanted).any():
        raise HeaderError("its rows have data of another width than their instructions write")


def _within(numbers: npt.NDArray[Any], count: int, what: str) -> None:
    if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < count:
        raise HeaderError(f"it names a {what} that it does not have")
