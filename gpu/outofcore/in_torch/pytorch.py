"""PyTorch, or an error that names the extra."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from reference.errors import MissingExtraError


def _import_torch() -> Any:
    try:
        return import_module("torch")
    except ImportError as error:
        raise MissingExtraError(
            f"gpu.outofcore.in_torch needs torch, which is not installed ({error})\n"
            "pip install 'simwarp[torch]'",
            name="torch",
        ) from None


torch: Any = _import_torch()
