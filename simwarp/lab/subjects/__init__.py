"""The subjects of ``simwarp record``; each has a function ``ask`` that runs it on a device.

>>> SUBJECTS["silicon"].about
'what the PTX ISA leaves open'
"""

from simwarp.lab.subjects import (
    bconv,
    bugs,
    cases,
    counters,
    forms,
    kernels,
    maps,
    mbarriers,
    mttkrp,
    products,
    programs,
    silicon,
    tensor_maps,
    textures,
    tiles,
    wgmma,
)

_MODULES = (
    cases,
    bconv,
    mttkrp,
    kernels,
    counters,
    bugs,
    silicon,
    maps,
    tiles,
    forms,
    programs,
    wgmma,
    mbarriers,
    tensor_maps,
    textures,
    products,
)
SUBJECTS = {subject.name: subject for module in _MODULES for subject in module.SUBJECTS}
"""All subjects by name."""
