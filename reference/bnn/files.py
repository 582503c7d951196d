"""Files of binarized networks: safetensors, with the network's JSON in its metadata.

Whatever the file holds, nothing in it is executed, and no array is allocated that the file does not hold.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.bnn.description import Reader, Writer
from reference.errors import FormatError, InputFileError, MissingExtraError, SimwarpError
from reference.files import open_input, write_output
from reference.types.network import Network

Array: TypeAlias = npt.NDArray[Any]

_KEY = "simwarp.network"
_LONGEST = 1 << 24
"""Bytes of JSON."""
_ADVICE = "give a file that reference.bnn.save wrote"
_DTYPES = {"int32": "I32", "float32": "F32", "uint8": "U8", "uint32": "U32", "uint64": "U64"}


def save(network: Network, path: Path | str) -> None:
    """Write a network to a safetensors file, atomically; equal networks make equal files.

    The weights are words of packed bits, the thresholds int32; the metadata ``simwarp.network`` has the rest
    as JSON.

    Parameters
    ----------
    network : Network
    path : Path or str

    Raises
    ------
    InputFileError
        If the file cannot be written.
    FormatError, SchemeError
        For weights that are not on the host; for residuals more than 8 within one another.
    MissingExtraError
        Without the package safetensors.

    Examples
    --------
    >>> import tempfile
    >>> from reference.bnn import mlp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(mlp(width=64), Path(folder) / "small.safetensors")
    ...     load(Path(folder) / "small.safetensors").name
    'mlp'
    """
    package = _package()
    writer = Writer()
    described = json.dumps(writer.network(network), separators=(",", ":"))
    if len(described) > _LONGEST:
        raise FormatError(f"the network's JSON has {len(described)} bytes: files hold up to {_LONGEST}")
    whole: bytes = package.numpy.save(writer.arrays, metadata={_KEY: described})
    write_output(path, lambda file: file.write(whole))


def load(path: Path | str) -> Network:
    """Read a network that `save` wrote; a file from an untrusted source cannot run code.

    Each array's size and dtype are compared with the JSON before it is read, and the network is checked as
    every `Network` is.

    Parameters
    ----------
    path : Path or str

    Returns
    -------
    Network

    Raises
    ------
    InputFileError
        If the file cannot be read, or does not hold a whole network of a known version.
    MissingExtraError
        Without the package safetensors.

    Examples
    --------
    >>> load("no-such-file.safetensors")
    Traceback (most recent call last):
    ...
    reference.errors.InputFileError: no-such-file.safetensors cannot be read: No such file or directory
    give a file that reference.bnn.save wrote
    """
    package = _package()
    try:
        if Path(path).is_fifo() or Path(path).is_char_device():  # opening a pipe or a device may block
            raise FormatError("it is not a regular file")
        open_input(path, _ADVICE).close()
        with package.safe_open(str(path), framework="np") as file:
            return _network(file)
    except InputFileError:
        raise
    except (SimwarpError, package.SafetensorError, OSError, MemoryError) as error:
        raise InputFileError(f"{path} does not hold a network: {error}\n{_ADVICE}") from None


def _network(file: Any) -> Network:
    """Read the network in an open safetensors file."""
    metadata: dict[str, str] = file.metadata() or {}
    names: set[str] = set(file.keys())

    def take(name: str, shape: tuple[int, ...], dtype: Any) -> Array:
        if name not in names:
            raise FormatError(f"it lacks the array {name}")
        names.remove(name)
        held, wanted = file.get_slice(name), _DTYPES[np.dtype(dtype).name]
        stored = held.get_dtype(), tuple(held.get_shape())
        if stored != (wanted, shape):
            raise FormatError(f"{name} is {stored[0]} {stored[1]}, and its JSON says {wanted} {shape}")
        return file.get_tensor(name)

    network = Reader(take).network(_json(metadata.get(_KEY)))
    if names:
        raise FormatError(f"it has an unknown array {min(names)!a}")
    return network


def _json(text: str | None) -> Any:
    if text is None:
        raise FormatError(f"its metadata has no {_KEY!r}")
    if len(text) > _LONGEST:
        raise FormatError(f"its JSON has {len(text)} characters: up to {_LONGEST} are read")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"its JSON cannot be read: {error}") from None


def _package() -> Any:
    try:
        import_module("safetensors.numpy")
        return import_module("safetensors")
    except ImportError as error:
        raise MissingExtraError(
            f"files of networks need safetensors, which is not installed ({error})\n"
            "pip install 'simwarp[net]'"
        ) from None
