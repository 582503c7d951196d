"""The command ``simwarp info``: list versions, extras, the compiler, the GPU and the BMM schemes."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, cast

from rich.text import Text

from reference.errors import MissingExtraError, NoGpuError
from reference.version import __version__
from simwarp.cli.output import Json, print_json, table, wide_console

if TYPE_CHECKING:
    from gpu.bmm.schemes import AnyScheme

EXTRAS = {
    "cli": ("typer", "rich"),
    "compile": ("cuda-bindings", "nvidia-cuda-nvrtc", "platformdirs"),
    "cuda": ("cuda-core",),
    "gpu": ("pycuda", "cuda-core"),
    "net": ("safetensors", "pillow"),
    "plots": ("matplotlib",),
    "test": ("pytest", "hypothesis"),
}
"""The packages of each extra."""


def info_command(as_json: Json = False) -> int:
    """List what is installed, and what can run here."""
    facts = gather()
    if as_json:
        print_json(facts)
        return 0
    shown = table("key", "value", cut=("value",), show_header=False)
    for key, value in facts.items():
        inner = cast("dict[str, Any]", value) if isinstance(value, dict) else {"": value}
        for name, fact in inner.items():
            shown.add_row(f"{key}: {name}" if name else key, Text(str(fact)))
    wide_console().print(shown)
    return 0


def gather() -> dict[str, Any]:
    """Versions, extras, compiler, GPU, instruction rows and BMM schemes, as plain data."""
    import numpy as np

    from gpu.bmm.schemes import RING_SCHEMES, SCHEMES, TENSOR_CORE_SCHEMES
    from gpu.bmm.skinny import SKINNY_SCHEMES
    from gpu.bmm.warpgroups import WARPGROUP_SCHEMES
    from simwarp.ptx.instructions import ROWS

    schemes: dict[str, AnyScheme] = {
        **SCHEMES,
        **TENSOR_CORE_SCHEMES,
        **RING_SCHEMES,
        **SKINNY_SCHEMES,
        **WARPGROUP_SCHEMES,
    }
    return {
        "simwarp": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": _version("numba"),
        "extras": {extra: _missing(packages) for extra, packages in EXTRAS.items()},
        "compiler": _compiler(),
        "gpu": _gpu(),
        "instructions": len(ROWS),
        "schemes": {name: _explain(scheme) for name, scheme in schemes.items()},
    }


def _explain(scheme: AnyScheme) -> str:
    """Describe a scheme of `gpu.bmm` in one line: its unit, its method, and its fallback for a larger K."""
    from gpu.bmm.schemes import TensorCoreScheme
    from gpu.bmm.skinny import SkinnyScheme
    from gpu.bmm.warpgroups import WarpgroupScheme

    if isinstance(scheme, TensorCoreScheme) and not scheme.stages:
        return f"bit tensor cores, {scheme.summary}"
    if isinstance(scheme, TensorCoreScheme | SkinnyScheme):
        return f"bit tensor cores from sm_80, {scheme.summary}"
    if isinstance(scheme, WarpgroupScheme):
        return f"bit tensor cores of sm_90a, {scheme.summary}"
    limit = f"; K > {scheme.largest_k}: {scheme.fallback} takes over" if scheme.largest_k else ""
    return f"{scheme.word}-bit words, {scheme.summary}{limit}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _missing(packages: tuple[str, ...]) -> str:
    missing = [p for p in packages if _version(p) is None]
    return "installed" if not missing else f"missing {', '.join(missing)}"


def _compiler() -> str:
    from gpu.compile import compiler_version

    try:
        return compiler_version()
    except MissingExtraError as error:
        return f"none: {str(error).splitlines()[-1]}"


def _gpu() -> str:
    from gpu.cuda import CudaDevice

    try:
        device = CudaDevice()
    except (MissingExtraError, NoGpuError) as error:
        return f"none: {str(error).splitlines()[0]}"
    major, minor = device.compute_capability
    return f"{device.name} (sm_{major}{minor}, {device.multiprocessors} multiprocessors)"
