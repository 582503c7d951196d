"""The allowed imports between packages, checked on the syntax trees.

Imports inside functions and under ``TYPE_CHECKING`` count too, and so do ``importlib.import_module``
and ``__import__``. Some packages may be imported only *lazily*, inside a function, so that a tier
imports without them.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from support.offenders import check_each
from support.sources import PACKAGES, ROOT, module_name, parsed, source_files

DOORS = (
    *(f"simwarp.{name}" for name in ("cli", "exec", "lab", "run", "testing", "torch", "verify")),
    "simwarp.__main__",
    "simwarp.numba",
)
VOCABULARY = (
    *("reference.types", "reference.devices", "reference.errors", "reference.files", "reference.lazy"),
    "reference.values",
)

ALLOWED = {
    "reference": ("reference", "numpy", "numba", "scipy", "sparse", "torch", "safetensors", "h5py"),
    "simwarp": ("simwarp", "numpy", "llvmlite", *VOCABULARY, "reference.version"),
    "gpu": (
        "gpu",
        "numpy",
        "numba",
        *VOCABULARY,
        "pycuda",
        "cuda",
        "platformdirs",
        "torch",
        "scipy",
        "mpi4py",
    ),
}
REACHABLE = {
    "simwarp": (
        "gpu",
        "reference",
        "gpu.compile.compile",
        "simwarp.run",
        "simwarp.run.Out",
        "simwarp.run.run",
    ),
    "reference.lazy": ("<computed>",),
}
"""What users find below ``simwarp`` as well, so that one import is enough, imported at its first use; and
the modules of the tables that `reference.lazy` is given."""

LAZY = (
    "llvmlite",
    "numba",
    "pycuda",
    "cuda",
    "platformdirs",
    "zstandard",
    "scipy",
    "sparse",
    "torch",
    "safetensors",
    "h5py",
    "PIL",
    "mpi4py",
)
DRIVER = {
    "cuda.bindings.driver": ("gpu.cuda.driver",),
    "pycuda": ("gpu.cuda.driver", "simwarp.exec.python_start"),
}
"""What calls the CUDA driver, and who imports it: one module for all others; `python_start` only changes how
PyCUDA compiles, in the process of a user's script."""
LAZY_IN_THE_COMMAND_LINE = (*LAZY, "typer", "rich", "hypothesis", "pytest")


@dataclass(frozen=True)
class Import:
    """One import: the imported dotted name, its line, and whether it runs only inside a function."""

    target: str
    line: int
    lazy: bool


class Reader(ast.NodeVisitor):
    """Collects all imports of one module."""

    def __init__(self, module: str, is_package: bool, calls: bool = True) -> None:
        self.package = module if is_package else module.rpartition(".")[0]
        self.calls = calls  # whether a call can be an import: otherwise only statements are visited
        self.imports: list[Import] = []
        self._lazy = False

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = self._absolute("." * node.level + (node.module or ""))
        for alias in node.names:
            self._add(f"{base}.{alias.name}", node)

    def visit_Call(self, node: ast.Call) -> None:
        called = ast.unparse(node.func).rpartition(".")[2]
        if called in ("import_module", "__import__") and node.args:
            name = node.args[0]
            literal = isinstance(name, ast.Constant) and isinstance(name.value, str)
            self._add(self._absolute(name.value) if literal else "<computed>", node)
        self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        if self.calls:
            super().generic_visit(node)
            return
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            for statement in getattr(node, part, ()):
                self.visit(statement)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for now in (*node.decorator_list, node.args):
            self.visit(now)
        self._visit_later(node.body)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the name that ast looks for

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            self._visit_later(node.body)
            for statement in node.orelse:
                self.visit(statement)
        else:
            self.generic_visit(node)

    def _visit_later(self, body: list[ast.stmt]) -> None:
        before, self._lazy = self._lazy, True
        for statement in body:
            self.visit(statement)
        self._lazy = before

    def _absolute(self, name: str) -> str:
        dots = len(name) - len(name.lstrip("."))
        if not dots:
            return name
        parts = self.package.split(".")
        return ".".join([*parts[: len(parts) - dots + 1], *filter(None, [name[dots:]])])

    def _add(self, target: str, node: ast.AST) -> None:
        self.imports.append(Import(target, getattr(node, "lineno", 0), self._lazy))


@cache
def imports_of(source: str, module: str, is_package: bool = False) -> list[Import]:
    reader = Reader(module, is_package, calls="import_module" in source or "__import__" in source)
    reader.visit(parsed(source))
    return reader.imports


def violations(source: str, module: str, is_package: bool = False) -> list[str]:
    """The imports of a module that no rule allows, as readable lines."""
    return [
        f"{module}, line {found.line}: {complaint}"
        for found in imports_of(source, module, is_package)
        if (complaint := _complaint(found, module))
    ]


def _complaint(found: Import, module: str) -> str | None:
    target = found.target
    if target.partition(".")[0] in sys.stdlib_module_names:
        return None
    if found.lazy and target in REACHABLE.get(module, ()):
        return None
    if any(_has(target, way) and module not in allowed for way, allowed in DRIVER.items()):
        return f"{target} is imported by gpu.cuda.driver, from which others get what they call"
    if not within(module, DOORS):
        tier = module.partition(".")[0]
        if not within(target, ALLOWED[tier]) or (tier == "simwarp" and within(target, DOORS)):
            return f"{tier} must not import {target}"
    in_command_line = module in ("simwarp.cli", "simwarp.__main__")
    if not found.lazy and within(target, LAZY_IN_THE_COMMAND_LINE if in_command_line else LAZY):
        return f"{target} must be imported inside a function"
    return None


def _has(target: str, module: str) -> bool:
    """True if an import gives a module: itself, a part of it, or a package that has it as an attribute."""
    return within(target, (module,)) or within(module, (target,))


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_import_is_allowed(package: str) -> None:
    """docs/architecture.md says who may import whom."""
    check_each(check_imports, source_files(package), module_name)


def check_imports(path: Path) -> None:
    found = violations(path.read_text(), module_name(path), path.name == "__init__.py")
    assert not found, "; ".join(found)


def test_no_other_module_loads_the_drivers_library() -> None:
    """`simwarp.exec` has one of its own; the plugin of pytest asks for it where no extra is installed."""
    own = "simwarp.exec", "simwarp.testing.plugin"
    loading = [module_name(path) for path in source_files(*PACKAGES) if "libcuda.so" in path.read_text()]
    assert "simwarp.testing.plugin" in loading
    assert [module for module in loading if not within(module, own)] == []


def test_no_module_has_an_underscored_name() -> None:
    """Public is what the `__all__` of a package names; a module is named by its subject."""
    assert [
        str(path.relative_to(ROOT)) for path in source_files(*PACKAGES) if re.match("_[^_]", path.name)
    ] == []


def test_imports_of_every_package_are_found() -> None:
    seen = {
        module_name(path): imports_of(path.read_text(), module_name(path), path.name == "__init__.py")
        for path in source_files(*PACKAGES)
    }
    for package in PACKAGES:
        assert sum(within(name, (package,)) for name in seen) >= 4, package
    assert sum(len(found) for found in seen.values()) >= 100
    assert any(found.lazy and found.target == "numba" for found in seen["reference.bits"])
    assert any(found.target.startswith("reference.errors") for found in seen["simwarp.faults"])


PLANTED = {
    "reference sees a device": ("import simwarp", "reference.bits"),
    "reference sees gpu": ("from gpu.bmm import host", "reference.bits"),
    "reference sees scipy": ("import scipy.sparse", "reference.bits"),
    "core sees the answer": ("from reference.bits import pack", "simwarp.warp"),
    "core sees the answer, from the package": ("from reference import bmm", "simwarp.warp"),
    "core sees the whole package": ("import reference", "simwarp.warp"),
    "core sees gpu": ("import gpu.compile", "simwarp.device"),
    "core sees the laboratory": ("from simwarp.lab import fuzz", "simwarp.device"),
    "core sees a door": ("from simwarp.verify import runner", "simwarp.device"),
    "core sees a door, from the package": ("from simwarp import testing", "simwarp.device"),
    "core sees PyTorch's door": ("def f():\n    import simwarp.torch", "simwarp.device"),
    "reference sees PyTorch's door": ("def f():\n    import simwarp.torch", "reference.bnn"),
    "core sees a door, relatively": ("from . import cli", "simwarp.device"),
    "core sees a door, two levels up": ("from ..verify import runner", "simwarp.ptx.parse"),
    "core sees numba": ("def f():\n    import numba", "simwarp.lanes"),
    "gpu sees simwarp": ("from simwarp import lanes", "gpu.bmm.host"),
    "gpu sees simwarp, in a function": ("def f():\n    import simwarp", "gpu.bmm.host"),
    "gpu sees simwarp, for its types": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from simwarp import Device",
        "gpu.device",
    ),
    "gpu sees simwarp, by name": ("import importlib\nx = importlib.import_module('simwarp')", "gpu.device"),
    "gpu sees simwarp, by __import__": ("x = __import__('simwarp.device')", "gpu.device"),
    "gpu sees the answer": ("import reference.bits", "gpu.bmm.host"),
    "gpu computes a name": ("from importlib import import_module\nimport_module(tier)", "gpu.device"),
    "core sees a door, by relative name": ("import_module('.verify', __package__)", "simwarp.device"),
    "in an else": ("if x:\n    pass\nelse:\n    import simwarp", "gpu.device"),
    "in a try": ("try:\n    import simwarp\nexcept ImportError:\n    pass", "gpu.device"),
    "in a method": ("class A:\n    def f(self):\n        import simwarp", "gpu.device"),
    "in a lambda": ("f = lambda: __import__('simwarp')", "gpu.device"),
    "the package sees gpu at once": ("import gpu", "simwarp"),
    "the package sees reference at once": ("import reference", "simwarp"),
    "the package sees a door at once": ("from simwarp.run import run", "simwarp"),
    "the package sees what is below": ("def f():\n    import gpu.compile", "simwarp"),
    "core sees gpu, in a function": ("def f():\n    import gpu", "simwarp.device"),
    "core sees simwarp.run, in a function": ("def f():\n    import simwarp.run", "simwarp.device"),
    "numba at once": ("import numba", "reference.bmm"),
    "numba at once, in a class": ("class A:\n    from numba import njit", "reference.bmm"),
    "numba at once, in a door": ("import numba", "simwarp.verify.runner"),
    "pycuda at once": ("import pycuda.driver", "gpu.cuda.driver"),
    "pycuda by another way": ("def f():\n    import pycuda.driver", "gpu.cuda.device"),
    "the driver by another way": ("def f():\n    from cuda.bindings import driver", "gpu.cuda.streams"),
    "the driver by its package": ("def f():\n    from cuda import bindings", "gpu.cuda_machine.driver"),
    "the driver, by name": ("def f():\n    import_module('cuda.bindings.driver')", "gpu.bmm.product"),
    "the driver's names": ("def f():\n    from cuda.bindings.driver import cuInit", "simwarp.run.kernel"),
    "scipy at once": ("import scipy.linalg", "gpu.blas3.routines"),
    "cuda at once": ("from cuda.bindings import nvrtc", "gpu.compile"),
    "cuda at once, not for types": (
        "if not TYPE_CHECKING:\n    from cuda.bindings import nvrtc",
        "gpu.compile",
    ),
    "platformdirs at once": ("import platformdirs", "gpu.compile"),
    "typer at once": ("import typer", "simwarp.cli"),
    "rich at once": ("from rich.live import Live", "simwarp.cli"),
    "typer at once, in the main module": ("import typer", "simwarp.__main__"),
}


def test_a_planted_forbidden_import_is_reported() -> None:
    found = {planted: violations(source, module) for planted, (source, module) in PLANTED.items()}
    assert not {planted: lines for planted, lines in found.items() if len(lines) != 1}


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("import numpy as np\nfrom reference.types import PackedBits", "reference.bits"),
        ("def f():\n    import numba", "reference.bmm"),
        ("from reference import types\nfrom reference.errors import ShapeError", "simwarp.device"),
        ("from simwarp import lanes\nfrom .faults import Place\nfrom . import memory", "simwarp.device"),
        ("from reference.version import __version__", "simwarp"),
        ("def f():\n    from cuda.bindings import nvrtc", "gpu.compile"),
        ("def f():\n    from cuda.bindings import driver\n    import pycuda.driver", "gpu.cuda.driver"),
        ("if TYPE_CHECKING:\n    import pycuda.driver", "gpu.cuda.driver"),
        ("import reference, gpu, simwarp\nimport pytest", "simwarp.testing.plugin"),
        ("def f():\n    import typer\n    import gpu", "simwarp.cli"),
        ("def __getattr__(name):\n    import gpu\n    import reference\n    import simwarp.run", "simwarp"),
        ("import collections.abc, importlib.resources", "gpu.compile"),
    ],
)
def test_allowed_imports_are_not_reported(source: str, module: str) -> None:
    assert imports_of(source, module)
    assert violations(source, module) == []


# --------------------------------------------------------------------------------------------------
# Layers
# --------------------------------------------------------------------------------------------------

PTX = ("simwarp.ptx", "simwarp.fragments", "simwarp.products", "simwarp.floats", "simwarp.chips")
"""What PTX is."""
DEVICES = ("reference.devices",)
"""What devices take: vocabulary of the tiers that have devices."""
GROUND = ("simwarp.lanes", "simwarp.faults", "simwarp.llvm", "reference")
WATCHERS = ("simwarp.races", "simwarp.observe")
HEARD = tuple(f"simwarp.engine.{name}" for name in ("events", "chunk", "launch", "memory.reach"))
"""What a watcher may know of the engine: its events, and the state that they tell of."""


@cache
def arrows() -> dict[tuple[str, str], list[str]]:
    """All imports between modules, with their place."""
    modules = {module_name(path): path for path in source_files(*PACKAGES)}
    found: dict[tuple[str, str], list[str]] = {}
    for module, path in modules.items():
        for one in imports_of(path.read_text(), module, path.name == "__init__.py"):
            target = one.target
            while target and target not in modules:
                target = target.rpartition(".")[0]
            if target and target != module:
                found.setdefault((module, target), []).append(f"{path.relative_to(ROOT)}:{one.line}")
    return found


def package(module: str) -> str:
    """The folder of a module below its tier; a module outside any folder counts as a package."""
    return ".".join(module.split(".")[:2])


def circles(edges: Iterable[tuple[str, str]]) -> list[str]:
    """One import cycle between packages, or nothing."""
    graph: dict[str, set[str]] = {}
    for source, target in edges:
        if package(source) != package(target):
            graph.setdefault(package(source), set()).add(package(target))
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def misplaced(source: str, target: str) -> str | None:
    """The reason that an import points to a higher layer, or nothing."""
    if within(source, PTX) and not within(target, (*PTX, *GROUND)):
        return "what PTX is runs nothing"
    if within(source, WATCHERS) and within(target, ("simwarp.engine",)) and not within(target, HEARD):
        return "a watcher hangs on events"
    if within(target, DEVICES) and within(source, ("reference",)) and not within(source, DEVICES):
        return "the mathematics knows no device"
    if within(target, ("simwarp.lab",)) and not within(source, ("simwarp.lab", "simwarp.cli")):
        return "only simwarp.cli imports the laboratory"
    return None


def test_packages_do_not_import_in_a_cycle() -> None:
    assert circles(arrows()) == []


def test_every_import_points_to_a_lower_layer() -> None:
    wrong = {arrow: why for arrow in arrows() if (why := misplaced(*arrow))}
    assert not wrong


def test_a_planted_import_cycle_is_reported() -> None:
    planted = {**arrows(), ("simwarp.engine.launch", "simwarp.races.detector"): []}
    assert {"simwarp.engine", "simwarp.races"} <= set(circles(planted))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("simwarp.ptx.rows", "simwarp.engine.chunk"),
        ("simwarp.chips.lowering", "simwarp.program.program"),
        ("simwarp.races.order", "simwarp.engine.schedule.scheduler"),
        ("simwarp.observe.divergence", "simwarp.engine.sync.waiting"),
        ("simwarp.testing.plugin", "simwarp.lab.fuzz"),
        ("simwarp.verify.runner", "simwarp.lab"),
        ("reference.sparse.tns", "reference.devices.launch"),
        ("reference.types", "reference.devices"),
    ],
)
def test_a_planted_upward_import_is_reported(source: str, target: str) -> None:
    assert misplaced(source, target)
    assert misplaced(target, source) is None


def _python(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_tiers_import_without_optional_packages() -> None:
    loaded = "{name.partition('.')[0] for name in sys.modules}"
    extras = set(LAZY_IN_THE_COMMAND_LINE)
    printed = _python(f"import sys, reference, simwarp, gpu; print(*sorted({loaded} & {extras}))")
    assert printed.split() == []


def test_the_command_line_imports_without_its_extra() -> None:
    _python("import sys; sys.modules.update(typer=None, rich=None); import simwarp.cli")
