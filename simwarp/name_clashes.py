"""Detect a file that hides a package of simwarp, such as a user's ``gpu.py``, before an import fails.

This module imports only the standard library, since such a file may hide any other package.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("reference", "gpu")


class HiddenPackageError(ImportError):
    """A module of another project that Python imports instead of a package of simwarp."""


def refuse_shadows(home: Path | None = None) -> None:
    """Check that Python imports the packages that were installed with this one, in the folder ``home``.

    HiddenPackageError if it imports another file; the message names that file.

    >>> refuse_shadows()
    >>> refuse_shadows(Path("elsewhere"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    simwarp.name_clashes.HiddenPackageError: ...__init__.py hides simwarp's package 'reference'
    Python finds it before elsewhere/reference
    rename it, or move it out of ...reference
    """
    home = home or Path(__file__).parents[1]
    for name in PACKAGES:
        origin = _origin(name)
        if origin is not None and os.path.realpath(origin) != os.path.realpath(home / name / "__init__.py"):
            raise HiddenPackageError(
                f"{origin} hides simwarp's package {name!r}\n"
                f"Python finds it before {home / name}\n"
                f"rename it, or move it out of {Path(origin).parent}"
            )


def _origin(name: str) -> str | None:
    """The file that an import of this name has run or would run."""
    if name in sys.modules:
        return getattr(sys.modules[name], "__file__", None)
    spec = find_spec(name)
    return spec.origin if spec else None
