"""Signals during compilations are the process's own, and so they are afterwards."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpu.compiler import signals

ROOT = Path(__file__).resolve().parents[3]

LONG = """
import os, signal, threading, time
from gpu.compile import compile
LOOP = "constexpr int f(int n) { int s = 0; for (int i = 0; i < n; ++i) s ^= i; return s; }"
LINES = "\\n".join(f"static_assert(f(100000 + {k}) >= 0, \\"\\");" for k in range(30))
def stop():
    print("reading", flush=True)
    os.kill(os.getpid(), NUMBER)
threading.Timer(0.15, stop).start()
try:
    compile(LOOP + LINES, "long.cu")
    time.sleep(30)
except KeyboardInterrupt:
    raise SystemExit(130)
"""

WAITING = """
import os
from gpu.compile import compile
compile("", "nothing.cu")
read, _ = os.pipe()
print("ready", flush=True)
try:
    os.read(read, 1)
except KeyboardInterrupt:
    raise SystemExit(130)
"""


def started(program, cache):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SIMWARP_CACHE": str(cache)}
    command = [sys.executable, "-P", "-c", program]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.at_most(1)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_in_the_first_compilation_is_the_processs_own(tmp_path, number, code):
    process = started(LONG.replace("NUMBER", str(int(number))), tmp_path)
    printed, _ = process.communicate(timeout=60)
    assert (printed, process.returncode) == ("reading\n", code)


def test_ctrl_c_ends_a_wait_after_the_first_compilation(tmp_path):
    process = started(WAITING, tmp_path)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)  # until it waits
    process.send_signal(signal.SIGINT)
    try:
        assert process.wait(timeout=10) == 130
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_handlers_are_taken_back_while_the_first_compilation_runs(monkeypatch, number):
    monkeypatch.setattr(signals, "_kept", signals.Event())
    own, taken_back = signals._get(number), []

    def compile_nothing():
        signals._set(number, signal.SIG_IGN)
        end = time.monotonic() + 10
        while not taken_back and time.monotonic() < end:
            taken_back.extend([True] * (signals._get(number) == own))
            time.sleep(0)
        signals._set(number, signal.SIG_IGN)

    signals.keep_handlers(compile_nothing)
    assert taken_back
    assert signals._get(number) == own
    signals.keep_handlers(pytest.fail)  # there is one first compilation
