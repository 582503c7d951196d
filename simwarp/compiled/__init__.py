"""The compiled engine: steps that compute on registers, and their branches, as machine code by LLVM.

It executes clean steps only, in the order of `simwarp.engine.schedule.scheduler`, on the launch's own memory
and the race detector's own shadows, and gives the state back where a step is not its own: a step without a
compiled form, an access that is not clean or may race, lanes that wait for others, a register that may be
unwritten, a turn that is spent. `simwarp.engine` executes that step and names every finding.

=============  ==========================================================================
`expressions`  values that record how they are computed, in place of arrays
`lowering`     float operations whose rows NumPy computes in many steps
`meetings`     barriers, and operations of warps
`segments`     which steps are compiled, where segments start, and what they read and write
`text`         LLVM's text of a segment
`driver`       LLVM's text of the driver that runs segments
`accesses`     LLVM's text of what all kernels share: checks and records of accesses, barriers
`builder`      writes LLVM's text of functions with loops and conditions
`tables`       the words that Python and compiled code share
`run`          enters compiled code from a scheduler's state, and gives the state back
`registers`    the registers of a chunk, as compiled code has them
`groups`       the groups of a scheduler, likewise
`memory`       allocations, shadows and warps, likewise
`state`        what it needs of the engine's state
=============  ==========================================================================

llvmlite comes with numba, and is imported when the first kernel is compiled.
"""
