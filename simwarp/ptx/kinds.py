"""Kinds of step: the facts about an instruction that linker, analyses, race detector and observers share.

A row names its kind, and its steps have it. What executes a kind is one entry in
`simwarp.engine.operations`. A fact that one module alone needs stands there, beside the kinds that have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of step. Without facts: each lane executes it by itself, and it touches no memory.

    Attributes
    ----------
    name : str
        The kind in messages.
    together : str
        The lanes that wait for one another there: those of a warp, a warpgroup, a block or a cluster.
    masked : bool
        Whether a member mask names the lanes of the warp that take part.
    fragments : bool
        Whether its operands are a warp's fragments of matrices.
    access : bool
        Whether each lane accesses an element or a vector at an address of its own.
    loads, writes : bool
        Whether it reads memory, other than for an update or through a cache; whether it writes memory.
    updates : bool
        Whether it reads and writes memory as one operation, which races with no other such operation.
    transfers : bool
        Whether it begins an operation of the asynchronous proxy.
    polls : bool
        Whether a loop around it may wait for what other threads write.
    cache : str
        The cache that it reads through, which does not see all that the launch writes.
    ends : str
        What may end there, so that lanes do not execute the next step: a basic block, a call, or the kernel.
    """

    name: str
    together: Literal["", "warp", "warpgroup", "block", "cluster"] = ""
    masked: bool = False
    fragments: bool = False
    access: bool = False
    loads: bool = False
    writes: bool = False
    updates: bool = False
    transfers: bool = False
    polls: bool = False
    cache: Literal["", "texture", "surface"] = ""
    ends: Literal["", "block", "call", "kernel"] = ""

    @property
    def is_atomic(self) -> bool:
        """Whether it is an atomic operation or reduction of each lane."""
        return self.access and self.updates


PURE = Kind("pure")
"""Computes registers from registers."""
FENCE = Kind("fence")
"""Fences, and hints without an effect."""

LOAD = Kind("load", access=True, loads=True)
STORE = Kind("store", access=True, writes=True)
ATOMIC = Kind("atomic", access=True, writes=True, updates=True, polls=True)
REDUCTION = Kind("reduction", access=True, writes=True, updates=True)

BRANCH = Kind("branch", ends="block")
INDEXED_BRANCH = Kind("indexed branch", ends="block")
CALL = Kind("call")
RETURN = Kind("return", ends="call")
EXIT = Kind("exit", ends="kernel")
TRAP = Kind("trap", ends="kernel")

WARP = Kind("warp", together="warp", masked=True)
"""Exchanges values between lanes."""
WARP_BARRIER = Kind("warp barrier", together="warp", masked=True)
BARRIER = Kind("barrier", together="block")
CLUSTER_BARRIER = Kind("cluster barrier", together="cluster")
MBARRIER = Kind("mbarrier", polls=True)
REGISTER_COUNT = Kind("register count", together="warpgroup")

MATRIX = Kind("matrix", together="warp", fragments=True)
MATRIX_LOAD = Kind("matrix load", together="warp", fragments=True, loads=True)
MATRIX_STORE = Kind("matrix store", together="warp", fragments=True, writes=True)
WARPGROUP_PRODUCT = Kind("warpgroup product", together="warpgroup")
WARPGROUP_ORDER = Kind("warpgroup order", together="warp")
"""Orders products of warpgroups: fences, groups and waits."""

ASYNC_COPY = Kind("async copy", writes=True)
ASYNC_GROUP = Kind("async group")
"""Groups of asynchronous copies, and waits for them."""
BULK_COPY = Kind("bulk copy", writes=True, transfers=True)
BULK_REDUCTION = Kind("bulk reduction", writes=True, updates=True, transfers=True)
BULK_GROUP = Kind("bulk group")
TENSOR_COPY = Kind("tensor copy", writes=True, transfers=True)
TENSOR_REDUCTION = Kind("tensor reduction", writes=True, updates=True, transfers=True)
TENSOR_MAP = Kind("tensor map", writes=True)
"""Changes tensor maps, and orders these changes."""

TEXTURE = Kind("texture", cache="texture")
TEXTURE_GATHER = Kind("texture gather", cache="texture")
TEXTURE_QUERY = Kind("texture query")
SURFACE_LOAD = Kind("surface load", cache="surface")
SURFACE_STORE = Kind("surface store", writes=True)
SURFACE_QUERY = Kind("surface query")
