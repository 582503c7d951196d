"""Fixtures and hooks of all tests: the Hypothesis profile, our pytest plugins, and Ctrl-C handling."""

import gc
import os
import re
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import cpu_costs
import gpu.compile
import tiers
from simwarp.testing import plugin, profiles

# `--simwarp-profile` and `--hypothesis-profile` override this.
profiles.load(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Shells start background processes with SIGINT ignored, and child processes inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# A full collection visits all programs that the simulator keeps; each test module begins with one (below).
gc.set_threshold(gc.get_threshold()[0], 10, 100)


@pytest.hookimpl(tryfirst=True)
def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Load our plugins; where simwarp is installed, an entry point has loaded that of the test kit."""
    pluginmanager.register(cpu_costs)
    pluginmanager.register(tiers)
    if not pluginmanager.is_registered(plugin):
        pluginmanager.register(plugin, "simwarp")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while tests are collected: nearly all that is made is kept."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that needs torch or Triton has that word in its name, by which `make test-torch` selects."""
    report = yield
    library = re.search(r"torch|triton", str(report.longrepr)) if report.skipped else None
    if library and not item.get_closest_marker("gpu") and not re.search(r"torch|triton", item.nodeid):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} needs {library[0]}: say so in its name, or make test-torch omits it"
    return report


@pytest.fixture(autouse=True, scope="module")
def kept_out_of_sight() -> None:
    """Freeze the objects that exist before a test module, so that its garbage collections skip them."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def ptx_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty PTX cache folder for this test alone."""
    monkeypatch.setenv("SIMWARP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ptx"


@pytest.fixture
def compilations(ptx_cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """List that receives (source, name, headers, options) of each compilation not served by the cache."""
    seen: list[Any] = []
    run = gpu.compile._run

    def counted(nvrtc: Any, *args: Any) -> Any:
        seen.append(args)
        return run(nvrtc, *args)

    monkeypatch.setattr(gpu.compile, "_run", counted)
    return seen
