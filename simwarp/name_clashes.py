"""Files that hide packages of ours, such as a user's ``gpu.py``: they are named before an import fails.

This module stands on nothing but the standard library: what it looks for may hide everything else.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("reference", "gpu")


class HiddenPackageError(ImportError):
    """A module of another project that Python finds under the name of a package of ours."""


def refuse_shadows(home: Path | None = None) -> None:
    """Check that the packages beside this one are those that Python finds.

    Parameters
    ----------
    home : Path, optional
        The folder of the packages.

    Raises
    ------
    HiddenPackageError
        Names the file that is found instead.

    Examples
    --------
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
        found = _origin(name)
        if found is not None and os.path.realpath(found) != os.path.realpath(home / name / "__init__.py"):
            raise HiddenPackageError(
                f"{found} hides simwarp's package {name!r}\n"
                f"Python finds it before {home / name}\n"
                f"rename it, or move it out of {Path(found).parent}"
            )


def _origin(name: str) -> str | None:
    """The file that an import of that name has run or would run."""
    if name in sys.modules:
        return getattr(sys.modules[name], "__file__", None)
    spec = find_spec(name)
    return spec.origin if spec else None
