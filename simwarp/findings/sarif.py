"""Findings as SARIF 2.1.0, the format of static analysers that code hosts and editors show.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0, sections 3.4, 3.19, 3.27
(result), 3.29 (physicalLocation) and 3.49 (reportingDescriptor).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reference.version import __version__
from simwarp.findings.finding import Finding
from simwarp.findings.rules import rule_of
from simwarp.places import Place

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_ROOT = "SRCROOT"
"""The base of relative addresses of files: the folder in which the command ran."""


def to_sarif(
    findings: Sequence[Finding],
    paths: Mapping[str, str] = MappingProxyType({}),
    ptx: str = "",
    root: Path | None = None,
) -> dict[str, Any]:
    """Convert findings to a SARIF log with one run, as plain data.

    ``paths`` are those of source files, by the names in places, and ``ptx`` that of the PTX, if it is the
    source. Addresses of files are relative to ``root``, by default the current folder.

    >>> from simwarp.faults import Race
    >>> log = to_sarif([Finding.of(Race("read of x[1]", place=Place(source_file="a.cu", source_line=5)))])
    >>> (result,) = log["runs"][0]["results"]
    >>> result["ruleId"], result["level"], result["locations"][0]["physicalLocation"]["region"]
    ('races', 'error', {'startLine': 5})
    """
    base = (root or Path.cwd()).resolve()
    files = _Files(paths, ptx, base)
    rules = {found.rule: found for found in findings}
    numbers = {name: number for number, name in enumerate(rules)}
    driver = {
        "name": "simwarp",
        "version": __version__,
        "rules": [_rule(name, found) for name, found in rules.items()],
    }
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "originalUriBaseIds": {_ROOT: {"uri": f"{base.as_uri().rstrip('/')}/"}},
                "results": [_result(found, numbers[found.rule], files) for found in findings],
            }
        ],
    }


def _rule(name: str, found: Finding) -> dict[str, Any]:
    rule = rule_of(found)
    return {
        "id": name,
        "shortDescription": {"text": rule.summary},
        "help": {"text": rule.help},
        "defaultConfiguration": {"level": "error"},
    }


class _Files:
    """Converts locations of findings to SARIF locations."""

    def __init__(self, paths: Mapping[str, str], ptx: str, root: Path) -> None:
        self._paths, self._ptx, self._root = paths, ptx, root

    def location(self, place: Place) -> dict[str, Any]:
        """A SARIF location: file and region if known, and the kernel."""
        made: dict[str, Any] = {}
        line = place.source_line
        path = self._paths.get(place.source_file or "", place.source_file) if line is not None else self._ptx
        if path and (line := line or place.line):
            region: dict[str, Any] = {"startLine": line}
            if place.source_column and place.source_line is not None:
                region["startColumn"] = place.source_column
            made["physicalLocation"] = {"artifactLocation": self._artifact(path), "region": region}
        if place.kernel:
            made["logicalLocations"] = [{"name": place.kernel, "kind": "function"}]
        return made

    def _artifact(self, path: str) -> dict[str, str]:
        """The address of a file: relative to the root if the file is below it, else absolute."""
        whole = Path(path) if Path(path).is_absolute() else self._root / path
        parts = whole.resolve() if whole.exists() else whole
        if not parts.is_relative_to(self._root):
            return {"uri": parts.as_uri()}
        relative = (self._root / parts).as_uri().removeprefix(f"{self._root.as_uri().rstrip('/')}/")
        return {"uri": relative, "uriBaseId": _ROOT}


def _result(found: Finding, rule: int, files: _Files) -> dict[str, Any]:
    lines = filter(
        None, (f"{found.kind}: {found.what}", found.values, found.advice and f"help: {found.advice}")
    )
    made: dict[str, Any] = {
        "ruleId": found.rule,
        "ruleIndex": rule,
        "level": found.severity,
        "message": {"text": "\n".join(lines)},
    }
    if location := files.location(found.place):
        made["locations"] = [location]
    if related := list(_related(found, files)):
        made["relatedLocations"] = related
    if found.count > 1:
        made["occurrenceCount"] = found.count
    made["partialFingerprints"] = {"simwarp/v1": _fingerprint(found)}
    made["properties"] = _properties(found)
    return made


def _related(found: Finding, files: _Files) -> Iterator[dict[str, Any]]:
    """Yield the SARIF locations of a finding's other locations: second accesses and callers."""
    callers = (
        (
            f"{caller.function or 'a function'}() is {'inlined' if caller.inlined else 'called'} here",
            Place(
                source_file=caller.source_file,
                source_line=caller.source_line,
                source_column=caller.source_column,
            ),
        )
        for caller in found.place.callers
    )
    others = ((f"{note.label} {note.place}".strip(), note.place) for note in found.notes)
    number = 0
    for text, place in (*callers, *others):
        if location := files.location(place):
            yield {"id": number, "message": {"text": text}, **location}
            number += 1


def _fingerprint(found: Finding) -> str:
    """A number that stays when lines above a finding are added or removed."""
    place = found.place
    parts = (found.rule, found.kind, place.kernel, place.source_file or "", place.source_text or place.text)
    return hashlib.sha256("\0".join((*parts, found.element.partition("[")[0])).encode()).hexdigest()[:32]


def _properties(found: Finding) -> dict[str, Any]:
    place = found.place
    facts = {
        "class": found.name,
        "kernel": place.kernel,
        "block": place.block,
        "thread": place.thread,
        "warp": place.warp,
        "lane": place.lane,
        "element": found.element,
        "values": found.values,
        "more": found.more,
        "count": found.count,
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}
