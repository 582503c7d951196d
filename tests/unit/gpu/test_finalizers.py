"""Finalizers that take long, and Ctrl-C that comes meanwhile."""

import signal
import subprocess
import sys
import time

import pytest

from gpu.finalizers import undisturbed, when_gone


class Owner:
    """An object that can be deleted."""


def wait():
    """Time for what comes in a thread."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        time.sleep(0.001)


def test_the_call_comes_once_when_the_object_goes():
    owner, called = Owner(), []
    when_gone(owner, called.append, 3)
    assert called == []
    del owner
    assert called == [3]


def test_nothing_is_called_at_the_end_of_the_process():
    source = "import gpu.finalizers as f\nclass A: pass\na = A()\nf.when_gone(a, print, 'called')"
    done = subprocess.run([sys.executable, "-c", source], check=True, capture_output=True, text=True)
    assert done.stdout == done.stderr == ""


def test_ctrl_c_in_a_finalizer_comes_behind_it():
    owner, called = Owner(), []

    def free():
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            called.append("freed")

    when_gone(owner, free)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the statement in which it comes is not known
        del owner
        wait()
    assert called == ["freed"]


def test_ctrl_c_comes_behind_all_finalizers_that_follow_one_another():
    owners = [Owner() for _ in range(3)]

    def free(number):
        if not number:
            signal.raise_signal(signal.SIGINT)
        time.sleep(0.03)

    for number, owner in enumerate(owners):
        when_gone(owner, free, number)
    del owner
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        owners.clear()
        wait()
    assert owners == []


def test_other_errors_of_a_finalizer_are_not_hidden():
    with pytest.raises(ZeroDivisionError):
        undisturbed(lambda: 1 // 0)
