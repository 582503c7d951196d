"""The barrier of a grid, for compilers that call CUDA's device runtime: ``libcudadevrt.a`` is machine code.

Source: ``cooperative_groups::details::sync_grids``, whose C++ is in CUDA's headers: the word behind the
workspace's first counts arrivals, and the top bit flips when the last block has come.
"""

from __future__ import annotations

import re

_DECLARED = re.compile(r"\.extern\s+\.func\s[^;]*?\bcudaCG(?:GetIntrinsicHandle|Synchronize)\b[^;]*;")
_LIBRARY = """
.func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
    .reg .b32 %low, %high;
    .reg .b64 %address;
    mov.u32 %high, %envreg1;
    mov.u32 %low, %envreg2;
    mov.b64 %address, {%low, %high};
    st.param.b64 [handle], %address;
    ret;
}
.func (.param .b32 result) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)
{
    .reg .pred %not_first, %ours, %waits;
    .reg .b32 %x, %y, %z, %n, %count, %old, %now;
    .reg .b64 %address;
    ld.param.b64 %address, [handle];
    setp.eq.u64 %ours, %address, 0;
    @%ours trap;
    barrier.sync 0;
    mov.u32 %x, %tid.x;
    mov.u32 %y, %tid.y;
    mov.u32 %z, %tid.z;
    or.b32 %x, %x, %y;
    or.b32 %x, %x, %z;
    setp.ne.u32 %not_first, %x, 0;
    @%not_first bra ARRIVED;
    mov.u32 %x, %nctaid.x;
    mov.u32 %y, %nctaid.y;
    mov.u32 %z, %nctaid.z;
    mul.lo.u32 %n, %x, %y;
    mul.lo.u32 %n, %n, %z;
    mov.u32 %x, %ctaid.x;
    mov.u32 %y, %ctaid.y;
    mov.u32 %z, %ctaid.z;
    or.b32 %x, %x, %y;
    or.b32 %x, %x, %z;
    setp.eq.u32 %ours, %x, 0;
    sub.u32 %n, 0x80000001, %n;
    selp.u32 %count, %n, 1, %ours;
    atom.add.release.gpu.u32 %old, [%address+4], %count;
WAIT:
    ld.acquire.gpu.u32 %now, [%address+4];
    xor.b32 %now, %now, %old;
    setp.ge.s32 %waits, %now, 0;
    @%waits bra WAIT;
ARRIVED:
    barrier.sync 0;
    st.param.b32 [result], 0;
    ret;
}
"""


def is_device_runtime(image: bytes) -> bool:
    r"""True if an image is ``libcudadevrt.a``, which `with_grid_library` replaces.

    >>> is_device_runtime(b"!<arch>\ncuda_device_runtime.o/"), is_device_runtime(b"!<arch>\nother.o/")
    (True, False)
    """
    return image.startswith(b"!<arch>\n") and b"cuda_device_runtime.o" in image


def with_grid_library(text: str) -> str:
    """PTX in which the declarations of CUDA's device runtime functions are replaced by definitions.

    >>> declared = ".extern .func (.param .b32 r) cudaCGSynchronize(.param .b64 h, .param .b32 f);"
    >>> "atom.add.release" in with_grid_library(declared), with_grid_library(".visible .func f() { ret; }")
    (True, '.visible .func f() { ret; }')
    """
    declaration = _DECLARED.search(text)
    if declaration is None:
        return text
    return text[: declaration.start()] + _LIBRARY + _DECLARED.sub("", text[declaration.start() :])
