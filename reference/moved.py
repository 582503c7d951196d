"""Old names of modules that were moved: importing one imports the new module, with a `DeprecationWarning`.

A package passes its table of old and new names to `install` when it is imported. The name of a package covers
all modules below it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def install(moved: Mapping[str, str]) -> None:
    """Make ``import old`` import ``moved[old]``, for each name of the table."""
    sys.meta_path.insert(0, _Finder(moved))


class _Finder(MetaPathFinder):
    """Finds modules by their old names, before the usual finder would load them a second time."""

    def __init__(self, moved: Mapping[str, str]) -> None:
        self._moved = moved
        self._roots = {name.partition(".")[0] for name in moved}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in self._roots:
            return None
        old = fullname
        while old and old not in self._moved:
            old = old.rpartition(".")[0]
        return ModuleSpec(fullname, _Moved(self._moved[old] + fullname[len(old) :])) if old else None


class _Moved(Loader):
    """Returns the module of the new name, and keeps that module's own spec."""

    def __init__(self, new: str) -> None:
        self._new = new

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        warnings.warn(f"{spec.name} is {self._new} now", DeprecationWarning, stacklevel=2)
        module = import_module(self._new)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
