"""The evidence for each form of each PTX row: a kernel, operands, what hardware answered, the comparison.

``simwarp record 'ptx-*'`` asks a GPU; `tests/replay` holds the simulator against
what it said. The chain is

    form ──`probe_of`──> kernel ──`operands_of`──> operands ──`ask`──> results ──`judge`──> verdict
"""

from __future__ import annotations
