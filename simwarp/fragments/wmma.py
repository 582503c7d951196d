"""``wmma``: the maps of its operands, as the chips have them.

The PTX ISA leaves these maps open (section 9.7.14.4.1); they were found on an H200, by loads of matrices
whose elements say where they lie (``simwarp probe``). A matrix in rows and one in columns fill the registers
alike. The registers of f16 A and B are as many for all shapes, so the smaller matrices are held two or four
times. The accumulator of m8n32k16 is held as that of m32n8k16, transposed.
"""

from __future__ import annotations

from simwarp.fragments.table import read_forms, read_maps

# operand and extents | types | slot | lane | register
MAPS = read_maps("""
    a 16x16  | f16       | 2:c1  | 4:c2 8:r1  | 2:r8 2:c8 2:copy1
    a 8x16   | f16       | 2:c1  | 4:c2 8:r1  | 2:c8 4:copy1
    a 32x16  | f16       | 2:c1  | 4:c2 8:r1  | 2:r8 2:c8 2:r16
    a 16x16  | bf16      | 2:c1  | 4:c2 8:r1  | 2:r8 2:c8
    a 8x16   | bf16      | 2:c1  | 4:c2 8:r1  | 2:c8
    a 32x16  | bf16      | 2:c1  | 4:c2 8:r1  | 2:r8 2:c8 2:r16
    a 16x8   | tf32      |       | 4:c1 8:r1  | 2:r8 2:c4
    a 8x4    | f64       |       | 4:c1 8:r1  |
    a 16x16  | s8 u8     | 4:c1  | 4:c4 8:r1  | 2:r8
    a 8x16   | s8 u8     | 4:c1  | 4:c4 8:r1  |
    a 32x16  | s8 u8     | 4:c1  | 4:c4 8:r1  | 4:r8
    a 8x32   | s4 u4     | 8:c1  | 4:c8 8:r1  |
    a 8x128  | b1        | 32:c1 | 4:c32 8:r1 |

    b 16x16  | f16       | 2:r1  | 4:r2 8:c1  | 2:r8 2:c8 2:copy1
    b 16x32  | f16       | 2:r1  | 4:r2 8:c1  | 2:c8 2:r8 2:c16
    b 16x8   | f16       | 2:r1  | 4:r2 8:c1  | 2:r8 4:copy1
    b 16x16  | bf16      | 2:r1  | 4:r2 8:c1  | 2:r8 2:c8
    b 16x32  | bf16      | 2:r1  | 4:r2 8:c1  | 2:c8 2:r8 2:c16
    b 16x8   | bf16      | 2:r1  | 4:r2 8:c1  | 2:r8
    b 8x16   | tf32      |       | 4:r1 8:c1  | 2:r4 2:c8
    b 4x8    | f64       |       | 4:r1 8:c1  |
    b 16x16  | s8 u8     | 4:r1  | 4:r4 8:c1  | 2:c8
    b 16x32  | s8 u8     | 4:r1  | 4:r4 8:c1  | 4:c8
    b 16x8   | s8 u8     | 4:r1  | 4:r4 8:c1  |
    b 32x8   | s4 u4     | 8:r1  | 4:r8 8:c1  |
    b 128x8  | b1        | 32:r1 | 4:r32 8:c1 |

    c 16x16  | f16       | 2:c1  | 4:c2 8:r1  | 2:r8 2:c8
    c 8x32   | f16       | 2:r1  | 4:r2 8:c1  | 4:c8
    c 32x8   | f16       | 2:c1  | 4:c2 8:r1  | 4:r8
    c 16x16  | f32 s32   |       | 4:c2 8:r1  | 2:c1 2:r8 2:c8
    c 8x32   | f32 s32   |       | 4:r2 8:c1  | 2:r1 4:c8
    c 32x8   | f32 s32   |       | 4:c2 8:r1  | 2:c1 4:r8
    c 8x8    | s32 f64   |       | 4:c2 8:r1  | 2:c1
""")

_SHAPES = "<m16n16k16|m8n32k16|m32n8k16>"

FORMS = read_forms(f"""
    9.7.14.4.3  wmma.load.<a|b>.sync.aligned.<row|col>.{_SHAPES}.<f16|bf16|s8|u8>
    9.7.14.4.3  wmma.load.<a|b>.sync.aligned.<row|col>.m16n16k8.tf32
    9.7.14.4.3  wmma.load.<a|b>.sync.aligned.<row|col>.m8n8k4.f64
    9.7.14.4.3  wmma.load.<a.sync.aligned.row|b.sync.aligned.col>.m8n8k32.<s4|u4>
    9.7.14.4.3  wmma.load.<a.sync.aligned.row|b.sync.aligned.col>.m8n8k128.b1
    9.7.14.4.3  wmma.load.c.sync.aligned.<row|col>.{_SHAPES}.<f16|f32|s32>
    9.7.14.4.3  wmma.load.c.sync.aligned.<row|col>.<m16n16k8.f32|m8n8k4.f64|m8n8k32.s32|m8n8k128.s32>
    9.7.14.4.4  wmma.store.d.sync.aligned.<row|col>.{_SHAPES}.<f16|f32|s32>
    9.7.14.4.4  wmma.store.d.sync.aligned.<row|col>.<m16n16k8.f32|m8n8k4.f64|m8n8k32.s32|m8n8k128.s32>
    9.7.14.4.5  wmma.mma.sync.aligned.<row|col>.<row|col>.{_SHAPES}.<f16|f32>.<f16|f32>
    9.7.14.4.5  wmma.mma.sync.aligned.<row|col>.<row|col>.{_SHAPES}.f32.bf16.bf16.f32
    9.7.14.4.5  wmma.mma.sync.aligned.<row|col>.<row|col>.m16n16k8.f32.tf32.tf32.f32
    9.7.14.4.5  wmma.mma.sync.aligned.<row|col>.<row|col>.m8n8k4.f64.f64.f64.f64
    9.7.14.4.5  wmma.mma.sync.aligned.<row|col>.<row|col>.{_SHAPES}.s32.s8.s8.s32<|.satfinite>
    9.7.14.4.5  wmma.mma.sync.aligned.<row|col>.<row|col>.{_SHAPES}.s32.u8.u8.s32<|.satfinite>
    9.7.14.4.5  wmma.mma.sync.aligned.row.col.m8n8k32.s32.<s4.s4|u4.u4>.s32<|.satfinite>
    9.7.14.4.5  wmma.mma.<and|xor>.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32
""")
