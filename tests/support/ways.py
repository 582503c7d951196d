"""Ways to touch memory in a few PTX lines, and kernels that make each mistake that a check looks for.

An `Access` reads or writes the bytes at ``%rd1``; `MISTAKES` puts one mistake around it. Memory is
initialised before, unless the mistake is to read it uninitialised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import simwarp
from simwarp.faults import (
    CopyInFlight,
    DependentAccess,
    KernelFault,
    Misaligned,
    MissingProxyFence,
    OutOfBounds,
    Race,
    StaleRead,
    UninitialisedRead,
    UninitialisedRegister,
    UseAfterFree,
)
from support import small_kernels as small

CELLS = """.const .align 16 .b8 known[1024] = {1, 2, 3, 4};
.shared .align 1024 .b8 cells[1024];
.shared .align 1024 .b8 others[1024];
.shared .align 8 .b64 bar;
"""
LOCAL = ".local .align 16 .b8 mine[1024];\n"
FILL = """st.local.v4.u32 [mine], {%r1, %r1, %r1, %r1}; st.local.v4.u32 [mine+64], {%r1, %r1, %r1, %r1};
mov.u64 %rd1, cells; mul.wide.u32 %rd2, %r1, 16; add.u64 %rd1, %rd1, %rd2;
st.shared.v4.u32 [%rd1], {%r1, %r1, %r1, %r1};
"""
READY = """setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [bar], 1;
mov.u32 %r2, 0; mov.u32 %r3, 9; mov.u32 %r8, 8;
mov.u64 %rd6, others; mul.wide.u32 %rd2, %r1, 16; add.u64 %rd2, %rd6, %rd2;
st.shared.v4.u32 [%rd2], {%r1, %r1, %r1, %r1};
fence.proxy.async; bar.sync 0;
"""
"""Thread 0 makes the mbarrier; ``%rd6`` are 1024 bytes of shared memory beside the cells."""
WHO = {
    "thread": "setp.ne.u32 %p4, %r1, {};\n",
    "warp": "shr.u32 %r9, %r1, 5; setp.ne.u32 %p4, %r9, {};\n",
}
WAIT_ALL = "cp.async.wait_all;\n"
COMMITTED = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\n"
TO_SHARED = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
TO_GLOBAL = "cp.async.bulk.global.shared::cta.bulk_group"
REDUCE = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32"
ROW = "and.b32 %r7, %lane, 7; mad.wide.u32 %rd1, %r7, 16, %rd1;\n"
WMMA = "sync.aligned.row.m8n8k128"
GENERIC = "cvta.shared.u64 %rd1, %rd1;\n"
REMOTE = "mapa.shared::cluster.u64 %rd1, %rd1, 0;\n"
SEND = "shared::cluster.mbarrier::complete_tx::bytes"
BASES = {"global": "%in", "shared": "cells", "const": "known", "local": "mine", "param": "out"}
SHARABLE = ("global", "shared")


@dataclass(frozen=True)
class Access:
    """One way to read or write ``width`` bytes at ``%rd1``, in a space, by one thread or a whole warp."""

    space: str
    kind: str
    ptx: str
    width: int = 4
    who: str = "thread"
    proxy: str = "generic"


def both(space: str, read: str, write: str, width: int = 4, who: str = "thread") -> tuple[Access, Access]:
    return Access(space, "read", read, width, who), Access(space, "write", write, width, who)


def scalar(space: str, modifiers: str = "", of_stores: str | None = None) -> tuple[Access, Access]:
    stores = modifiers if of_stores is None else of_stores
    return both(space, f"ld{modifiers}.{space}.u32 %r2, [%rd1];\n", f"st{stores}.{space}.u32 [%rd1], %r3;\n")


def vector(space: str) -> tuple[Access, Access]:
    read, write = "{%r2, %r4, %r5, %r6}, [%rd1]", "[%rd1], {%r3, %r3, %r3, %r3}"
    return both(space, f"ld.{space}.v4.u32 {read};\n", f"st.{space}.v4.u32 {write};\n", 16)


def update(space: str) -> tuple[Access, Access]:
    return both(space, f"atom.{space}.add.u32 %r2, [%rd1], 1;\n", f"red.{space}.add.u32 [%rd1], 1;\n")


def fragment(space: str) -> tuple[Access, Access]:
    read, write = "{%r2, %r4}, [%rd1], 8", "[%rd1], {%r3, %r3}, 8"
    return both(
        space,
        f"wmma.load.c.{WMMA}.{space}.s32 {read};\n",
        f"wmma.store.d.{WMMA}.{space}.s32 {write};\n",
        4,
        "warp",
    )


def counted(target: str, source: str) -> str:
    """A bulk copy that the mbarrier counts, and the wait for it."""
    return expected(16, f"{TO_SHARED} [{target}], [{source}], 16, [bar];\n")


def expected(size: int, copy: str) -> str:
    """A copy, whose ``size`` bytes the mbarrier expects, and the wait for it."""
    return (
        f"mbarrier.arrive.expect_tx.shared.b64 %rd8, [bar], {size};\n{copy}"
        "AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra AGAIN;\n"
    )


PLAIN = {(access.space, access.kind): access for access in (*scalar("global"), *scalar("shared"))}
WAYS: dict[str, tuple[Access, ...]] = {
    "`ld`, `st`": tuple(PLAIN.values()),
    "vectors": (*vector("global"), *vector("shared")),
    "generic addresses": (
        *both("global", "ld.u32 %r2, [%rd1];\n", "st.u32 [%rd1], %r3;\n"),
        *both("shared", GENERIC + "ld.u32 %r2, [%rd1];\n", GENERIC + "st.u32 [%rd1], %r3;\n"),
    ),
    "`.volatile`": (*scalar("global", ".volatile"), *scalar("shared", ".volatile")),
    "`.relaxed`, `.acquire`, `.release`": (
        *scalar("global", ".relaxed.gpu"),
        *scalar("shared", ".acquire.cta", ".release.cta"),
    ),
    "`atom`, `red`": (*update("global"), *update("shared")),
    "`ld.global.nc`": (Access("global", "read", "ld.global.nc.u32 %r2, [%rd1];\n"),),
    "`ldmatrix`, `stmatrix`": both(
        "shared",
        ROW + "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%rd1];\n",
        ROW + "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%rd1], {%r3};\n",
        16,
        "warp",
    ),
    "`wmma.load`, `wmma.store`": (*fragment("global"), *fragment("shared")),
    "`cp.async`": (
        Access("global", "read", f"cp.async.ca.shared.global [%rd6], [%rd1], 4; {WAIT_ALL}"),
        Access("shared", "write", f"cp.async.ca.shared.global [%rd1], [%out], 4; {WAIT_ALL}"),
    ),
    "`cp.async.bulk`": (
        Access("global", "read", counted("%rd6", "%rd1"), 16, proxy="async"),
        Access("shared", "write", counted("%rd1", "%out"), 16, proxy="async"),
        Access("shared", "read", f"{TO_GLOBAL} [%out], [%rd1], 16; {COMMITTED}", 16, proxy="async"),
        Access("global", "write", f"{TO_GLOBAL} [%rd1], [%rd6], 16; {COMMITTED}", 16, proxy="async"),
    ),
    "`cp.reduce.async.bulk`": (
        Access("shared", "read", f"{REDUCE} [%out], [%rd1], 16; {COMMITTED}", 16, proxy="async"),
        Access("global", "write", f"{REDUCE} [%rd1], [%rd6], 16; {COMMITTED}", 16, proxy="async"),
    ),
    "another block's shared memory": (
        *both(
            "shared",
            REMOTE + "ld.shared::cluster.u32 %r2, [%rd1];\n",
            REMOTE + "st.shared::cluster.u32 [%rd1], %r3;\n",
        ),
        Access("shared", "write", REMOTE + "atom.shared::cluster.add.u32 %r2, [%rd1], 1;\n"),
    ),
    "`st.async`, `red.async`": (
        Access(
            "shared",
            "write",
            REMOTE + expected(4, f"st.async.{SEND}.u32 [%rd1], %r3, [bar];\n"),
            4,
            proxy="async",
        ),
        Access(
            "shared",
            "write",
            REMOTE + expected(4, f"red.async.relaxed.cluster.{SEND}.add.u32 [%rd1], %r3, [bar];\n"),
            4,
            proxy="async",
        ),
    ),
    "`ld.const`": (Access("const", "read", "ld.const.u32 %r2, [%rd1];\n"),),
    "`ld.param`": (Access("param", "read", "ld.param.u32 %r2, [%rd1];\n"),),
    "`ld.local`, `st.local`": scalar("local"),
}
"""Row of the table in docs/checks.md → the accesses that it stands for."""

# ---- kernels --------------------------------------------------------------------------------------------


def by(who: str, ptx: str, thread: int = 0) -> str:
    """PTX that one thread, or its warp, executes."""
    first = thread if who == "thread" else thread // 32
    return f"{{ {WHO[who].format(first)}@%p4 bra END;\n{ptx}END: }}\n"


def one(access: Access, offset: int = 0, extra: str = "", thread: int = 0) -> str:
    """One thread or warp executes the access at an offset of the array or of the cells."""
    at = f"mov.u64 %rd1, {BASES[access.space]}; add.u64 %rd1, %rd1, {offset};\n{extra}"
    return by(access.who, at + access.ptx, thread)


def other(access: Access, kind: str, thread: int) -> str:
    """A plain access of the same bytes by one thread."""
    ptx = PLAIN[access.space, kind].ptx.replace("%r3", "%r8")
    return one(Access(access.space, kind, ptx), thread=thread)


class Launch:
    """A device with the arrays of a kernel: ``out``, and ``in`` of 4096 bytes."""

    def __init__(self, schedule: str = "lowest pc", seed: int = 0, filled: bool = True) -> None:
        self.device = simwarp.Device(schedule=schedule, seed=seed, instruction_budget=100_000)
        self.out = self.device.upload(np.zeros(1024, np.uint32), "out")
        self.given = self.device.allocate((1024,), np.uint32, "in")
        self.filled = filled
        if filled:
            self.given.upload(np.arange(1, 1025, dtype=np.uint32))

    def load(self, body: str) -> Callable[..., None]:
        text = LOCAL + (FILL if self.filled else "") + READY + body + small.STORE
        return self.device.load(small.text(text, CELLS, ".reqnctapercluster 1, 1, 1")).kernel("k")

    def run(self, body: str, given: object = None) -> None:
        self.load(body)(1, 64, self.out, self.given if given is None else given)


def run(body: str, **options: object) -> None:
    Launch(**options).run(body)  # pyright: ignore[reportArgumentType]


# ---- mistakes, each with the right kernel beside it -------------------------------------------------------


def _bounds(access: Access, right: bool, **options: object) -> None:
    run(one(access, 0 if right else 1 << 20), **options)


def _alignment(access: Access, right: bool, **options: object) -> None:
    aligned = 0 if access.space == "param" else 64
    run(one(access, aligned + (0 if right else 2 if access.width <= 4 else 4)), **options)


def _registers(access: Access, right: bool, **options: object) -> None:
    run(one(access, 0, "" if right else "add.u64 %rd1, %rd1, %rd7;\n"), **options)


def _freed(access: Access, right: bool, **options: object) -> None:
    launch = Launch(**options)  # pyright: ignore[reportArgumentType]
    pointer = launch.given.pointer
    if not right:
        launch.given.free()
    launch.run(one(access), np.uint64(pointer))


def _uninitialised(access: Access, right: bool, **options: object) -> None:
    used = ""  # what a copy delivers is used behind it
    if "[%rd6]" in access.ptx:
        used = by("thread", "ld.shared.u32 %r2, [%rd6];\n")
    elif "[%out]" in access.ptx:
        used = by("thread", "ld.global.u32 %r2, [%out];\n")
    run(one(access) + used, filled=right, **options)


def _races(access: Access, right: bool, **options: object) -> None:
    between = "fence.proxy.async; bar.sync 0;\n" if right else ""
    for kind in ("read", "write") if access.kind == "write" else ("write",):
        if right and "nc" in access.ptx:
            continue  # no order makes it right
        for body in (
            one(access) + between + other(access, kind, 32),
            other(access, kind, 32) + between + one(access),
        ):
            run(body, **options)


def _copies(access: Access, right: bool, **options: object) -> None:
    """A copy into the cells, or from the array, is in flight."""
    target, source = ("%rd1", "%in") if access.space == "shared" else ("%rd6", "%rd1")
    fence = "fence.proxy.async;\n" if access.proxy == "async" else ""
    copy = f"cp.async.ca.shared.global [{target}], [{source}], 4; cp.async.commit_group;\n"
    begin = one(Access(access.space, "read", copy + (WAIT_ALL + fence if right else "")))
    run(begin + one(access) + by("thread", WAIT_ALL), **options)


def _proxies(access: Access, right: bool, **options: object) -> None:
    """A copy reads what an ordinary instruction wrote."""
    fence = "fence.proxy.async;\n" * right + "bar.sync 0;\n"
    copy = Access("shared", "read", f"{TO_GLOBAL} [%out], [%rd1], 16; {COMMITTED}", 16)
    if access.kind == "write":
        run(one(access) + fence + one(copy), **options)
    else:
        run(other(access, "write", 0) + fence + one(access), **options)


def _dependents(access: Access, right: bool, **options: object) -> None:
    launch = Launch(**options)  # pyright: ignore[reportArgumentType]
    wait = "griddepcontrol.wait;\n" if right else ""
    offset = 512 if right and "nc" in access.ptx else 0
    first = launch.load(other(access, "write", 0) + "griddepcontrol.launch_dependents;\n")
    then = launch.load(wait + one(access, offset))
    first(1, 64, launch.out, launch.given)
    then(1, 64, launch.out, launch.given, dependent=True)


def _is_global(access: Access) -> bool:
    return access.space == "global"


def _is_sharable(access: Access) -> bool:
    return access.space in SHARABLE


def _is_touched_by_copies(access: Access) -> bool:
    return access.space == "shared" or (access.space == "global" and access.kind == "write")


def _begins_unwritten(access: Access) -> bool:
    return access.kind == "read" and access.space in (*SHARABLE, "local")


def _meets_the_other_proxy(access: Access) -> bool:
    write = access.kind == "write" and access.space == "shared" and access.proxy == "generic"
    return write or (access.kind == "read" and access.proxy == "async")


def _always(access: Access) -> bool:
    return True


Run = Callable[..., None]
MISTAKES: dict[str, tuple[Run, tuple[type[KernelFault], ...], Callable[[Access], bool]]] = {
    "bounds": (_bounds, (OutOfBounds,), _always),
    "alignment": (_alignment, (Misaligned,), _always),
    "freed": (_freed, (UseAfterFree,), _is_global),
    "registers": (_registers, (UninitialisedRegister,), _always),
    "uninitialised": (_uninitialised, (UninitialisedRead,), _begins_unwritten),
    "races": (_races, (Race, StaleRead, CopyInFlight, MissingProxyFence), _is_sharable),
    "copies": (_copies, (CopyInFlight, MissingProxyFence), _is_touched_by_copies),
    "proxies": (_proxies, (MissingProxyFence,), _meets_the_other_proxy),
    "dependents": (_dependents, (DependentAccess,), _is_global),
}
"""Check → a run with the mistake, or right; the faults that name it; the accesses that can make it."""
