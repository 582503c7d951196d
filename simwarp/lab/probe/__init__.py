"""Fragment maps by experiment, on any device, simulated or real: which lane and register hold what.

`probe` asks a device about one form of an instruction, and holds the maps that it finds against
`simwarp.fragments`. Three methods share the passes of `simwarp.lab.probe.passes`: `simwarp.lab.probe.moves`
for loads, stores and transposes, `simwarp.lab.probe.products` for mma and wmma.mma,
`simwarp.lab.probe.warpgroups` for wgmma. Moves and wgmma find maps outright; a product tells only what is
multiplied with what, see `simwarp.lab.probe.relation`. `simwarp.lab.probe.bmma` shows section 4 of the paper
on bit tensor cores.
"""

from simwarp.lab.probe.finding import Difference, Finding, FoundOperand
from simwarp.lab.probe.forms import forms_named
from simwarp.lab.probe.probing import probe

__all__ = ["Difference", "Finding", "FoundOperand", "forms_named", "probe"]
