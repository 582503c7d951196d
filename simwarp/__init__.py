"""A GPU in NumPy: lanes, memory, warp kernels in Python, and an executor for production PTX."""

from reference.version import __version__
from simwarp import draw, lanes, listings, observe
from simwarp.device import Device

__all__ = ["Device", "__version__", "draw", "lanes", "listings", "observe"]
