"""State spaces and generic addresses (PTX ISA chapter 5, and 9.7.9.20 for `cvta`).

A generic address points to the state space whose window it lies in. Global memory has no window: its
addresses are generic unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

WINDOW = 1 << 40
"""Bytes between the starts of two windows."""
WINDOWS = {"shared": 1 * WINDOW, "local": 2 * WINDOW, "param": 3 * WINDOW, "const": 4 * WINDOW}
"""State space → start of its generic addresses."""
NAMES = {start // WINDOW: space for space, start in WINDOWS.items()}
"""Number of a window → its state space; every other number is global memory."""
FUNCTIONS = 5 * WINDOW
"""The address of a module's first function; function addresses are 16 bytes apart."""
BLOCK_BITS = 24
"""A shared address of another block of the cluster has that block's rank + 1 above these bits."""
RESERVED = 1 << 10
"""Bytes of reserved shared memory per block, where cooperative groups keep their barriers."""
RESERVED_IN_USE = 288
"""Bytes of the reserved part that driver 580 uses."""
RESERVED_AT = (1 << BLOCK_BITS) - 2 * RESERVED
"""Start of the reserved part, far from the block's own memory so that neither is reached by overrun."""

_SPACES = ("global", "shared", "local", "const", "param")


def space_of(words: Iterable[str]) -> str:
    """The state space in an opcode's words, "shared" for ``.shared::cta``; "" if there is none."""
    bases = (word.partition("::")[0] for word in words)
    return next((base for base in bases if base in _SPACES), "")


def to_generic(address: Any, space: str) -> Any:
    """Convert an address in a state space to a generic address, as ``cvta`` does."""
    return np.add(address, np.uint64(WINDOWS[space])) if space in WINDOWS else address


def from_generic(address: Any, space: str) -> Any:
    """Convert a generic address to an address in a state space, as ``cvta.to`` does."""
    return np.subtract(address, np.uint64(WINDOWS[space])) if space in WINDOWS else address


def is_in(address: Any, space: str) -> Any:
    """Whether a generic address is in a state space's window; kernel parameters count as global, too."""
    window = np.right_shift(address, np.uint64(40))
    if space in WINDOWS:
        return window == WINDOWS[space] >> 40
    return (window > FUNCTIONS >> 40) | (window == WINDOWS["param"] >> 40)
