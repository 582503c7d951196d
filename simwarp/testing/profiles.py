"""Hypothesis profiles for CI, development, hardware and nightly runs. Only `register` needs Hypothesis."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from reference.errors import MissingExtraError, SchemeError

Profile: TypeAlias = Literal["ci", "dev", "gpu", "nightly"]

NAMES: tuple[Profile, ...] = ("ci", "dev", "gpu", "nightly")

_loaded: str | None = None


def register() -> None:
    """Register the profiles with Hypothesis, without choosing one; MissingExtraError if it is not installed.

    ========= ========================================================================================
    profile   purpose
    ========= ========================================================================================
    `ci`      The same examples in every run: derandomized, no deadline, no database; a failure prints
              the blob that reproduces it.
    `dev`     Random examples, and a database of failing ones; no deadline.
    `gpu`     For hardware, where a launch is expensive and an element cheap: 30 examples, but larger
              ones (`strategies.sizes`); no deadline, and no health checks for slow ones.
    `nightly` 2000 examples, a database, blobs.
    ========= ========================================================================================

    >>> register()
    >>> import hypothesis
    >>> hypothesis.settings.get_profile("ci").derandomize
    True
    """
    settings, check = _hypothesis()
    plain = settings.get_profile("default")
    slow = [check.too_slow, check.data_too_large, check.large_base_example]
    settings.register_profile("ci", plain, derandomize=True, deadline=None, database=None, print_blob=True)
    settings.register_profile("dev", plain, deadline=None)
    settings.register_profile("gpu", plain, deadline=None, max_examples=30, suppress_health_check=slow)
    settings.register_profile(
        "nightly", plain, deadline=None, max_examples=2000, print_blob=True, suppress_health_check=slow
    )


def load(name: str) -> None:
    """Register the profiles and choose one of `NAMES`, as ``pytest --simwarp-profile`` does."""
    global _loaded
    if name not in NAMES:
        raise SchemeError(f"there is no profile {name!r}\nchoose one of {', '.join(NAMES)}")
    register()
    _hypothesis()[0].load_profile(name)
    _loaded = name


def usual_and_longest() -> tuple[int, int]:
    """The default limits of the dimensions of `strategies.sizes`: of usual ones, and of long ones.

    With the profile `gpu`, long ones exceed 65,535, the range of 16-bit counters.

    >>> usual, longest = usual_and_longest()
    >>> usual < longest
    True
    """
    return (700, 70_000) if _loaded == "gpu" else (150, 1100)


def more_pixels() -> int:
    """The limit of what is added to the rows and columns of drawn images.

    >>> more_pixels()
    0
    """
    return {"gpu": 64, "nightly": 24}.get(_loaded or "", 0)


def _hypothesis() -> tuple[Any, Any]:
    """Import Hypothesis; return its ``settings`` and ``HealthCheck``."""
    try:
        from hypothesis import HealthCheck, settings
    except ImportError as error:
        raise MissingExtraError(
            f"simwarp's test profiles need Hypothesis, which is not installed ({error})\n"
            "pip install 'simwarp[test]'"
        ) from None
    return settings, HealthCheck
