"""The Hypothesis profiles."""

import pytest
from hypothesis import HealthCheck, settings

from reference.errors import SchemeError
from simwarp.testing import profiles


@pytest.fixture
def profile():
    """Load a profile by name, and restore the former one after the test."""
    before = profiles._loaded

    def load(name):
        profiles.load(name)
        return settings.get_profile(name)

    yield load
    profiles.load(before or "ci")


def test_all_profiles_are_registered():
    profiles.register()
    for name in profiles.NAMES:
        assert settings.get_profile(name).deadline is None


def test_the_ci_profile_is_deterministic(profile):
    ci = profile("ci")
    assert ci.derandomize
    assert ci.database is None
    assert ci.print_blob


def test_the_dev_profile_keeps_a_database(profile):
    dev = profile("dev")
    assert not dev.derandomize
    assert dev.database is not None


def test_the_gpu_profile_draws_fewer_and_larger_examples(profile):
    usual = profiles.usual_and_longest()
    gpu = profile("gpu")
    assert gpu.max_examples < settings.get_profile("dev").max_examples
    assert HealthCheck.too_slow in gpu.suppress_health_check
    assert profiles.usual_and_longest() > usual
    profile("ci")
    assert profiles.usual_and_longest() == usual


def test_the_nightly_profile_draws_many_examples(profile):
    nightly = profile("nightly")
    assert nightly.max_examples >= 1000
    assert not nightly.derandomize
    assert nightly.database is not None


def test_profiles_do_not_depend_on_earlier_ones(profile):
    profile("nightly")
    assert profile("dev").max_examples == settings.get_profile("default").max_examples


def test_an_unknown_profile_is_refused():
    with pytest.raises(SchemeError, match="no profile 'fast'\nchoose one of ci, dev, gpu, nightly"):
        profiles.load("fast")
