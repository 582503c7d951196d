"""Findings: one type for faults and notes of a run, and its output as text, JSON, SARIF and annotations."""

from simwarp.findings.finding import Finding
from simwarp.findings.github import annotation
from simwarp.findings.sarif import to_sarif
from simwarp.findings.verdict import verdict

__all__ = ["Finding", "annotation", "to_sarif", "verdict"]
