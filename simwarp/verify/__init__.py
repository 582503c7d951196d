"""The differential harness: the same inputs to every tier, the answers compared bit for bit."""

from simwarp.verify.case import Case
from simwarp.verify.cases import CASES
from simwarp.verify.compare import Mismatch, check, simulator
from simwarp.verify.draw import Draw
from simwarp.verify.runner import Outcome, Row, verify

__all__ = ["CASES", "Case", "Draw", "Mismatch", "Outcome", "Row", "check", "simulator", "verify"]
