"""Keeping what hardware told: a golden for the tests, and which chips confirm which maps."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reference.errors import InputFileError
from reference.files import write_whole
from simwarp.fragments.opcodes import RECORD
from simwarp.lab.probe.finding import Finding


def record(
    findings: Sequence[Finding], device: Any, golden: Path, *, command: str, observed: Path = RECORD
) -> list[Path]:
    """Write a golden, and enter the chip where `simwarp.fragments` reads who confirms its maps.

    Parameters
    ----------
    findings : sequence of Finding
    device : gpu.CudaDevice
    golden : Path
        ``{"gpu": {name, uuid}, "driver", "date", "command", "forms": {opcode: {"agreed", "digest"}}}``
    command : str
        What was run.
    observed : Path
        ``{"meta": {chip: {gpu, driver, date, command}}, "forms": {opcode: [chip, …]}}``; what it says of
        other chips, and of forms that were not probed, stays.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    InputFileError
        If the device is a simulator, which is no witness of itself, or a file cannot be written.

    Examples
    --------
    >>> import simwarp
    >>> record([], simwarp.Device(), Path("probe.json"), command="simwarp probe")
    Traceback (most recent call last):
        ...
    reference.errors.InputFileError: maps are recorded on hardware, not on simwarp simulator (sm_90)
    give --device cuda
    """
    refuse_simulator(device)
    witness = {
        "gpu": {"name": device.name, "uuid": device.uuid},
        "driver": device.driver_version,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": command,
    }
    executed = [finding for finding in findings if finding.executed]
    told = {finding.opcode: {"agreed": finding.agreed, "digest": finding.digest} for finding in executed}
    chip = "sm_{}{}".format(*device.compute_capability)
    _write(golden, {**witness, "forms": told})
    _write(observed, _entered(_read(observed), chip, witness, executed))
    return [golden, observed]


def refuse_simulator(device: Any) -> None:
    """Only hardware is a witness.

    Raises
    ------
    InputFileError
        If the device is a simulator.

    Examples
    --------
    >>> import simwarp
    >>> refuse_simulator(simwarp.Device(cc=(8, 0)))
    Traceback (most recent call last):
    ...
    reference.errors.InputFileError: maps are recorded on hardware, not on simwarp simulator (sm_80)
    give --device cuda
    """
    if not hasattr(device, "uuid"):
        raise InputFileError(f"maps are recorded on hardware, not on {device.name}\ngive --device cuda")


def _entered(known: dict[str, Any], chip: str, witness: Any, findings: Sequence[Finding]) -> dict[str, Any]:
    """What is known, with what a chip now says."""
    forms: dict[str, list[str]] = known.get("forms", {})
    for finding in findings:
        chips = {*forms.get(finding.opcode, ())} - {chip} | ({chip} if finding.agreed else set[str]())
        forms[finding.opcode] = sorted(chips)
    meta = {**known.get("meta", {}), chip: witness}
    return {"meta": meta, "forms": {opcode: chips for opcode, chips in forms.items() if chips}}


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _write(path: Path, value: dict[str, Any]) -> None:
    """JSON with a line for each form."""
    forms = value.pop("forms")
    lines = ",\n".join(f"    {json.dumps(opcode)}: {json.dumps(told)}" for opcode, told in forms.items())
    head = json.dumps(value, indent=2).removesuffix("\n}")
    text = f'{head},\n  "forms": {{\n{lines}\n  }}\n}}\n'
    try:
        write_whole(path, lambda file: file.write(text.encode()))
    except OSError as error:
        raise InputFileError(
            f"{path} cannot be written: {error.strerror or error}\nchoose another file with --record"
        ) from None
