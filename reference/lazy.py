"""Packages whose public names are imported at their first use, so that ``import`` itself stays cheap."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType, ModuleType
from typing import Any


def make_lazy(
    package: str,
    homes: Mapping[str, Iterable[str]],
    packages: Iterable[str] = (),
    elsewhere: Mapping[str, Iterable[str]] = MappingProxyType({}),
) -> None:
    """Import names of a package at their first use; call it while the package is imported.

    ``dir()`` of the package is its ``__all__``. ``homes`` has the names that each module of the package
    defines, ``packages`` top-level packages that are attributes of it as well, ``elsewhere`` the names of
    other packages' modules, by their full names. A name may be that of its module too, like `reference.bmm`:
    the package then has the object. If that module is a package, like `gpu.bmm`, the function has the
    package's attributes, so that ``import gpu.bmm.fsb as fsb``, which asks the function for ``fsb``, works.
    """
    module_of = {name: f"{package}.{module}" for module, names in homes.items() for name in names}
    module_of.update({name: module for module, names in elsewhere.items() for name in names})

    class LazyPackage(ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name in module_of:
                value = _object(import_module(module_of[name]), name)
            elif name in packages:
                value = import_module(name)
            elif not name.startswith("_") and find_spec(f"{package}.{name}"):
                value = import_module(f"{package}.{name}")
            else:
                raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=self)
            setattr(self, name, value)
            return value

        def __setattr__(self, name: str, value: Any) -> None:
            # Python binds each module that it imports to its package, also where an object has that name.
            if isinstance(value, ModuleType) and value.__name__ == module_of.get(name):
                value = _object(value, name)
            super().__setattr__(name, value)

        def __dir__(self) -> list[str]:
            return sorted(self.__all__)

    sys.modules[package].__class__ = LazyPackage


def _object(module: ModuleType, name: str) -> Any:
    """An attribute of a module; a function named like its package also gets the package's attributes."""
    value = getattr(module, name)
    if hasattr(module, "__path__") and name == module.__name__.rpartition(".")[2]:
        value.__dict__ = vars(module)
    return value
