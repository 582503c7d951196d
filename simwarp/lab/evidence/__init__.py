"""Evidence for each form of each PTX row: a kernel, its operands, and comparison with hardware results.

``simwarp record 'ptx-*'`` records a GPU's results; `tests/replay` compares the simulator with them:

    form ──`probe_of`──> kernel ──`operands_of`──> operands ──`ask`──> results ──`judge`──> verdict
"""

from __future__ import annotations
