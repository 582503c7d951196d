"""The test kit: strategies, profiles, comparison with a picture, fragments, goldens recorded on hardware.

It imports without Hypothesis and pytest. `strategies` needs Hypothesis; `plugin` is loaded by pytest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simwarp.testing import profiles, strategies
    from simwarp.testing.compare import assert_same_bits
    from simwarp.testing.fragments import FragmentDifference, check_fragment, record_fragments
    from simwarp.testing.golden import Golden, load, record, replay

__all__ = [
    "FragmentDifference",
    "Golden",
    "assert_same_bits",
    "check_fragment",
    "load",
    "profiles",
    "record",
    "record_fragments",
    "replay",
    "strategies",
]

_HOME = {
    "assert_same_bits": "compare",
    **dict.fromkeys(("FragmentDifference", "check_fragment", "record_fragments"), "fragments"),
    **dict.fromkeys(("Golden", "load", "record", "replay"), "golden"),
    **dict.fromkeys(("profiles", "strategies"), ""),
}
"""The module of each name, imported at its first use, so that pytest starts fast."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not _HOME[name]:
        return import_module(f"simwarp.testing.{name}")
    return getattr(import_module(f"simwarp.testing.{_HOME[name]}"), name)
