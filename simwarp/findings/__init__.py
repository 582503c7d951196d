"""Findings: one shape for what a run finds, and its forms as text, JSON, SARIF and annotations."""

from simwarp.findings.finding import Finding
from simwarp.findings.github import annotation
from simwarp.findings.sarif import to_sarif
from simwarp.findings.verdict import verdict

__all__ = ["Finding", "annotation", "to_sarif", "verdict"]
