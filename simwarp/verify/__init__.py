"""The differential harness: runs every tier on the same inputs, and compares their answers bit by bit."""

from simwarp.verify.case import Case
from simwarp.verify.cases import CASES
from simwarp.verify.compare import Mismatch, check, simulator
from simwarp.verify.draw import Draw
from simwarp.verify.runner import Outcome, Row, verify

__all__ = ["CASES", "Case", "Draw", "Mismatch", "Outcome", "Row", "check", "simulator", "verify"]


def __dir__() -> list[str]:
    return sorted(__all__)
