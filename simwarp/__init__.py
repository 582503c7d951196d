"""A GPU in NumPy: lanes, memory, warp kernels in Python, and an executor for production PTX.

`Machine` simulates several devices and their host, with streams and copies.

All names are imported at their first use: ``simwarp.gpu`` and ``simwarp.reference`` too, and `compile`, `Out`
and `Coo` of other packages, which many programs need. ``simwarp.errors`` has the exceptions to catch.

Examples
--------
>>> import simwarp
>>> simwarp.reference.bmm([[1.0, -1.0]], [[1.0], [1.0]])
array([[0]], dtype=int32)
"""

from typing import TYPE_CHECKING

from simwarp.name_clashes import refuse_shadows

refuse_shadows()

from reference.lazy import make_lazy  # noqa: E402 - a module that hides `reference` is reported first
from reference.version import __version__  # noqa: E402

if TYPE_CHECKING:
    import gpu
    import reference
    from gpu.compile import compile
    from reference.types import Coo
    from simwarp import draw, errors, lanes, listings, observe
    from simwarp.device.device import Device
    from simwarp.machine.machine import Machine
    from simwarp.run import Out, run

__all__ = [
    "Coo",
    "Device",
    "Machine",
    "Out",
    "__version__",
    "compile",
    "draw",
    "errors",
    "gpu",
    "lanes",
    "listings",
    "observe",
    "reference",
    "run",
]

make_lazy(
    __name__,
    {"device.device": ("Device",), "machine.machine": ("Machine",), "run": ("Out", "run")},
    packages=("gpu", "reference"),
    elsewhere={"gpu.compile": ("compile",), "reference.types": ("Coo",)},
)
