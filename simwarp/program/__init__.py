"""A kernel prepared to run: linked, bound to registers, and analysed.

================  ==============================================================================
linking           `link`, `bind`, `operands` (closures), `refusals`, `call_graph`;
                  `program` and `steps` (their result)
registers         `liveness`, `copies`
control flow      `postdominators`, `exits` (ways past a barrier), `barrier_regions`, `graphs`,
                  `loops`, `waits` (tests of barriers)
addresses         `provenance`, `frames` (local variables in their stack frame)
================  ==============================================================================
"""
