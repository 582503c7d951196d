"""The table of kinds of step: the function that executes each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from simwarp.engine.asynchronous import bulk_copies, copies, tensor_copies, tensor_maps
from simwarp.engine.memory import accesses, textures
from simwarp.engine.schedule import branches
from simwarp.engine.sync import mbarriers, register_pool, waiting
from simwarp.engine.tensor_core import warpgroups, warps
from simwarp.ptx import kinds

if TYPE_CHECKING:
    from simwarp.engine.state import Chunk, Scheduler
    from simwarp.program.program import Step
    from simwarp.ptx.kinds import Kind

DATA: dict[Kind, Callable[[Chunk, Step], None]] = {
    kinds.LOAD: accesses.load,
    kinds.STORE: accesses.store,
    kinds.ATOMIC: accesses.atomic,
    kinds.REDUCTION: accesses.atomic,
    kinds.ASYNC_COPY: copies.copy,
    kinds.ASYNC_GROUP: copies.group,
    kinds.BULK_COPY: bulk_copies.copy,
    kinds.BULK_REDUCTION: bulk_copies.copy,
    kinds.BULK_GROUP: bulk_copies.group,
    kinds.TENSOR_COPY: tensor_copies.copy,
    kinds.TENSOR_REDUCTION: tensor_copies.copy,
    kinds.TENSOR_MAP: tensor_maps.execute,
    kinds.MBARRIER: mbarriers.operate,
    kinds.TEXTURE: textures.read_texture,
    kinds.TEXTURE_GATHER: textures.read_texture,
    kinds.TEXTURE_QUERY: textures.query,
    kinds.SURFACE_LOAD: textures.read_surface,
    kinds.SURFACE_STORE: textures.write_surface,
    kinds.SURFACE_QUERY: textures.query,
}
"""Kind of step that runs to its end in each lane → its function."""

CONTROL: dict[Kind, Callable[[Scheduler, int, Step], int | None]] = {
    kinds.FENCE: branches.fence,
    kinds.BRANCH: branches.branch,
    kinds.INDEXED_BRANCH: branches.indexed_branch,
    kinds.CALL: branches.call,
    kinds.RETURN: branches.come_back,
    kinds.EXIT: branches.exit_,
    kinds.TRAP: branches.trap,
    kinds.WARP: waiting.warp,
    kinds.WARP_BARRIER: waiting.warp,
    kinds.BARRIER: waiting.barrier,
    kinds.CLUSTER_BARRIER: waiting.cluster,
    kinds.REGISTER_COUNT: register_pool.change,
    kinds.MATRIX: partial(warps.whole_warp, warps.compute),
    kinds.MATRIX_LOAD: partial(warps.whole_warp, warps.load),
    kinds.MATRIX_STORE: partial(warps.whole_warp, warps.store),
    kinds.WARPGROUP_PRODUCT: warpgroups.product,
    kinds.WARPGROUP_ORDER: partial(warps.whole_warp, warpgroups.order),
}
"""Other kind of step → its function, which returns the group's next step, or None if the group is gone."""
