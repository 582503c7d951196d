"""The last line of a run: whether its results hold for hardware, or the reason why that is unknown."""

from __future__ import annotations

from collections.abc import Sequence

from simwarp.findings.finding import Finding, errors

_OF_VALUES = ("expected",)
"""Rules by which values are wrong, which hardware gives as well."""


def verdict(findings: Sequence[Finding], stopped: bool) -> str:
    """The reason why results on hardware may differ, whatever the instructions are; "" without findings.

    >>> verdict([], stopped=False)
    ''
    >>> verdict([Finding("2 of 3 elements", "Unwritten", "unwritten")], stopped=False)
    '1 finding: results on hardware may differ'
    >>> verdict([], stopped=True)
    'stopped by this fault'
    """
    faults = errors(findings)
    if stopped:
        return f"{_counted(faults)}, stopped by the last one" if len(faults) > 1 else "stopped by this fault"
    if not faults:
        return ""
    if all(one.rule in _OF_VALUES for one in faults):
        return f"{_counted(faults)}: values differ from the expected ones"
    return f"{_counted(faults)}: results on hardware may differ"


def _counted(found: Sequence[Finding]) -> str:
    return f"{len(found)} finding{'s' * (len(found) != 1)}"
