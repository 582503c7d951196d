"""Annotations of GitHub Actions: one workflow command for each finding.

Source: "Workflow commands for GitHub Actions", setting an error message and a notice message.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from simwarp.findings.finding import Finding

_COMMANDS = {"error": "error", "note": "notice"}


def annotation(found: Finding, paths: Mapping[str, str] = MappingProxyType({})) -> str:
    """The GitHub workflow command of a finding; ``paths`` maps source files to the paths to show.

    >>> from simwarp.places import Place
    >>> print(annotation(Finding("100% wrong", "Trap", place=Place(source_file="a,b.cu", source_line=3))))
    ::error file=a%2Cb.cu,line=3,title=simwarp%3A trap::100%25 wrong
    """
    place, properties = found.place, dict[str, str]()
    if place.source_line is not None and place.source_file:
        properties |= {
            "file": paths.get(place.source_file, place.source_file),
            "line": str(place.source_line),
        }
        if place.source_column:
            properties["col"] = str(place.source_column)
    properties["title"] = f"simwarp: {found.kind}"
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    lines = (found.what, found.values, f"help: {found.advice}" if found.advice else "")
    return f"::{_COMMANDS[found.severity]} {listed}::{_text(chr(10).join(filter(None, lines)))}"


def _text(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _text(text).replace(":", "%3A").replace(",", "%2C")
