"""The compiled engine: steps that compute on registers, and their branches, as machine code by LLVM.

It executes clean steps only, in the order of `simwarp.engine.schedule.scheduler`, and gives the state back
where a step is not its own: an access to memory, a barrier, a register that may be unwritten, a turn that is
spent. `simwarp.engine` executes that step and names every finding.

=============  ==========================================================================
`expressions`  values that record how they are computed, in place of arrays
`lowering`     float operations whose rows NumPy computes in many steps
`segments`     which steps are compiled, where segments start, and what they read and write
`text`         LLVM's text of a segment
`driver`       LLVM's text of the driver that runs segments
`code`         machine code by llvmlite
`run`          enters compiled code from a scheduler's state, and gives the state back
`state`        what it needs of that state
=============  ==========================================================================

llvmlite comes with numba, and is imported when the first kernel is compiled.
"""
