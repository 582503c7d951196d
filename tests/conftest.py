"""What every test shares: the Hypothesis profile, and our own pytest plugin."""

import os

import pytest

from simwarp.testing import plugin, profiles

# `--simwarp-profile` and `--hypothesis-profile` have the last word.
profiles.load(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.hookimpl(tryfirst=True)
def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Load the plugin where simwarp is not installed, so that no entry point has done it."""
    if not pluginmanager.is_registered(plugin):
        pluginmanager.register(plugin, "simwarp")
