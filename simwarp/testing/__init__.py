"""The test kit: strategies, profiles, comparison with a picture, fragments, goldens recorded on hardware.

It imports without Hypothesis and pytest. `strategies` needs Hypothesis; `plugin` is loaded by pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reference.lazy import make_lazy

if TYPE_CHECKING:
    from simwarp.testing import profiles, strategies
    from simwarp.testing.compare import ConvolutionDifference, assert_same_bits, assert_same_convolution
    from simwarp.testing.fragments import FragmentDifference, check_fragment, record_fragments
    from simwarp.testing.golden import Golden, load, record, replay

__all__ = [
    "ConvolutionDifference",
    "FragmentDifference",
    "Golden",
    "assert_same_bits",
    "assert_same_convolution",
    "check_fragment",
    "load",
    "profiles",
    "record",
    "record_fragments",
    "replay",
    "strategies",
]

make_lazy(
    __name__,
    {
        "compare": ("ConvolutionDifference", "assert_same_bits", "assert_same_convolution"),
        "fragments": ("FragmentDifference", "check_fragment", "record_fragments"),
        "golden": ("Golden", "load", "record", "replay"),
    },
)
