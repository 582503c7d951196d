"""Record what a GPU makes of the kernels in `examples/kernels`.

    python tests/record_kernels.py --out tests/golden

writes ``kernels.npz``, the outputs for seed 0 as they are and those for further seeds as digests, and
``kernels.json``, which says where they come from. `tests/unit/test_example_kernels.py` holds the simulator
against them.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu import CudaDevice
from gpu.compile import compiler_version
from reference.errors import InputFileError, MissingExtraError, NoGpuError
from reference.files import write_whole

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "kernels"
NAMES = sorted(path.stem for path in FOLDER.glob("*.cu"))
SEEDS = range(3)


def example(name: str) -> ModuleType:
    """A module of ``examples/kernels``, imported as its script finds it: with that folder on the path."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))


def answers(device: Any, name: str, seed: int) -> dict[str, npt.NDArray[Any]]:
    """What an example puts out, by name, as a golden keeps it."""
    outputs = example(name).run(device, seed)
    return {f"{name}.{key}.{seed}": kept(output, seed) for key, output in outputs.items()}


def kept(output: npt.NDArray[Any], seed: int) -> npt.NDArray[Any]:
    """The output itself or, past the first seed, the SHA-256 of its type, shape and bytes."""
    if seed == SEEDS[0]:
        return output
    kind = f"{output.dtype.str} {output.shape}".encode()
    return np.frombuffer(hashlib.sha256(kind + output.tobytes()).digest(), np.uint8)


def ptx_digests(arch: tuple[int, int]) -> dict[str, str]:
    """The SHA-256 of each kernel's PTX."""
    return {name: example("common").ptx(name, arch).sha256 for name in NAMES}


def record(device: Any, folder: Path) -> list[Path]:
    """Run every example on hardware and write the golden.

    Raises
    ------
    InputFileError
        If the device is a simulator, which is no witness of itself.
    """
    if not hasattr(device, "uuid"):
        raise InputFileError(
            f"goldens are recorded on hardware, not on {device.name}\npass a gpu.CudaDevice()"
        )
    outputs: dict[str, Any] = {}
    for name in NAMES:
        for seed in SEEDS:
            outputs |= answers(device, name, seed)
    meta = {
        "seeds": list(SEEDS),
        "gpu": {"name": device.name, "uuid": device.uuid},
        "driver": device.driver_version,
        "nvrtc": compiler_version(),
        "arch": list(device.compute_capability),
        "ptx": ptx_digests(device.compute_capability),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": "python tests/record_kernels.py",
    }
    text = json.dumps(meta, indent=2).encode() + b"\n"
    folder.mkdir(parents=True, exist_ok=True)
    data, sidecar = folder / "kernels.npz", folder / "kernels.json"
    write_whole(data, lambda file: np.savez_compressed(file, **outputs))
    write_whole(sidecar, lambda file: file.write(text))
    return [data, sidecar]


def main() -> None:
    parser = argparse.ArgumentParser(description="Record goldens of examples/kernels on the first GPU.")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write to")
    folder = parser.parse_args().out
    try:
        device = CudaDevice()
    except (MissingExtraError, NoGpuError) as error:
        parser.error(str(error))
    for path in record(device, folder):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
