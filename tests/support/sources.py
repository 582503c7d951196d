"""The source files of the packages, and their syntax trees."""

from __future__ import annotations

import ast
import gc
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("reference", "simwarp", "gpu")


def source_files(*packages: str) -> list[Path]:
    """The modules of some packages."""
    return [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]


def module_name(path: Path) -> str:
    """The dotted name of a module."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def parsed(source: str) -> ast.Module:
    """The syntax tree of a source; garbage collections, which would take twice as long again, wait."""
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        gc.enable()
