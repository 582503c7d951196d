"""For tests: goldens that hardware answered. Imports without Hypothesis and pytest."""

from simwarp.testing.golden import Golden, load, record, replay

__all__ = ["Golden", "load", "record", "replay"]
