"""``wgmma``: the accumulator, and A in registers, of a warpgroup (PTX ISA 9.7.15.5.1.1).

Each of the four warps holds 16 rows. B, and A where it is not in registers, lie in shared memory.
"""

from __future__ import annotations

from simwarp.fragments.table import read_forms, read_maps

# operand and extents | types | slot | lane | register
MAPS = read_maps("""
    d 64xn   | f16       | 2:c1  | 4:c2 8:r1 4:r16  | 2:r8 n/8:c8
    d 64xn   | f32 s32   |       | 4:c2 8:r1 4:r16  | 2:c1 2:r8 n/8:c8
    a 64x8   | tf32      |       | 4:c1 8:r1 4:r16  | 2:r8 2:c4
    a 64x16  | f16 bf16  | 2:c1  | 4:c2 8:r1 4:r16  | 2:r8 2:c8
    a 64x32  | e4m3 e5m2 | 4:c1  | 4:c4 8:r1 4:r16  | 2:r8 2:c16
    a 64x32  | s8 u8     | 4:c1  | 4:c4 8:r1 4:r16  | 2:r8 2:c16
    a 64x256 | b1        | 32:c1 | 4:c32 8:r1 4:r16 | 2:r8 2:c128
""")

_FLOAT = "|".join(str(n) for n in range(8, 257, 8))
_INTEGER = "|".join(str(n) for n in (8, 16, 24, *range(32, 225, 16)))
_BIT = f"{_INTEGER}|240|256"

FORMS = read_forms(f"""
    9.7.15.5.1.1.1  wgmma.mma_async.sync.aligned.m64n<{_FLOAT}>k16.<f16|f32>.f16.f16
    9.7.15.5.1.1.1  wgmma.mma_async.sync.aligned.m64n<{_FLOAT}>k16.f32.bf16.bf16
    9.7.15.5.1.1.2  wgmma.mma_async.sync.aligned.m64n<{_FLOAT}>k8.f32.tf32.tf32
    9.7.15.5.1.1.3  wgmma.mma_async.sync.aligned.m64n<{_FLOAT}>k32.<f16|f32>.<e4m3|e5m2>.<e4m3|e5m2>
    9.7.15.5.1.1.3  wgmma.mma_async.sync.aligned.m64n<{_INTEGER}>k32<|.satfinite>.s32.<s8|u8>.<s8|u8>
    9.7.15.5.1.1.4  wgmma.mma_async.sync.aligned.m64n<{_BIT}>k256.s32.b1.b1.and.popc
""")
