"""The race detector, based on the happens-before order (PTX ISA 9.0, chapter 8).

=================  =============================================================================
`detector`         `Races`, the listener for accesses, barriers and fences (`simwarp.engine.events`)
`synchronisation`  the half of it that receives what orders accesses
`access`           accesses of many lanes, and their strength
`static_filter`    excludes loads that cannot race
`shadow`           the last writers and readers of each byte; `last_two`
`order`            happens-before; `warp_order` within a warp, `vector_clocks` between warps
`stale_reads`      loads through caches that are not coherent with the launch's writes
`release_acquire`  flags and locks
`proxies`          accesses of asynchronous copies and products, and their fences
`mbarrier_inits`   initialisations of mbarriers that a fence of their own publishes
`lifetimes`        shared memory of other blocks of a cluster, before they start and after they exit
`report`           the fault of a race
`dependents`       launches that overlap the one before, until they wait for it
=================  =============================================================================
"""

from simwarp.races.dependents import Dependents, Footprint
from simwarp.races.detector import Races

__all__ = ["Dependents", "Footprint", "Races"]
