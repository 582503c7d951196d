"""``ldmatrix``, ``stmatrix`` and ``movmatrix``: 8 x 8 matrices of 16-bit elements.

Source: PTX ISA 9.0, sections 9.7.14.5.15 to 9.7.14.5.17.

Register i of ``ldmatrix`` and ``stmatrix`` holds matrix i, and lane 8 * i + row has the address of its row.
An element is counted where it lies in memory: ``.trans`` is a map of its own. Both operands of
``movmatrix.trans`` are held alike; d is the transpose of a.
"""

from __future__ import annotations

from simwarp.fragments.table import read_forms, read_maps

# operand and extents | types | slot | lane | register
MAPS = read_maps("""
    r 8x8 x1       | b16 | 2:c1 | 4:c2 8:r1 |
    r 8x8 x2       | b16 | 2:c1 | 4:c2 8:r1 | 2:m1
    r 8x8 x4       | b16 | 2:c1 | 4:c2 8:r1 | 4:m1
    r 8x8 x1 trans | b16 | 2:r1 | 4:r2 8:c1 |
    r 8x8 x2 trans | b16 | 2:r1 | 4:r2 8:c1 | 2:m1
    r 8x8 x4 trans | b16 | 2:r1 | 4:r2 8:c1 | 4:m1
    a 8x8          | b16 | 2:c1 | 4:c2 8:r1 |
    d 8x8          | b16 | 2:c1 | 4:c2 8:r1 |
""")

FORMS = read_forms("""
    9.7.14.5.15  ldmatrix.sync.aligned.m8n8.<x1|x2|x4><|.trans>.b16
    9.7.14.5.16  stmatrix.sync.aligned.m8n8.<x1|x2|x4><|.trans>.b16
    9.7.14.5.17  movmatrix.sync.aligned.m8n8.trans.b16
""")
