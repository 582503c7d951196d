"""Bugs of asynchronous kernels of sm_90: copies, barriers in memory, proxies and clusters; see `bugs`."""

import numpy as np
from planted import Bug, Map, Unwritten

from simwarp.verify import Draw


def words(name, n, end=1000):
    """``n`` random integers from 0 to ``end`` - 1, uint32, from a seed per bug."""
    return (Draw(0, f"bugs {name}", 0).words(n) % np.uint64(end)).astype(np.uint32)


def bug(name, title, fault, blocks, threads, arguments, right, arch="sm_90", before="", **others):
    """A bug in the folder ``sm_90``; ``others`` are more classes of faults by schedule."""
    others = {schedule: set(kinds.split()) for schedule, kinds in others.items()}
    return Bug(name, title, fault, blocks, threads, arguments, right, "sm_90", arch, before, others)


def reversed_tiles(x, size):
    """The elements, each ``size`` of them back to front."""
    return x.reshape(-1, size)[:, ::-1].reshape(-1)


def pipeline_tail(blocks=2, tiles=3):
    x = words("pipeline_tail", blocks * tiles * 64)
    given = {"x": x, "y": Unwritten(x.shape), "tiles": np.uint32(tiles)}
    right = {"y": (x + np.roll(x.reshape(-1, 64), 1, axis=1).reshape(-1))}
    return bug("pipeline_tail", "pipeline's tail not waited for", "CopyInFlight", blocks, 64, given, right)


def unshared_wait(n=301, blocks=3):
    x = words("unshared_wait", n)
    given = {"x": x, "y": Unwritten((blocks * 128,)), "n": np.uint32(n)}
    right = {"y": reversed_tiles(np.pad(x, (0, blocks * 128 - n)), 128)}
    title = "copies waited for, no barrier"
    return bug("unshared_wait", title, "Race", blocks, 128, given, right, random="UninitialisedRead")


def early_refill(blocks=2, rows=7):
    x = words("early_refill", blocks * rows * 64)
    given = {"x": x, "sums": Unwritten((blocks * 64,)), "rows": np.uint32(rows)}
    right = {"sums": columns(x, blocks, 64)[:, ::-1].reshape(-1)}
    title = "stage refilled while it is read"
    return bug("early_refill", title, "Race", blocks, 64, given, right, random="CopyInFlight")


def columns(x, blocks, size):
    """(blocks, size): the sums of the columns of each block's matrix."""
    return x.reshape(blocks, -1, size).sum(axis=1, dtype=x.dtype)


def unawaited_phase(blocks=2):
    x = words("unawaited_phase", blocks * 128)
    given, right = {"x": x, "y": Unwritten(x.shape)}, {"y": reversed_tiles(x, 128)}
    title = "one thread waits for all"
    kinds = {"random": "UninitialisedRead Race"}
    return bug("unawaited_phase", title, "CopyInFlight", blocks, 128, given, right, **kinds)


def stale_parity(blocks=2, rows=4):
    x = words("stale_parity", blocks * rows * 128)
    given = {"x": x, "sums": Unwritten((blocks * 128,)), "rows": np.uint32(rows)}
    right = {"sums": columns(x, blocks, 128)[:, ::-1].reshape(-1)}
    kinds = {"stack": "Livelock", "random": "Livelock Race"}
    return bug("stale_parity", "wait for a stale parity", "CopyInFlight", blocks, 128, given, right, **kinds)


def too_few_bytes(blocks=2):
    x, y = words("too_few_bytes", blocks * 64), words("too_few_bytes, y", blocks * 64)
    given, right = {"x": x, "y": y, "products": Unwritten(x.shape)}, {"products": x * y}
    kinds = {"stack": "CopyInFlight", "random": "CopyInFlight Race UninitialisedRead"}
    return bug("too_few_bytes", "too few bytes expected", "BarrierFault", blocks, 64, given, right, **kinds)


def too_many_bytes(n=180, blocks=3):
    x = words("too_many_bytes", n)
    given = {"x": x, "y": Unwritten((n,)), "n": np.uint32(n)}
    right = {"y": np.concatenate([reversed_tiles(x[:128], 64), x[128:][::-1]])}
    return bug("too_many_bytes", "too many bytes expected", "Livelock", blocks, 64, given, right)


def missing_proxy_fence(blocks=2):
    x = words("missing_proxy_fence", blocks * 128)
    given, right = {"x": x, "squares": Unwritten(x.shape)}, {"squares": x * x}
    title = "missing proxy fence"
    return bug("missing_proxy_fence", title, "MissingProxyFence", blocks, 128, given, right)


def reused_tile(blocks=2, tiles=3):
    x = words("reused_tile", blocks * tiles * 64)
    given = {"x": x, "squares": Unwritten(x.shape), "tiles": np.uint32(tiles)}
    return bug(
        "reused_tile", "tile reused under its store", "CopyInFlight", blocks, 64, given, {"squares": x * x}
    )


def unread_exit(blocks=2):
    x = words("unread_exit", blocks * 128)
    given, right = {"x": x, "y": Unwritten(x.shape)}, {"y": x + 1}
    return bug("unread_exit", "exit under a store", "CopyInFlight", blocks, 128, given, right)


def cluster_exit(n=77):
    x = words("cluster_exit", n)
    given = {"x": x, "largest": Unwritten((n,)), "n": np.uint32(n)}
    right = {"largest": np.maximum(x, np.pad(x, (1, 0))[:-1])}
    return bug("cluster_exit", "exit of a block that others write to", "CopyInFlight", 4, 32, given, right)


def unattended_read(blocks=6):
    x = words("unattended_read", blocks * 32)
    given = {"x": x, "sums": Unwritten((blocks,))}
    right = {"sums": np.repeat(x.reshape(-1, 64).sum(axis=1, dtype=np.uint32), 2)}
    title = "exit of a block that others read"
    return bug("unattended_read", title, "BlockLifetime", blocks, 32, given, right)


def unseen_barrier(blocks=2):
    x = words("unseen_barrier", blocks * 64)
    given, right = {"x": x, "y": Unwritten(x.shape)}, {"y": reversed_tiles(x, 64)}
    title = "mbarrier used before it is there"
    return bug("unseen_barrier", title, "Race", blocks, 64, given, right, random="BarrierFault")


def few_releases(blocks=2, rows=5):
    x = words("few_releases", blocks * rows * 64)
    given = {"x": x, "sums": Unwritten((blocks * 64,)), "rows": np.uint32(rows)}
    right = {"sums": columns(x, blocks, 64).reshape(-1)}
    return bug("few_releases", "fewer arrivals than expected", "Livelock", blocks, 96, given, right)


def product(name, title, fault, count, halves=False, **size):
    """A bug in a kernel that multiplies 64 rows by 8 columns of int8, 32 ``count`` times, and adds up."""
    numbers = words(name, count * (64 + 8) * 32, 256).astype(np.uint8).view(np.int8)
    rows, others = numbers[: count * 64 * 32], numbers[count * 64 * 32 :]
    sums = np.zeros((64, 8), np.int32)
    for row, column in zip(rows.reshape(count, 64, 32), others.reshape(count, 8, 32), strict=True):
        sums = (sums >> 1 if halves else sums) + row.astype(np.int32) @ column.T.astype(np.int32)
    given = {
        "rows": rows.view(np.uint32),
        "columns": others.view(np.uint32),
        "sums": Unwritten((512,), np.int32),
    }
    return bug(name, title, fault, 1, 128, given | size, {"sums": sums.reshape(-1)}, "sm_90a")


def unfinished_product():
    return product("unfinished_product", "accumulators of a product in flight", "ProductInFlight", 3)


def unfenced_registers():
    title = "registers without a fence"
    return product("unfenced_registers", title, "ProductInFlight", 2, halves=True, steps=np.uint32(2))


def wrong_stride():
    return product("wrong_stride", "descriptor that leaves its tile", "OutOfBounds", 1)


def tile_under_product():
    title = "tile overwritten under a product"
    return product("tile_under_product", title, "CopyInFlight", 4, steps=np.uint32(4))


def wrong_swizzle():
    x = words("wrong_swizzle", 72 * 128, 256).astype(np.uint8).reshape(72, 128)
    rows, others = x[:64], x[64:]
    given = {"rows": Map(rows, (64, 128), 128), "columns": Map(others, (8, 128), 128)}
    given["sums"] = Unwritten((512,), np.int32)
    right = rows.view(np.int8).astype(np.int32) @ others.view(np.int8).astype(np.int32).T
    title = "swizzles of map and descriptor differ"
    return bug(
        "wrong_swizzle", title, "WrongDescriptor", 1, 128, given, {"sums": right.reshape(-1)}, "sm_90a"
    )


def unaligned_box(blocks=2):
    x = words("unaligned_box", 8 * blocks * 32).reshape(8, -1)
    given = {"map": Map(x, (8, 32)), "y": Unwritten((x.size,)), "width": np.uint32(blocks * 32)}
    right = {"y": x[::-1].reshape(-1)}
    return bug("unaligned_box", "box at 16 bytes, not 128", "Misaligned", blocks, 32, given, right)


def large_box(blocks=2):
    x = words("large_box", 16 * blocks * 32).reshape(16, -1)
    given = {"x": Map(x, (16, 32)), "sums": Unwritten((blocks * 32,))}
    right = {"sums": (x * np.arange(1, 17, dtype=np.uint32)[:, None]).sum(axis=0, dtype=np.uint32)}
    return bug("large_box", "box larger than its tile", "OutOfBounds", blocks, 32, given, right)


def too_many_registers(rows=2):
    x = words("too_many_registers", 2 * rows * 128)
    given = {"x": x, "sums": Unwritten((256,)), "rows": np.uint32(rows)}
    right = {"sums": columns(x, 2, 128).reshape(-1)}
    title = "more registers than the block has"
    return bug("too_many_registers", title, "RegisterShortage", 1, 384, given, right, "sm_90a")


def early_read(blocks=2):
    x = words("early_read", blocks * 64)
    given = {"x": x, "y": np.zeros(x.size, np.uint32), "sums": Unwritten(x.shape)}
    right = {"sums": np.repeat((x * x).reshape(-1, 4).sum(axis=1, dtype=np.uint32), 4)}
    title = "dependent launch that does not wait"
    return bug("early_read", title, "DependentAccess", blocks, 64, given, right, before="squares")


MAKERS = (
    pipeline_tail,
    unshared_wait,
    early_refill,
    unawaited_phase,
    stale_parity,
    too_few_bytes,
    too_many_bytes,
    missing_proxy_fence,
    reused_tile,
    unread_exit,
    cluster_exit,
    unattended_read,
    unseen_barrier,
    few_releases,
    unfinished_product,
    unfenced_registers,
    wrong_stride,
    wrong_swizzle,
    tile_under_product,
    unaligned_box,
    large_box,
    too_many_registers,
    early_read,
)
BUGS = {make.__name__: make() for make in MAKERS}
