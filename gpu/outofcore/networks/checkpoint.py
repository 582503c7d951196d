"""Checkpoints: the state of a training in one file of NumPy's npz format, without pickle."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, cast
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from reference.errors import InputFileError
from reference.files import open_input, write_output

Array = npt.NDArray[Any]
State = dict[str, tuple[Array, Array]]
"""Name → a parameter and its velocity."""
FORMAT = 1
_UNREADABLE = (
    BadZipFile,
    zlib.error,
    ValueError,
    KeyError,
    EOFError,
    OSError,
    NotImplementedError,
    MemoryError,
)


class Checkpoint(NamedTuple):
    """The arrays and facts stored in a checkpoint file."""

    training: Mapping[str, Any]  # settings of the training: network, batch, optimizer, seed
    steps: int
    state: State


def save(path: Path | str, checkpoint: Checkpoint) -> None:
    """Write a checkpoint to a temporary name, then rename it."""
    arrays = _arrays(checkpoint.state)
    facts: dict[str, Any] = {"format": FORMAT, "training": checkpoint.training, "steps": checkpoint.steps}
    facts["digest"] = _digest(arrays, facts)
    text = np.frombuffer(json.dumps(facts).encode(), np.uint8)

    def write(file: IO[bytes]) -> None:
        cast("Any", np.savez)(file, facts=text, **arrays)

    write_output(path, write, "choose another file for checkpoints")


def load(path: Path | str, training: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Checkpoint:
    """Read the checkpoint of a training; InputFileError if it is corrupt or of another training."""
    with open_input(path, "give a checkpoint") as file:
        try:
            with np.load(file, allow_pickle=False) as found:
                facts: dict[str, Any] = json.loads(found["facts"].tobytes())
                _check_training(path, facts["training"], training)
                state = {name: (found[f"w/{name}"], found[f"velocity/{name}"]) for name in shapes}
                steps, digest = int(facts["steps"]), facts.pop("digest")
        except InputFileError:
            raise
        except (*_UNREADABLE, TypeError, AttributeError) as error:
            raise _corrupt(path, str(error)) from None
    arrays = _arrays(state)
    if facts.get("format") != FORMAT or digest != _digest(arrays, facts):
        raise _corrupt(path, "its digest is that of other values")
    for name, array in arrays.items():
        if array.shape != shapes[name.partition("/")[2]] or array.dtype != np.float32:
            raise _corrupt(path, f"{name} is {array.dtype} of shape {array.shape}")
    return Checkpoint(training, steps, state)


def _check_training(path: Path | str, found: Mapping[str, Any], training: Mapping[str, Any]) -> None:
    """Raise InputFileError unless a checkpoint is of this training."""
    for name, value in training.items():
        if found.get(name) != value:
            raise InputFileError(
                f"{path} is a checkpoint of a training with {name}={found.get(name)!r}\n"
                f"this one has {name}={value!r}\nresume with the same settings, or begin anew"
            )


def _corrupt(path: Path | str, reason: str) -> InputFileError:
    return InputFileError(f"{path} is not a whole checkpoint\n{reason}\ngive another one, or begin anew")


def _arrays(state: State) -> dict[str, Array]:
    pairs = state.items()
    return {f"w/{name}": w for name, (w, _) in pairs} | {f"velocity/{name}": v for name, (_, v) in pairs}


def _digest(arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> str:
    """A hash of everything in a checkpoint."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()
