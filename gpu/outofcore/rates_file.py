"""The file of a machine's measured rates, in the user's cache folder."""

from __future__ import annotations

import json
import math
import platform
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from gpu.compiler.cache import cache_folder
from gpu.cuda_machine import CudaMachine
from reference.files import write_whole

_FORM = 2
_LINKS = 6


@dataclass(frozen=True)
class Known:
    """Measured rates of copies and routines; empty where none were measured."""

    links: tuple[float, ...] | None = None  # the fields of `gpu.outofcore.calibration.Links`
    # layer → seconds, operations per second
    routines: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    filters_step: int = 1  # of `gpu.outofcore.calibration.measured_step`


class RatesFile:
    """The file that stores the measured rates of a machine's first device."""

    def __init__(self, machine: CudaMachine) -> None:
        ordinal, host = machine.ordinals[0], platform.node()
        self._about = {
            "host": host,
            "chip": machine.name(0),
            "ordinal": ordinal,
            "driver": int(machine.driver.call("cuDriverGetVersion")),
            "cudnn": machine.layers.cudnn.version,
        }
        name = re.sub(r"[^A-Za-z0-9.-]", "_", host)[:100]
        self.path = cache_folder("rates") / f"{name}-{ordinal}.json"

    def read(self) -> Known:
        """Read the rates; empty, with a warning, if the file is damaged or of another machine."""
        try:
            text = self.path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            return Known() if isinstance(error, FileNotFoundError) else self._unusable(str(error))
        try:
            content = json.loads(text)
            if content["form"] != _FORM or content["machine"] != self._about:
                return self._unusable("it is of another machine, driver or version")
            return _known(content)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return self._unusable(f"it is damaged: {type(error).__name__} {error}")

    def write(self, known: Known) -> Known:
        """Store the rates, whole or not at all; a folder that cannot be written is not an error."""
        content = {"form": _FORM, "machine": self._about, **vars(known)}
        text = json.dumps(content, indent=1).encode()
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, lambda file: file.write(text), durable=False)
        return known

    def _unusable(self, why: str) -> Known:
        """Warn that the file cannot be used; return empty rates."""
        warnings.warn(
            f"rates in {self.path} are not used: {why}\nthey are measured again", RuntimeWarning, stacklevel=2
        )
        return Known()


def _known(found: dict[str, Any]) -> Known:
    """The rates in a file's JSON; ValueError for invalid JSON."""
    links = found["links"]
    routines = {str(key): _numbers(pair, 2) for key, pair in found["routines"].items()}
    step = found.get("filters_step", 1)
    if type(step) is not int or step < 1:
        raise ValueError(f"filters_step is {step!r}")
    return Known(
        None if links is None else _numbers(links, _LINKS),
        cast("dict[str, tuple[float, float]]", routines),
        step,
    )


def _numbers(given: Any, count: int) -> tuple[float, ...]:
    """Check ``count`` finite numbers of at least 0, in pairs of seconds and rates; rates must be above 0."""
    numbers = tuple(float(number) for number in given)
    if len(numbers) != count or not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise ValueError(f"{given} are not {count} finite numbers of at least 0")
    if not all(numbers[1::2][: count // 2 - (count == _LINKS)]):
        raise ValueError(f"{given}: a rate is 0")
    return numbers
