"""Hypothesis' explanation of a failure, with the user's lines alone."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
OWN = tuple(f"{_ROOT / package}{os.sep}" for package in ("simwarp", "reference", "gpu"))
"""The folders of simwarp's packages."""


@cache
def leave_out_own_lines() -> None:
    """Keep lines of simwarp, which run only to show a failure, out of "lines only run by failing test cases".

    Hypothesis shows five of them, and has no setting for whose; a version that lacks the function shows all.
    """
    try:
        from hypothesis.internal import scrutineer
    except ImportError:
        return
    tracer: Any = scrutineer
    shown = getattr(tracer, "should_trace_file", None)
    if shown is not None:

        def is_others(file: str) -> bool:
            return not file.startswith(OWN) and shown(file)

        tracer.should_trace_file = is_others
