"""Convolutions on warpgroups with one text of a kernel replaced, which an answer or a fault must show."""

from pathlib import Path
from shutil import copytree

import pytest

import gpu.compile
from simwarp.faults import KernelFault

SOURCES = Path(gpu.compile.__file__).parent


def check_found(mutant, convolve, monkeypatch, folder):
    """Check that an asserting convolution fails with the mutant: (which, path, old, new)."""
    which, path, old, new = mutant
    source = (SOURCES / path).read_text()
    assert source.count(old) == 1
    for part in ("bmm", "bconv", "include"):
        copytree(SOURCES / part, folder / part)
    (folder / path).write_text(source.replace(old, new))
    monkeypatch.setattr(gpu.compile, "_PACKAGE", folder)
    with pytest.raises((AssertionError, KernelFault)):
        convolve(which)
