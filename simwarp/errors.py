"""The exceptions to catch, under one name: of arguments, files and machines, and the faults of kernels.

They are those of `reference.errors`, `simwarp.faults` and `simwarp.machine.faults`. All derive from
`SimwarpError`, and so do the exceptions about objects of one package, such as a trace that cannot be read,
which that package exports.

>>> import simwarp
>>> try:
...     simwarp.reference.bmm([[1.0, float("nan")]], [[1.0], [1.0]])
... except simwarp.errors.NotANumberError as error:
...     print(error)  # doctest: +ELLIPSIS
a...
"""

from __future__ import annotations

from reference import errors as _arguments
from reference.errors import *  # noqa: F403
from simwarp import faults as _faults
from simwarp.faults import *  # noqa: F403
from simwarp.machine import faults as _machines
from simwarp.machine.faults import *  # noqa: F403

__all__ = sorted(  # pyright: ignore[reportUnsupportedDunderAll] - a fault that is added is exported
    {
        name
        for module in (_arguments, _faults, _machines)
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, _arguments.SimwarpError) and not name.startswith("_")
    }
)


def __dir__() -> list[str]:
    return __all__
