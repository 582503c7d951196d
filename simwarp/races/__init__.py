"""Data races of a simulated kernel, found by happens-before (PTX ISA 9.0, chapter 8).

=================  =============================================================================
`detector`         `Races`: hears of accesses, barriers and fences (`simwarp.engine.events`)
`static_filter`    which loads cannot race, so that nobody need look at them
`shadow`           who wrote and read each byte last; `last_two`
`order`            who is ordered after whom; `warp_order` within a warp, `vector_clocks` between warps
`release_acquire`  flags and locks; `strong` says which accesses may be one
`report`           a race in words
=================  =============================================================================
"""

from simwarp.races.detector import Races

__all__ = ["Races"]
