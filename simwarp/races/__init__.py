"""Data races of a simulated kernel, found by happens-before (PTX ISA 9.0, chapter 8).

=================  =============================================================================
`detector`         `Races`, the listener for accesses, barriers and fences (`simwarp.engine.events`)
`access`           an access of many lanes, and its strength
`static_filter`    the loads that cannot race, and need not be watched
`shadow`           the last writers and readers of each byte; `last_two`
`order`            happens-before; `warp_order` within a warp, `vector_clocks` between warps
`release_acquire`  flags and locks
`report`           a race as text
=================  =============================================================================
"""

from simwarp.races.detector import Races

__all__ = ["Races"]
