"""What every test shares: the Hypothesis profile, our pytest plugins, and a Ctrl-C that is heard."""

import gc
import os
import signal

import pytest

import cpu_costs
import tiers
from simwarp.testing import plugin, profiles

# `--simwarp-profile` and `--hypothesis-profile` have the last word.
profiles.load(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# A shell starts what it runs in the background with SIGINT ignored, and processes pass that on.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Load our plugins; where simwarp is installed, an entry point has loaded that of the test kit."""
    pluginmanager.register(cpu_costs)
    pluginmanager.register(tiers)
    if not pluginmanager.is_registered(plugin):
        pluginmanager.register(plugin, "simwarp")


@pytest.fixture(autouse=True, scope="module")
def kept_out_of_sight() -> None:
    """Collections of garbage in a module's tests, most of all full ones, do not look at what is older."""
    gc.collect()
    gc.freeze()
