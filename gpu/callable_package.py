"""Packages that are called like the function after which they are named.

``gpu.bmm`` is a package and a function. If the function took the name, ``import gpu.bmm.fsb as fsb`` would
fail; so the package keeps it, and a call of the package calls the function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from types import ModuleType
from typing import Any


def make_callable(package: str, function: Callable[..., Any]) -> None:
    """Let a call of an imported package call a function of it."""

    class CallablePackage(ModuleType):
        __call__ = staticmethod(function)
        __signature__ = signature(function)

        def __reduce__(self) -> tuple[Any, ...]:
            return import_module, (package,)  # a function of a module can be pickled, so this can too

    sys.modules[package].__class__ = CallablePackage
