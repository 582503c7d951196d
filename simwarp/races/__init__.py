"""Data races of a simulated kernel, found by happens-before (PTX ISA 9.0, chapter 8).

================  ==============================================================================
`races`           `Races`: what the executor calls at accesses, barriers and fences
`static`          which loads cannot race, so that nobody need look at them
`shadow`          who wrote and read each byte last; `last_two`
`order`           who is ordered after whom; `warp_order` within a warp, `knowledge` between warps
`signals`         flags and locks
`report`          a race in words
================  ==============================================================================
"""

from simwarp.races.races import Races

__all__ = ["Races"]
