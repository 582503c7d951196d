"""A GPU in NumPy: lanes, memory, warp kernels in Python, and an executor for production PTX."""

from reference.version import __version__
from simwarp import lanes, listings, observe
from simwarp.device import Device

__all__ = ["Device", "__version__", "lanes", "listings", "observe"]
