"""Finds fragment maps (the lane and register of each element) by experiment, simulated or on hardware.

`probe` runs one form of an instruction on a device, and compares the maps that it finds with
`simwarp.fragments`. Three methods share the passes of `simwarp.lab.probe.passes`: `simwarp.lab.probe.moves`
for loads, stores and transposes, `simwarp.lab.probe.products` for mma and wmma.mma,
`simwarp.lab.probe.warpgroups` for wgmma. Moves and wgmma determine maps completely; a product shows only the
factors of each sum, see `simwarp.lab.probe.relation`. `simwarp.lab.probe.bmma` repeats section 4 of the
paper on bit tensor cores, and `simwarp.lab.probe.latency` its figures of latencies.
"""

from simwarp.lab.probe.finding import Difference, Finding, FoundOperand
from simwarp.lab.probe.probing import forms_named, probe

__all__ = ["Difference", "Finding", "FoundOperand", "forms_named", "probe"]
