"""Runs programs in worker processes, so that a crash or hang of the compiler loses only one program.

The processes also compile in parallel, which takes most of the time on hardware.

>>> from simwarp import Device
>>> from simwarp.lab.fuzz import generate
>>> workers = Workers(Device, count=1)
>>> [len(digest) for digest in workers.digests([generate(0, 1), generate(0, 2)])]
[16, 16]
>>> workers.close()
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from simwarp.lab.crew import Crew, Lost
from simwarp.lab.fuzz.program import Program
from simwarp.lab.fuzz.run import outputs

TOGETHER = 16
"""The number of programs in one module: small, since a compiler crash affects all of them."""


class Workers:
    """Processes that run programs until `close`, each on its own device.

    A process without an answer for ``patience`` seconds is killed.
    """

    def __init__(
        self, make_device: Callable[[], Any], count: int | None = None, patience: float = 20.0
    ) -> None:
        self._crew = Crew(make_device, count or min(16, os.cpu_count() or 1), patience)

    def digests(self, programs: Sequence[Program]) -> list[bytes]:
        """The digest of each program's result; empty if it has none even when it runs alone."""
        firsts = range(0, len(programs), TOGETHER)
        found = self._digests([programs[first : first + TOGETHER] for first in firsts])
        alone = [k for k, digest in enumerate(found) if digest is None]
        found_alone = self._digests([[programs[k]] for k in alone])
        for k, digest in zip(alone, found_alone, strict=True):
            found[k] = digest
        return [digest or b"" for digest in found]

    def close(self) -> None:
        """Stop the worker processes."""
        self._crew.close()

    def _digests(self, modules: Sequence[Sequence[Program]]) -> list[bytes | None]:
        """The digest of each program of some modules; None in a module that crashed or hung."""
        answers = self._crew.perform(outputs, [(module,) for module in modules])
        return [
            digest
            for module, answer in zip(modules, answers, strict=True)
            for digest in ([None] * len(module) if isinstance(answer, Lost) else answer)
        ]
