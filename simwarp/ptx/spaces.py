"""State spaces and generic addresses (PTX ISA chapter 5, and 9.7.9.20 for `cvta`).

The window of a generic address is its state space. Global memory has no window: its
addresses are generic as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

WINDOW = 1 << 40
"""The distance of two windows."""
WINDOWS = {"shared": 1 * WINDOW, "local": 2 * WINDOW, "param": 3 * WINDOW, "const": 4 * WINDOW}
"""Where the generic addresses of a state space start."""
NAMES = {start // WINDOW: space for space, start in WINDOWS.items()}
"""The state space of each window, by number; past them lies global memory."""
FUNCTIONS = 5 * WINDOW
"""The address of a module's first function; they are 16 bytes apart."""
BLOCK_BITS = 24
"""A shared address of another block of the cluster has that block's rank + 1 above these bits."""
RESERVED = 1 << 10
"""Bytes of shared memory in each block that are not its own: cooperative groups keep their barriers there."""
RESERVED_IN_USE = 288
"""Bytes of these in use, by driver 580."""
RESERVED_AT = (1 << BLOCK_BITS) - 2 * RESERVED
"""Where these start, far behind the block's own, so that neither is reached from the other."""


def to_generic(address: Any, space: str) -> Any:
    """The generic address of an address in a state space; `cvta` of PTX."""
    return np.add(address, np.uint64(WINDOWS[space])) if space in WINDOWS else address


def from_generic(address: Any, space: str) -> Any:
    """The address in a state space of a generic address; `cvta.to` of PTX."""
    return np.subtract(address, np.uint64(WINDOWS[space])) if space in WINDOWS else address


def is_in(address: Any, space: str) -> Any:
    """Whether a generic address lies in a state space's window; kernel parameters count as global, too."""
    window = np.right_shift(address, np.uint64(40))
    if space in WINDOWS:
        return window == WINDOWS[space] >> 40
    return (window > FUNCTIONS >> 40) | (window == WINDOWS["param"] >> 40)
