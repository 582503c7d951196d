"""Runs a `simwarp.program` over a grid, and tells who listens what happens.

================  ==============================================================================
a launch          `launch`, `workers` (processes), `chunk` (lanes in flight), `special_registers`
who goes when     `schedule`, `schedule_stack`, `schedule_random`, `livelock`
control flow      `branches`, `calls`, `host_functions` (printf, malloc), `grid_sync`
lanes together    `sync` (barriers and warp operations), `barriers`, `missing_lanes`, `tensor_core`
memory            `accesses`, `reach`, `undefined`
events            `events`: what checks and observers may hear of
================  ==============================================================================
"""
