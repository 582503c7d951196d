"""Findings for other programs: the options ``--sarif`` and ``--github`` of ``simwarp run`` and ``exec``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from reference.errors import SchemeError
from reference.files import check_output
from simwarp.cli.output import write_text
from simwarp.findings import Finding, annotation, to_sarif

Sarif = Annotated[
    Path | None, typer.Option("--sarif", metavar="FILE", help="Write the findings to a file, as SARIF 2.1.0.")
]
GitHub = Annotated[
    bool, typer.Option("--github", help="Print the findings as annotations of GitHub Actions.")
]


def check_outputs(sarif: Path | None, github: bool, as_json: bool) -> None:
    """Refuse, before anything runs, a file that cannot be written and two formats on standard output."""
    if github and as_json:
        raise SchemeError(
            "--github with --json\nboth print on standard output\nleave one out, or write a file with --sarif"
        )
    if sarif is not None:
        check_output(sarif, "choose another file with --sarif")


def export(
    findings: Sequence[Finding], sarif: Path | None, github: bool, paths: Mapping[str, str], ptx: str = ""
) -> None:
    """Write the findings to a SARIF file, print them as GitHub annotations, or both."""
    if sarif is not None:
        write_text(sarif, json.dumps(to_sarif(findings, paths, ptx), indent=2) + "\n", "--sarif")
    if github:
        sys.stdout.writelines(f"{annotation(found, paths)}\n" for found in findings)
        sys.stdout.flush()
