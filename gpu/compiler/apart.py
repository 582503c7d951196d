"""Compilations in their own process, if their options would affect NVRTC's later compilations."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from reference.errors import CompileError

_LASTING = frozenset({"G", "device-debug", "Ofc", "Ofast-compile"})
"""Options after which NVRTC optimizes less until the process ends, whatever later compilations ask for."""

_PROGRAM = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
function, arguments = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(pickle.dumps(function(*arguments)))
"""


def lasts(options: Sequence[str]) -> bool:
    """True if an option affects later compilations of the same process."""
    return any(option.lstrip("-").partition("=")[0] in _LASTING for option in options)


def call_apart(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a new process; CompileError, with the source's name, if the process ends."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _PROGRAM],
        input=pickle.dumps(sys.path) + pickle.dumps((function, arguments)),
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        log = done.stderr.decode(errors="replace")
        raise CompileError(f"{name}: the compiler's process ended ({done.returncode}):\n{log}", log)
    return pickle.loads(done.stdout)
