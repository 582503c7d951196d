"""Counts of Python calls, which do not depend on the machine's load."""

import gc
import sys
from collections.abc import Callable


def calls_of(work: Callable[[], object]) -> int:
    """The number of Python functions that some work calls.

    The garbage collector waits: it calls back (Hypothesis listens to it) whenever it happens to run.
    """
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    was_enabled = gc.isenabled()
    gc.disable()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        if was_enabled:
            gc.enable()
    return count
