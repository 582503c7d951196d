"""Finalizers that call the driver, which may take long: Python ignores a Ctrl-C during them."""

from __future__ import annotations

import time
import weakref
from _thread import interrupt_main, start_new_thread
from collections.abc import Callable
from typing import Any

_PAUSE = 0.02
"""Seconds before an interrupt is raised again: finalizers often follow one another."""


def when_gone(owner: object, call: Callable[..., object], *args: object) -> None:
    """Call a function when an object is deleted, but not at the end of the process."""
    weakref.finalize(owner, undisturbed, call, *args).atexit = False


def undisturbed(call: Callable[..., object], *args: Any) -> None:
    """Call a function in a finalizer; a Ctrl-C during the call is raised again after it."""
    try:
        call(*args)
    except KeyboardInterrupt:
        start_new_thread(_interrupt, ())  # Thread.start() would wait for the new thread


def _interrupt() -> None:
    time.sleep(_PAUSE)
    interrupt_main()
