"""Entries that a script of the repository makes on a GPU: it runs, and its rows are taken over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from reference.errors import SchemeError, SimwarpError
from simwarp.lab.network_studies import Facts
from simwarp.lab.papers.data import ROOT
from simwarp.lab.papers.entries import Made, Making

Cases: TypeAlias = Mapping[str, Mapping[str, Any]]
"""The rows of a script by their case."""
Pick: TypeAlias = Callable[[Cases], list[Facts]]

_TOLD = 10
"""Lines of a failed script that the error has."""


class ScriptFailedError(SimwarpError):
    """A script of the repository ended with an error."""


@dataclass(frozen=True)
class Script:
    """What makes an entry on a GPU: a script of the repository, its options, and the rows of the entry.

    ``result`` names the file of ``benchmarks/results`` that holds the script's committed rows.
    """

    command: str
    result: str
    pick: Pick
    sizes: str

    def __call__(self, making: Making) -> Made:
        """Run the script, once for all entries of a run that take rows of it."""
        if self.command not in making.kept:
            making.kept[self.command] = rows_of(self.command)
        return Made(self.pick(making.kept[self.command]), self.sizes)

    def committed(self) -> list[Facts]:
        """The entry's rows in the committed result."""
        return self.pick(cases(ROOT / "benchmarks" / "results" / self.result))


def cases(path: Path) -> Cases:
    """The rows of a result, by case."""
    return {row["case"]: row for row in json.loads(path.read_text())["rows"]}


def rows_of(command: str) -> Cases:
    """The rows that a script of the repository gives; raises SchemeError outside of a checkout."""
    script, *options = command.split()
    if not (ROOT / script).is_file():
        raise SchemeError(
            f"{script} of simwarp's repository makes it, on a GPU\nthis installation does not have it\n"
            f"run this command, or python {command} --json FILE, in the repository"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        run = [sys.executable, script, *options, "--json", str(path)]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
        }
        done = subprocess.run(run, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            last = "\n".join((done.stderr or done.stdout).splitlines()[-_TOLD:])
            raise ScriptFailedError(
                f"python {command} ended with {done.returncode}:\n{last}\nrun it alone to see all of it"
            )
        return cases(path)
