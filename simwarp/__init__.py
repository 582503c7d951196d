"""A GPU in NumPy: lanes, memory, warp kernels in Python, and an executor for production PTX.

`Machine` simulates several devices and their host, with streams and copies.

``simwarp.gpu``, ``simwarp.reference`` and ``simwarp.run``, a package that is called like a function, are
imported at their first use.

Examples
--------
>>> import simwarp
>>> simwarp.reference.bmm([[1.0, -1.0]], [[1.0], [1.0]])
array([[0]], dtype=int32)
"""

from typing import TYPE_CHECKING, Any

from simwarp.name_clashes import refuse_shadows

refuse_shadows()

from reference.moved import install  # noqa: E402 - a module that hides `reference` is reported first
from reference.version import __version__  # noqa: E402
from simwarp import draw, lanes, listings, observe  # noqa: E402
from simwarp._moved import MOVED  # noqa: E402
from simwarp.device.device import Device  # noqa: E402
from simwarp.machine.machine import Machine  # noqa: E402

install(MOVED)

if TYPE_CHECKING:
    import gpu
    import reference
    from simwarp.run import run

__all__ = [
    "Device",
    "Machine",
    "__version__",
    "draw",
    "gpu",
    "lanes",
    "listings",
    "observe",
    "reference",
    "run",
]


def __getattr__(name: str) -> Any:
    if name == "gpu":
        import gpu

        return gpu
    if name == "reference":
        import reference

        return reference
    if name == "run":
        import simwarp.run

        return simwarp.run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
