"""``mma.sync``: the maps of its operands (PTX ISA 9.0, sections 9.7.14.5.1 to 9.7.14.5.13).

``mma.m8n8k4`` with f16 is four products at once, each by eight lanes, a *quad pair*: lanes 4i to 4i + 3 and
4i + 16 to 4i + 19 hold matrix i. All others are one product by the whole warp.
"""

from __future__ import annotations

from simwarp.fragments.table import read_forms, read_maps

# operand and extents | types | slot | lane | register
MAPS = read_maps("""
    a 8x4 row | f16             | 2:c1  | 4:r1 4:m1 2:r4      | 2:c2
    a 8x4 col | f16             | 2:r1  | 4:c1 4:m1 2:r4      | 2:r2
    b 4x8 row | f16             | 2:c1  | 4:r1 4:m1 2:c4      | 2:c2
    b 4x8 col | f16             | 2:r1  | 4:c1 4:m1 2:c4      | 2:r2
    c 8x8     | f16             | 2:c1  | 4:r1 4:m1 2:r4      | 4:c2
    c 8x8     | f32             |       | 2:r1 2:c2 4:m1 2:r4 | 2:c1 2:r2 2:c4

    a 16x8    | f16 bf16        | 2:c1  | 4:c2 8:r1           | 2:r8
    a 16x16   | f16 bf16        | 2:c1  | 4:c2 8:r1           | 2:r8 2:c8
    a 16x4    | tf32            |       | 4:c1 8:r1           | 2:r8
    a 16x8    | tf32            |       | 4:c1 8:r1           | 2:r8 2:c4
    a 8x4     | f64             |       | 4:c1 8:r1           |
    a 16x4    | f64             |       | 4:c1 8:r1           | 2:r8
    a 16x8    | f64             |       | 4:c1 8:r1           | 2:r8 2:c4
    a 16x16   | f64             |       | 4:c1 8:r1           | 2:r8 4:c4
    a 8x16    | s8 u8           | 4:c1  | 4:c4 8:r1           |
    a 16x16   | s8 u8 e4m3 e5m2 | 4:c1  | 4:c4 8:r1           | 2:r8
    a 16x32   | s8 u8 e4m3 e5m2 | 4:c1  | 4:c4 8:r1           | 2:r8 2:c16
    a 8x32    | s4 u4           | 8:c1  | 4:c8 8:r1           |
    a 16x32   | s4 u4           | 8:c1  | 4:c8 8:r1           | 2:r8
    a 16x64   | s4 u4           | 8:c1  | 4:c8 8:r1           | 2:r8 2:c32
    a 8x128   | b1              | 32:c1 | 4:c32 8:r1          |
    a 16x128  | b1              | 32:c1 | 4:c32 8:r1          | 2:r8
    a 16x256  | b1              | 32:c1 | 4:c32 8:r1          | 2:r8 2:c128

    b 8x8     | f16 bf16        | 2:r1  | 4:r2 8:c1           |
    b 16x8    | f16 bf16        | 2:r1  | 4:r2 8:c1           | 2:r8
    b 4x8     | tf32            |       | 4:r1 8:c1           |
    b 8x8     | tf32            |       | 4:r1 8:c1           | 2:r4
    b 4x8     | f64             |       | 4:r1 8:c1           |
    b 8x8     | f64             |       | 4:r1 8:c1           | 2:r4
    b 16x8    | f64             |       | 4:r1 8:c1           | 4:r4
    b 16x8    | s8 u8 e4m3 e5m2 | 4:r1  | 4:r4 8:c1           |
    b 32x8    | s8 u8 e4m3 e5m2 | 4:r1  | 4:r4 8:c1           | 2:r16
    b 32x8    | s4 u4           | 8:r1  | 4:r8 8:c1           |
    b 64x8    | s4 u4           | 8:r1  | 4:r8 8:c1           | 2:r32
    b 128x8   | b1              | 32:r1 | 4:r32 8:c1          |
    b 256x8   | b1              | 32:r1 | 4:r32 8:c1          | 2:r128

    c 8x8     | s32 f64         |       | 4:c2 8:r1           | 2:c1
    c 16x8    | f32 s32 f64     |       | 4:c2 8:r1           | 2:c1 2:r8
    c 16x8    | f16             | 2:c1  | 4:c2 8:r1           | 2:r8
""")

FORMS = read_forms("""
    9.7.14.5.1   mma.sync.aligned.m8n8k4.<row|col>.<row|col>.<f16|f32>.f16.f16.f16
    9.7.14.5.1   mma.sync.aligned.m8n8k4.<row|col>.<row|col>.f32.f16.f16.f32
    9.7.14.5.7   mma.sync.aligned.m16n8k8.row.col.<f16.f16.f16.f16|f32.f16.f16.f32>
    9.7.14.5.8   mma.sync.aligned.m16n8k16.row.col.<f16.f16.f16.f16|f32.f16.f16.f32>
    9.7.14.5.7   mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32
    9.7.14.5.8   mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
    9.7.14.5.6   mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32
    9.7.14.5.7   mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32
    9.7.14.5.9   mma.sync.aligned.m16n8k16.row.col.f16.<e4m3|e5m2>.<e4m3|e5m2>.f16
    9.7.14.5.9   mma.sync.aligned.m16n8k16.row.col.f32.<e4m3|e5m2>.<e4m3|e5m2>.f32
    9.7.14.5.10  mma.sync.aligned.m16n8k32.row.col.f16.<e4m3|e5m2>.<e4m3|e5m2>.f16
    9.7.14.5.10  mma.sync.aligned.m16n8k32.row.col.f32.<e4m3|e5m2>.<e4m3|e5m2>.f32
    9.7.14.5.2   mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64
    9.7.14.5.6   mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64
    9.7.14.5.7   mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64
    9.7.14.5.8   mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64
    9.7.14.5.3   mma.sync.aligned.m8n8k16.row.col<|.satfinite>.s32.<s8|u8>.<s8|u8>.s32
    9.7.14.5.9   mma.sync.aligned.m16n8k16.row.col<|.satfinite>.s32.<s8|u8>.<s8|u8>.s32
    9.7.14.5.10  mma.sync.aligned.m16n8k32.row.col<|.satfinite>.s32.<s8|u8>.<s8|u8>.s32
    9.7.14.5.4   mma.sync.aligned.m8n8k32.row.col<|.satfinite>.s32.<s4|u4>.<s4|u4>.s32
    9.7.14.5.10  mma.sync.aligned.m16n8k32.row.col<|.satfinite>.s32.<s4|u4>.<s4|u4>.s32
    9.7.14.5.11  mma.sync.aligned.m16n8k64.row.col<|.satfinite>.s32.<s4|u4>.<s4|u4>.s32
    9.7.14.5.5   mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.<and|xor>.popc
    9.7.14.5.12  mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.<and|xor>.popc
    9.7.14.5.13  mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.<and|xor>.popc
""")
