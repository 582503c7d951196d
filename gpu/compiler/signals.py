"""The handlers of SIGINT and SIGTERM, which NVRTC replaces in the first compilation of a process.

While that compilation reads its source, either signal ends the process: ``exit(4)``, without a message.
Then NVRTC puts the old handlers back, but so that system calls go on after a signal (SA_RESTART): Ctrl-C
would end no wait. Later compilations leave handlers alone. So the first one compiles nothing, in a thread,
and until it has ended the handlers are set again and again.
"""

from __future__ import annotations

import ctypes
import signal
import time
from collections.abc import Callable
from threading import Event, Lock, Thread

_NUMBERS = signal.SIGINT, signal.SIGTERM
_get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_int)(("PyOS_getsig", ctypes.pythonapi))
_set = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(("PyOS_setsig", ctypes.pythonapi))
_kept = Event()
_one = Lock()


def keep_handlers(compile_nothing: Callable[[], object]) -> None:
    """Run the first compilation of the process, and set the handlers until it has ended."""
    with _one:
        if _kept.is_set():
            return
        handlers = [(number, _get(number)) for number in _NUMBERS]
        thread = Thread(target=compile_nothing)
        try:
            thread.start()
            while thread.is_alive():
                _put(handlers)
                time.sleep(0)  # lets the compiling thread run
        finally:
            thread.join()
            _put(handlers)
            _kept.set()


def _put(handlers: list[tuple[signal.Signals, int | None]]) -> None:
    """Set the handlers as Python does: system calls end at a signal."""
    for number, handler in handlers:
        _set(number, handler)
