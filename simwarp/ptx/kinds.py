"""Kinds of step: the facts about an instruction that linker, analyses, race detector and observers share.

A row names its kind, and its steps have it. What executes a kind is one entry in
`simwarp.engine.operations`. A fact that one module alone needs stands there, beside the kinds that have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of step. By default each lane executes it alone, and it does not access memory."""

    name: str
    # The lanes that wait for one another at the step; whether a member mask names them within the warp.
    together: Literal["", "warp", "warpgroup", "block", "cluster"] = ""
    masked: bool = False
    fragments: bool = False  # the operands are fragments of matrices, held by a warp
    access: bool = False  # each lane accesses an element or a vector at its own address
    loads: bool = False  # reads memory, except by an atomic update or through a texture cache
    writes: bool = False
    updates: bool = False  # reads and writes memory atomically; two such operations do not race
    transfers: bool = False  # begins an operation of the asynchronous proxy
    polls: bool = False  # a loop around it may wait for what other threads write
    # The cache that the step reads through, which may miss writes of the same launch.
    cache: Literal["", "texture", "surface"] = ""
    # The unit that may end at the step, so that some lanes do not go on: a basic block, a call, or the
    # kernel.
    ends: Literal["", "block", "call", "kernel"] = ""

    @property
    def is_atomic(self) -> bool:
        """Whether an instruction of this kind is an atomic operation or a reduction, lane by lane."""
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
