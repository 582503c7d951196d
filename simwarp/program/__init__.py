"""A kernel made ready to run: linked, bound, and analysed once before it runs.

================  ==============================================================================
linking           `link`, `bind`, `operands` (closures), `refusals`, `call_graph`;
                  `program` (their result)
registers         `liveness`, `copies`
control flow      `postdominators`, `exits` (ways past a barrier), `barrier_regions`, `graphs`
addresses         `provenance`
================  ==============================================================================
"""
