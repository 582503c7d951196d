"""Packages that can be called, like `gpu.bmm`, which is a package and a function.

If the function had the name, ``import gpu.bmm.fsb as fsb`` would fail. So the name is the package's, and a
call of the package calls the function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from types import ModuleType
from typing import Any


def make_callable(package: str, function: Callable[..., Any]) -> None:
    """Make a call of an imported package call one of its functions."""

    class CallablePackage(ModuleType):
        __call__ = staticmethod(function)
        __signature__ = signature(function)

        def __reduce__(self) -> tuple[Any, ...]:
            return import_module, (package,)  # a package can be pickled, like a function

    sys.modules[package].__class__ = CallablePackage
