"""The engine: runs a `simwarp.program` over a grid, and notifies its listeners of events.

================  ==============================================================================
a launch          `launch`, `chunk` (lanes in flight), `special_registers`, `places` (of faults), `dice`
the interfaces    `events` (of checks and observers), `state` and `components` (of operations)
each step         `operations`: the function of each kind of step
`schedule`        which lanes execute next; branches, calls, host functions; endless loops
`memory`          loads, stores, atomics, textures; what an access may reach
`sync`            barriers, mbarriers and operations of a warp, at which lanes wait
`asynchronous`    copies between their instruction and a wait
`tensor_core`     matrix products of warps and warpgroups
`undefined`       uninitialised bits, and pointers of other threads
================  ==============================================================================
"""
