"""Files of Keras models, HDF5 or npz: the JSON of the layers, and arrays by layer and name.

Nothing in a file is executed, links out of it are not followed, and no array is read whose bytes the file
does not hold. A .npz file may be untrusted; the HDF5 library may crash on bytes that were made to harm it.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import FormatError, InputFileError, MissingExtraError, SimwarpError
from reference.files import open_input

Array: TypeAlias = npt.NDArray[Any]

ADVICE = "give a file that model.save wrote as HDF5, or a .npz of its arrays"
_CONFIG = "model_config"
_LONGEST = 1 << 24
"""Bytes of JSON, or of a list of names."""
_HDF5, _ZIP = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"
_UNREADABLE = (
    OSError,
    EOFError,
    KeyError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
    AttributeError,
    zipfile.BadZipFile,
)
"""What zipfile, NumPy and h5py raise where a file is broken."""


@dataclass(frozen=True)
class Held:
    """An array in a Keras file that is not read yet."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[], Array]


class KerasFile(Protocol):
    """An open Keras file of any format."""

    def config(self) -> Any:
        """The JSON text of the model; None without one."""
        ...

    def held(self, layer: str) -> dict[str, Held]:
        """The arrays of a layer, by the last part of their names."""
        ...


def take(file: KerasFile, layer: str, needed: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """A layer's arrays; raise unless exactly these arrays exist, with these shapes, of finite floats."""
    held = file.held(layer)
    if held.keys() != needed.keys():
        raise FormatError(f"for layer {layer!a} it has the arrays {sorted(held)!a}, not {sorted(needed)}")
    return {name: _taken(held[name], shape, f"{name} of layer {layer!a}") for name, shape in needed.items()}


def _taken(held: Held, shape: tuple[int, ...], name: str) -> Array:
    if held.dtype.kind != "f" or held.dtype.itemsize > 8:
        raise FormatError(f"{name} is of {held.dtype}: floats are needed")
    if held.shape != shape:
        raise FormatError(f"{name} has shape {held.shape}: {shape} is needed")
    array = held.read()
    if not np.isfinite(array).all():
        raise FormatError(f"{name} has an element that is not finite")
    return array


def parsed(text: Any) -> Any:
    """Parse a JSON text."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    if not isinstance(text, str):
        raise FormatError(f"it has no {_CONFIG}: pass config='model.json', the text of model.to_json()")
    if len(text) > _LONGEST:
        raise FormatError(f"its JSON has {len(text)} characters: up to {_LONGEST} are read")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"its JSON cannot be read: {error}") from None


def read_config(path: Path | str) -> Any:
    """Read the model's configuration from a JSON file."""
    advice = "give a file with the text of model.to_json()"
    with whole_or_error(path, advice), open_input(path, advice) as file:
        return parsed(file.read(_LONGEST + 1))


@contextmanager
def whole_or_error(path: Path | str, advice: str = ADVICE) -> Generator[None]:
    """Turn errors about the content of a file into an InputFileError."""
    try:
        if Path(path).is_fifo() or Path(path).is_char_device():  # opening a pipe or a device may block
            raise FormatError("it is not a regular file")
        yield
    except (InputFileError, MissingExtraError):
        raise
    except FormatError as error:
        raise InputFileError(f"{path} does not hold a Keras model: {error}\n{advice}") from None


@contextmanager
def open_keras(path: Path | str) -> Generator[KerasFile]:
    """Open a Keras file; its first bytes show whether it is HDF5 or npz."""
    with open_input(path, ADVICE) as file:
        start = file.read(8)
    if start != _HDF5 and start[:4] != _ZIP:
        raise FormatError("it is neither HDF5 nor npz")
    with _translated():
        opened = _package().File(str(path), "r") if start == _HDF5 else zipfile.ZipFile(path)
    with opened:
        yield _Hdf5(opened) if start == _HDF5 else _Npz(opened)


@contextmanager
def _translated() -> Generator[None]:
    """Turn the errors of file libraries into a FormatError."""
    try:
        yield
    except SimwarpError:
        raise
    except _UNREADABLE as error:
        raise FormatError(f"it is broken: {error}") from None


def _package() -> Any:
    try:
        return import_module("h5py")
    except ImportError as error:
        raise MissingExtraError(
            f"HDF5 files of Keras need h5py, which is not installed ({error})\npip install 'simwarp[net]'"
        ) from None


# --------------------------------------------------------------------------------------------------
# HDF5, as Keras 2 writes it
# --------------------------------------------------------------------------------------------------


class _Hdf5:
    """An HDF5 file: one group per layer, whose attribute ``weight_names`` lists the paths of its arrays."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def config(self) -> Any:
        """The attribute that ``model.save`` writes and ``save_weights`` does not."""
        with _translated():
            return _attribute(self._file, _CONFIG)

    def held(self, layer: str) -> dict[str, Held]:
        """The arrays in the layer's HDF5 group, by name."""
        with _translated():
            root = self._file
            if "model_weights" in root:
                root = _inside(root, "model_weights")
            group = _inside(root, layer) if layer in root else None
            names = None if group is None else _attribute(group, "weight_names")
            paths = [] if names is None else [_text(name) for name in np.atleast_1d(names)]
            return _by_last_name([(path, self._held(_inside(group, path))) for path in paths], layer)

    def _held(self, dataset: Any) -> Held:
        """An array that is stored in one piece in this file: without filters, and without external data."""
        shape, dtype = tuple(dataset.shape), np.dtype(dataset.dtype)
        whole = not dataset.is_virtual and not dataset.external and dataset.chunks is None
        if not whole or dataset.id.get_storage_size() != prod(shape) * dtype.itemsize:
            raise FormatError(
                f"{dataset.name!a} is compressed, or not in one piece in this file: save it as Keras does"
            )
        return Held(shape, dtype, lambda: _reading(lambda: dataset[()]))


def _inside(group: Any, path: str) -> Any:
    """The object at a path inside of the HDF5 file; links to other files are not followed."""
    hard = import_module("h5py").HardLink
    for part in path.split("/"):
        if not isinstance(group.get(part, getlink=True), hard):
            raise FormatError(f"{path!a} is a link: arrays must lie in the file itself")
        group = group[part]
    return group


def _attribute(group: Any, name: str) -> Any:
    """The value of an HDF5 attribute, None if it is missing."""
    if name not in group.attrs:
        return None
    if group.attrs.get_id(name).get_storage_size() > _LONGEST:
        raise FormatError(f"its {name} has more than {_LONGEST} bytes")
    return group.attrs[name]


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


# --------------------------------------------------------------------------------------------------
# npz
# --------------------------------------------------------------------------------------------------


class _Npz:
    """An npz file: arrays ``<layer>/<name>``, and the text ``model_config``."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        self._file = file
        self._members = {info.filename.removesuffix(".npy"): info for info in file.infolist()}
        if "model.weights.h5" in self._members:
            raise FormatError("it is a .keras archive: save the model as HDF5, with the suffix .h5")

    def config(self) -> Any:
        """Parse the model's configuration in the archive."""
        info = self._members.get(_CONFIG)
        if info is None:
            return None
        held = self._held(info)
        if held.shape != () or held.dtype.kind not in "US" or held.dtype.itemsize > 4 * _LONGEST:
            raise FormatError(f"its {_CONFIG} is {held.dtype} {held.shape}: a text is needed")
        return held.read()[()]

    def held(self, layer: str) -> dict[str, Held]:
        """The arrays whose names begin with the layer's name."""
        names = [name for name in self._members if name.rpartition("/")[0] == layer]
        return _by_last_name([(name, self._held(self._members[name])) for name in names], layer)

    def _held(self, info: zipfile.ZipInfo) -> Held:
        if info.compress_type != zipfile.ZIP_STORED:
            raise FormatError(f"{info.filename!a} is compressed: write the file with numpy.savez")
        with _translated(), self._file.open(info) as member:
            shape, _, dtype = _header(member)
        size = prod(shape) * dtype.itemsize
        if dtype.hasobject or size > info.compress_size:
            raise FormatError(f"{info.filename!a} does not hold an array {dtype} {shape}")
        return Held(shape, dtype, lambda: _reading(lambda: self._array(info)))

    def _array(self, info: zipfile.ZipInfo) -> Array:
        with self._file.open(info) as member:
            shape, fortran, dtype = _header(member)
            data = member.read(prod(shape) * dtype.itemsize)
            if member.read(1):  # zipfile compares the checksum only at the member's end
                raise FormatError(f"{info.filename!a} has bytes after its array")
        return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def _header(member: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the shape, the order and the dtype in the header of a .npy file."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, fortran, dtype = readers[np.lib.format.read_magic(member)](member)
    return tuple(shape), fortran, dtype


def _reading(read: Callable[[], Any]) -> Array:
    with _translated():
        return np.asarray(read())


def _by_last_name(held: list[tuple[str, Held]], layer: str) -> dict[str, Held]:
    """Arrays by the last part of their paths, without TensorFlow's ``:0``."""
    named = {path.rpartition("/")[2].partition(":")[0]: array for path, array in held}
    if len(named) < len(held):
        raise FormatError(f"layer {layer!a} has two arrays of one name")
    return named
