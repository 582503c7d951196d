"""The engine: runs a `simwarp.program` over a grid, and notifies its listeners of events.

================  ==============================================================================
a launch          `launch`, `workers` (processes), `chunk` (lanes in flight), `special_registers`
scheduling        `schedule`, `schedule_stack`, `schedule_random`, `livelock`
control flow      `branches`, `calls`, `host_functions` (printf, malloc), `grid_sync`
lanes together    `sync` (barriers and warp operations), `barriers`, `missing_lanes`, `tensor_core`
memory            `accesses`, `reach`, `undefined`
events            `events`: the interface of checks and observers
================  ==============================================================================
"""
