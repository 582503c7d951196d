"""Copies through tensor maps, in PTX and in CUDA C++: tiles, images, stores, reductions, fences, faults."""

import itertools

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from reference.devices import Im2col
from simwarp import tensormaps
from simwarp.faults import (
    BarrierFault,
    CopyInFlight,
    Misaligned,
    MissingProxyFence,
    OutOfBounds,
    PtxSyntaxError,
    Race,
    TensorMapFault,
    UninitialisedRead,
    UnsupportedInstruction,
)
from support.tensor_tiles import (
    DONE,
    EXPECT,
    FENCE,
    HEAD,
    INIT,
    THREADS,
    WAIT,
    dump,
    filled,
    launch,
    load,
    store,
    tile_of,
)

SCHEDULES = ["lowest pc", "stack", "random"]
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


def windowed(array, coordinates, box, fill=0, steps=None):
    """A box of an array that may leave it, outermost dimension first; ``coordinates`` innermost first."""
    found = np.full(box, fill, array.dtype)
    steps = steps or (1,) * array.ndim
    for at in np.ndindex(*box):
        where = tuple(c + i * s for c, i, s in zip(coordinates[::-1], at, steps, strict=True))
        if all(0 <= x < n for x, n in zip(where, array.shape, strict=True)):
            found[at] = array[where]
    return found


# ---- loads ------------------------------------------------------------------------------------------

BOXES = {
    1: ((301,), (64,), (248,)),
    2: ((23, 36), (8, 32), (-4, 18)),
    3: ((4, 9, 20), (3, 5, 16), (12, -2, 2)),
    4: ((3, 4, 5, 8), (2, 3, 2, 8), (0, 3, -1, 2)),
    5: ((2, 3, 2, 3, 8), (2, 2, 2, 2, 4), (4, 1, -1, 2, -1)),
}


@every_schedule
@pytest.mark.parametrize("rank", BOXES)
@pytest.mark.parametrize("target", ["shared::cluster", "shared::cta"])
def test_a_box_of_every_rank_arrives(schedule, rank, target):
    shape, box, at = BOXES[rank]
    device = simwarp.Device(schedule=schedule)
    array = np.arange(1, np.prod(shape) + 1, dtype=np.int32).reshape(shape)
    given = device.upload(array)
    size = int(np.prod(box)) * 4
    got = tile_of(device, device.tensor_map(given, box), load(at, target=target), size)
    assert got.view(np.int32).reshape(box).tolist() == windowed(array, at, box).tolist()


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_a_swizzled_tile_has_its_chunks_exchanged(swizzle):
    device = simwarp.Device()
    array = np.arange(40 * 128, dtype=np.uint16).reshape(40, 128)
    given, width = device.upload(array), swizzle // 2
    tensor_map = device.tensor_map(given, (16, width), swizzle=swizzle)
    got = tile_of(device, tensor_map, load((8, 3)), 16 * swizzle).view(np.uint16)
    for row, column in itertools.product(range(16), range(width)):
        at = row * swizzle + column * 2
        chunk = at // 16 ^ at // 128 % (swizzle // 16)
        assert got[(chunk * 16 + at % 16) // 2] == array[3 + row, 8 + column]


def test_element_strides_skip_rows():
    device = simwarp.Device()
    array = np.arange(40 * 16, dtype=np.uint8).reshape(40, 16)
    given = device.upload(array)
    tensor_map = device.tensor_map(given, (20, 16), element_strides=(3, 1))
    got = tile_of(device, tensor_map, load((0, 25)), 7 * 16)
    assert got.reshape(7, 16).tolist() == windowed(array, (0, 25), (7, 16), steps=(3, 1)).tolist()


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_outside_a_tensor_of_floats_there_may_be_nans(kind):
    device = simwarp.Device()
    size = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}[kind]
    array = np.ones((4, 64 // size), f"u{size}")
    given = device.upload(array)
    tensor_map = device.tensor_map(given, (4, 64 // size), data_type=kind, fill="nan")
    got = tile_of(device, tensor_map, load((0, 2)), 256).reshape(4, 64)
    assert (got[:2].view(array.dtype) == 1).all()
    nans = got[2:].reshape(-1)
    words = nans.view(np.uint32) if kind != "bfloat16" else nans.view(np.uint16).astype(np.uint32) << 16
    assert np.isnan(nans.view("f2") if kind == "float16" else words.view("f4")).all()


@every_schedule
@pytest.mark.parametrize("suffix", ["", ".L2::cache_hint"])
def test_a_tap_of_a_filter_loads_its_pixels(schedule, suffix):
    """The nine taps of a 3 × 3 filter over padded images of 6 × 5, 8 channels of 16."""
    device = simwarp.Device(schedule=schedule)
    images = np.arange(2 * 6 * 5 * 16, dtype=np.uint16).reshape(2, 6, 5, 16)
    given = device.upload(images)
    box = Im2col(lower=(-1, -1), upper=(-1, -1), channels=8, pixels=60)
    tensor_map = device.tensor_map(given, im2col=box)
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    for r, s in [(0, 0), (1, 2), (2, 1)]:
        more = f", {{{s}, {r}}}" + (", %rd5" if suffix else "")
        body = "mov.b64 %rd5, 0x12F0000000000000;\n" * bool(suffix)
        body += load((8, -1, -1, 0), ".im2col", more, suffix=suffix)
        got = tile_of(device, tensor_map, body, 960).view(np.uint16)
        assert got.tolist() == padded[:, r : r + 6, s : s + 5, 8:].reshape(-1).tolist()


@every_schedule
def test_a_multicast_reaches_the_blocks_of_its_mask(schedule):
    device = simwarp.Device(schedule=schedule)
    array = np.arange(64, dtype=np.uint32)
    given = device.upload(array)
    body = (
        "mov.u32 %r9, %cluster_ctarank; setp.eq.and.u32 %p4, %r9, 1, %p1; mov.b16 %h1, 13;\n"
        "setp.eq.u32 %p5, %r9, 1; @%p1 mbarrier.init.shared.b64 [bar], 1;\n"
        "fence.mbarrier_init.release.cluster; barrier.cluster.arrive; barrier.cluster.wait;\n"
        + EXPECT.format(256)
        + load((0,), more=", %h1", suffix=".multicast::cluster").replace("@%p1", "@%p4")
        + "@%p5 bra END;\n"
        + WAIT
        + "mul.lo.u32 %r10, %r9, 256; cvt.u64.u32 %rd6, %r10; add.u64 %out, %out, %rd6;\n"
        + dump(256)
        + "END: barrier.cluster.arrive; barrier.cluster.wait;\n"
    )
    out = device.upload(np.zeros((4, 64), np.uint32), "out")
    text = HEAD.replace("in) {", "in) .explicitcluster .reqnctapercluster 4 {") + body + "\nret; }"
    tensor_map = device.tensor_map(given, 64)
    device.load(text).kernel("k")(4, THREADS, tensor_map, out, given)
    assert out.download().tolist() == [array.tolist(), [0] * 64, array.tolist(), array.tolist()]


CUDA = """
#include <cuda/ptx>
struct alignas(64) CUtensorMap { char bytes[128]; };  // NVRTC cannot read cuda.h
namespace ptx = cuda::ptx;
extern "C" __global__ void twice(
    const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out) {
    __shared__ alignas(128) float tile[32][32];
    __shared__ alignas(8) unsigned long long bar;
    const int x = blockIdx.x * 32, y = blockIdx.y * 32;
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&bar, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        const int at[2] = {x, y};
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, &in, at, &bar);
        ptx::mbarrier_arrive_expect_tx(
            ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar, sizeof(tile));
    }
    __syncthreads();
    while (!ptx::mbarrier_try_wait_parity(&bar, 0)) {}
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) tile[i / 32][i % 32] *= 2;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        const int at[2] = {x, y};
        ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &out, at, tile);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
    }
}
"""


@pytest.fixture(scope="module")
def twice():
    return compile(CUDA, "twice.cu")


@pytest.mark.at_most(1)
@every_schedule
def test_cuda_copies_a_matrix_through_tiles(schedule, twice):
    device = simwarp.Device(schedule=schedule)
    array = np.random.default_rng(0).standard_normal((100, 52)).astype(np.float32)
    given, out = device.upload(array), device.upload(np.zeros_like(array))
    maps = device.tensor_map(given, (32, 32)), device.tensor_map(out, (32, 32))
    device.load(twice).kernel("twice")((2, 4), 64, *maps)
    assert (out.download() == 2 * array).all()


def test_the_bytes_of_a_copy_count_as_traffic():
    """Of a box of 8 × 32 words, 3 × 16 of which lie in the tensor."""
    device = simwarp.Device(observe="traffic")
    given, out = device.upload(np.zeros((23, 36), np.int32)), device.upload(np.zeros(256, np.uint32))
    body = INIT + EXPECT.format(1024) + load((20, 20)) + WAIT + dump(1024)
    launch(body, device.tensor_map(given, (8, 32)), out)
    assert device.report.traffic.loaded["global"] == 3 * 16 * 4


# ---- stores and reductions ----------------------------------------------------------------------------


@every_schedule
@pytest.mark.parametrize("rank", BOXES)
def test_a_store_leaves_out_what_is_outside(schedule, rank):
    shape, box, at = BOXES[rank]
    at = tuple(max(c, 0) for c in at)
    device = simwarp.Device(schedule=schedule)
    tile = np.arange(1, np.prod(box) + 1, dtype=np.int32).reshape(box)
    shape = (*shape[:-1], shape[-1] // 4 * 4)
    target = device.upload(np.zeros(shape, np.int32), "target")
    body = filled(tile.nbytes) + store(at) + DONE
    launch(body, device.tensor_map(target, box), target, device.upload(tile))
    wanted = np.zeros(shape, np.int32)
    for index in np.ndindex(*box):
        where = tuple(c + i for c, i in zip(at[::-1], index, strict=True))
        if all(x < n for x, n in zip(where, shape, strict=True)):
            wanted[where] = tile[index]
    assert target.download().tolist() == wanted.tolist()


@pytest.mark.parametrize("operation", ["", ".add"])
def test_a_store_fills_the_last_16_bytes_of_a_row(operation):
    """An H200 cuts a load at the tensor's edge, and a store or reduction at the next multiple of 16 bytes."""
    device = simwarp.Device()
    old = np.arange(1000, 1040, dtype=np.uint32).reshape(5, 8)
    tile = np.arange(1, 25, dtype=np.uint32).reshape(3, 8)
    target = device.upload(old)
    tensor = device.tensor_map(target, (3, 8), shape=(4, 5), strides=(32,))
    name = f"cp.{'reduce.' if operation else ''}async.bulk.tensor"
    launch(filled(96) + store((0, 2), "", name, operation) + DONE, tensor, target, device.upload(tile))
    wanted = old.copy()
    wanted[2:4] = tile[:2] + (old[2:4] if operation else 0)
    assert target.download().tolist() == wanted.tolist()


def test_a_store_that_fills_past_the_end_of_an_array_is_reported():
    device = simwarp.Device()
    target, tile = device.upload(np.zeros(6, np.uint16)), device.upload(np.ones(8, np.uint16))
    with pytest.raises(OutOfBounds):
        launch(filled(16) + store((0,)) + DONE, device.tensor_map(target, 8), target, tile)


def test_pixels_are_stored_without_offsets():
    device = simwarp.Device()
    tile = np.arange(1, 81, dtype=np.uint16).reshape(10, 8)
    target = device.upload(np.zeros((2, 3, 3, 8), np.uint16))
    box = Im2col(lower=(0, 1), upper=(-1, 0), channels=8, pixels=10)
    body = filled(160) + store((0, 2, 1, 0), ".im2col_no_offs") + DONE
    launch(body, device.tensor_map(target, im2col=box), target, device.upload(tile))
    wanted = np.zeros((2, 3, 3, 8), np.uint16)
    places = [(0, 1, 2), *((1, h, w) for h in (0, 1) for w in (1, 2))]
    for pixel, where in zip(tile, places, strict=False):
        wanted[where] = pixel
    assert target.download().tolist() == wanted.tolist()


REDUCED = {
    "add": ("uint32", "int32", "uint64", "float16", "float32"),
    "min": ("int32", "uint64", "int64", "float16"),
    "max": ("uint32", "int64", "float16"),
    "inc": ("uint32",),
    "dec": ("uint32",),
    "and": ("uint32", "uint64"),
    "or": ("int32",),
    "xor": ("int32",),
}
MEANING = {
    **{"add": np.add, "min": np.minimum, "max": np.maximum},
    **{"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor},
    "inc": lambda old, b: np.where(old >= b, 0, old + 1).astype(old.dtype),
    "dec": lambda old, b: np.where((old == 0) | (old > b), b, old - 1).astype(old.dtype),
}


@pytest.mark.parametrize(("operation", "kind"), [(o, k) for o, kinds in REDUCED.items() for k in kinds])
def test_a_reduction_combines_elements(operation, kind):
    device, rng = simwarp.Device(), np.random.default_rng(7)
    old, new = (rng.integers(0, 9, (20, 16)).astype(kind) for _ in range(2))
    target = device.upload(old)
    body = filled(new[:8].nbytes) + store((0, 15), "", "cp.reduce.async.bulk.tensor", f".{operation}") + DONE
    launch(body, device.tensor_map(target, (8, 16), swizzle=0), target, device.upload(new[:8]))
    wanted = old.copy()
    wanted[15:] = MEANING[operation](old[15:], new[:5])
    assert target.download().tolist() == wanted.tolist()


def test_a_reduction_keeps_subnormal_numbers():
    device, tiny = simwarp.Device(), np.full(64, 1e-40, np.float32)
    target = device.upload(tiny)
    body = filled(256) + store((0,), "", "cp.reduce.async.bulk.tensor", ".add") + DONE
    launch(body, device.tensor_map(target, 64), target, device.upload(tiny))
    assert target.download().tolist() == (tiny + tiny).tolist()


@every_schedule
def test_reductions_of_several_blocks_add_up(schedule):
    device = simwarp.Device(schedule=schedule)
    target, ones = device.upload(np.zeros(64, np.float32)), device.upload(np.ones(64, np.float32))
    body = filled(256) + store((0,), "", "cp.reduce.async.bulk.tensor", ".add") + DONE
    device.load(HEAD + body + "ret; }").kernel("k")(9, THREADS, device.tensor_map(target, 64), target, ones)
    assert (target.download() == 9).all()


# ---- maps in memory, and their changes ------------------------------------------------------------------

ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%map], 128;\n"
RELEASE = "fence.proxy.tensormap::generic.release.gpu;\n"
REPLACE = "tensormap.replace.tile."


def changed(device, before, changes, fences=ACQUIRE, space="global"):
    """The tile that arrives after changes of a map in global memory."""
    maps = device.upload(np.frombuffer(before, np.uint8), "maps")
    out = device.upload(np.zeros(256, np.uint8), "out")
    body = "mov.b64 %map, %in;\n" + "".join(
        f"@%p1 {REPLACE}{field}.{space}.b1024.b{64 if 'global_a' in field or 'stride' in field[:13] else 32} "
        f"[%map], {values};\n"
        for field, values in changes
    )
    body = body.replace("element_stride.global.b1024.b64", "element_stride.global.b1024.b32")
    body += "@%p1 " + RELEASE + "bar.sync 0;\n" + fences + INIT + EXPECT.format(256) + load((0, 2)) + WAIT
    launch(body + dump(256), bytes(128), out, maps)
    return out.download()


CHANGES = {
    "nothing": ({}, []),
    "box_dim": ({"box": (4, 8)}, [("box_dim", "1, 8"), ("box_dim", "0, 8")]),
    "global_dim": ({"shape": (9, 8)}, [("global_dim", "1, 20")]),
    "global_stride": (
        {"strides": [64], "shape": (9, 8)},
        [("global_stride", "0, 32"), ("global_dim", "1, 20")],
    ),
    "element_stride": ({"element_strides": (2, 1)}, [("element_stride", "1, 1")]),
    "elemtype": ({"data_type": "float32"}, [("elemtype", "2")]),
    "swizzle_mode": ({"swizzle": 32}, [("swizzle_mode", "0")]),
    "interleave_layout": ({}, [("interleave_layout", "0")]),
    "fill_mode": ({"data_type": "float32", "fill": "nan"}, [("fill_mode", "0"), ("elemtype", "2")]),
    "rank": ({"box": (1, 8, 8), "shape": (1, 20, 8)}, [("rank", "1")]),
}


@pytest.mark.parametrize("field", CHANGES)
def test_a_replaced_field_holds_behind_the_fences(field):
    options, changes = CHANGES[field]
    device = simwarp.Device()
    array = np.arange(20 * 8, dtype=np.uint32).reshape(20, 8)
    given = device.upload(array)
    before = device.tensor_map(given, **{"box": (8, 8), **options})
    got = changed(device, before, changes).view(np.uint32)
    assert got.reshape(8, 8).tolist() == array[2:10].tolist()


def test_a_replaced_address_holds_behind_the_fences():
    device = simwarp.Device()
    given, other = (device.upload(np.full((20, 8), k, np.uint32)) for k in (1, 2))
    before = device.tensor_map(given, (8, 8))
    assert set(changed(device, before, [("global_address", str(other.pointer))]).view(np.uint32)) == {2}


@pytest.mark.parametrize("fences", ["", ACQUIRE.replace("%map", "%map+128"), "fence.proxy.async;\n"])
def test_a_changed_map_needs_an_acquire(fences):
    device = simwarp.Device()
    given = device.upload(np.zeros((20, 8), np.uint32))
    before = device.tensor_map(given, (8, 8)) + device.tensor_map(given, (8, 8))
    with pytest.raises(MissingProxyFence, match="not acquired since") as caught:
        changed(device, before, [("box_dim", "1, 8")], fences)
    assert "tensormap.replace" in caught.value.other.text


def test_a_changed_map_needs_a_release():
    device = simwarp.Device()
    given = device.upload(np.zeros((20, 8), np.uint32))
    maps = device.upload(np.frombuffer(device.tensor_map(given, (8, 8)), np.uint8))
    body = f"mov.b64 %map, %in; @%p1 {REPLACE}rank.b1024.b32 [%map], 1; bar.sync 0;\n"
    body += ACQUIRE + INIT + EXPECT.format(256) + load((0, 2)) + WAIT
    with pytest.raises(MissingProxyFence, match="not released since"):
        launch(body, bytes(128), device.upload(np.zeros(256, np.uint8)), maps)


def test_a_map_in_shared_memory_is_published_by_a_warp():
    """The map comes from the parameter to shared memory, is changed there, and copied with a release."""
    device = simwarp.Device()
    array = np.arange(20 * 8, dtype=np.uint32).reshape(20, 8)
    given = device.upload(array)
    maps = device.allocate(128, np.uint8, "maps")
    body = """mov.u32 %r4, other; setp.lt.u32 %p4, %t, 32; mad.lo.u32 %r5, %t, 4, %r4;
mul.wide.u32 %rd5, %t, 4; add.u64 %rd6, %map, %rd5; @%p4 ld.u32 %r6, [%rd6]; @%p4 st.shared.u32 [%r5], %r6;
bar.sync 0; @%p1 tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r4], 1, 8; bar.sync 0;
@!%p4 bra OVER;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%in], [%r4], 128;
OVER: bar.sync 0; mov.b64 %map, %in;
"""
    body += ACQUIRE + INIT + EXPECT.format(256) + load((0, 2)) + WAIT + dump(256)
    out = device.upload(np.zeros(256, np.uint8))
    launch(body, device.tensor_map(given, (4, 8)), out, maps)
    assert out.download().view(np.uint32).reshape(8, 8).tolist() == array[2:10].tolist()
    assert tensormaps.decode(maps.download().tobytes()).box == (8, 8)
    with pytest.raises(BarrierFault, match="some lanes of a warp"):
        launch(
            body.replace("@!%p4 bra", "setp.lt.u32 %p4, %t, 31; @!%p4 bra"),
            device.tensor_map(given, (4, 8)),
            out,
            maps,
        )


def test_a_map_may_lie_in_constant_memory():
    device = simwarp.Device()
    array = np.arange(64, dtype=np.uint32)
    given, out = device.upload(array), device.upload(np.zeros(64, np.uint32))
    body = "mov.u64 %map, constant; cvta.const.u64 %map, %map;\n" + INIT + EXPECT.format(256) + load((0,))
    module = device.load(HEAD + body + WAIT + dump(256) + "ret; }")
    module.variable("constant").upload(np.frombuffer(device.tensor_map(given, 64), np.uint8))
    module.kernel("k")(1, THREADS, bytes(128), out, given)
    assert out.download().tolist() == array.tolist()


def test_hints_change_nothing():
    device = simwarp.Device()
    given, out = device.upload(np.ones(64, np.uint32)), device.upload(np.zeros(64, np.uint32))
    body = (
        "prefetch.tensormap [%map]; cp.async.bulk.prefetch.tensor.1d.L2.global.tile [%map, {0}];\n"
        "cp.async.bulk.prefetch.tensor.3d.L2.global.im2col [%map, {0, 0, 0}], {%h1};\n"
    )
    launch(body, device.tensor_map(given, 64), out)


# ---- faults ---------------------------------------------------------------------------------------------


def faulty(body, kind, words, options=None, device=None):
    device = device or simwarp.Device(instruction_budget=100_000)
    given = device.upload(np.zeros((20, 16), np.uint32), "matrix")
    tensor_map = device.tensor_map(given, **{"box": (4, 16), **(options or {})})
    out = device.upload(np.zeros(2048, np.uint8))
    with pytest.raises(kind, match=words) as caught:
        launch(INIT + EXPECT.format(256) + body + WAIT, tensor_map, out, given)
    return caught.value


GOOD = load((0, 0))
FAULTS = {
    "dimensions": (load((0, 0, 0)), TensorMapFault, "3 coordinates, a tensor map of 2", {}),
    "mode": (load((0, 0, 0), ".im2col", ", {%h1}"), TensorMapFault, "through a tiled tensor map", {}),
    "unwritten": (GOOD.replace("%map", "%out"), TensorMapFault, "not a tensor map of this simulator", {}),
    "in shared memory": (
        "cvt.u64.u32 %map, %tile; cvta.shared.u64 %map, %map;" + GOOD,
        TensorMapFault,
        "shared",
        {},
    ),
    "misaligned map": ("add.u64 %map, %map, 32;" + GOOD, Misaligned, "misaligned tensor map", {}),
    "beyond memory": ("add.u64 %map, %out, 1984;" + GOOD, OutOfBounds, "outside", {}),
    "tile alignment": ("add.u32 %tile, %tile, 64;" + GOOD, Misaligned, "misaligned in shared memory", {}),
    "tile leaves its variable": ("add.u32 %tile, %tile, 3968;" + GOOD, OutOfBounds, "outside tile", {}),
    "negative store": (FENCE + store((0, -1)), TensorMapFault, "must not be negative", {}),
    "reduction of a type": (
        FENCE + store((0, 0), "", "cp.reduce.async.bulk.tensor", ".inc"),
        TensorMapFault,
        "of elements of float32",
        {"data_type": "float32"},
    ),
    "bits of int64": (
        FENCE + store((0, 0), "", "cp.reduce.async.bulk.tensor", ".xor"),
        TensorMapFault,
        ".xor takes u32, s32, u64",
        {"data_type": "int64", "shape": (20, 8), "strides": (64,)},
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_copy_is_reported(name):
    body, kind, words, options = FAULTS[name]
    fault = faulty(body, kind, words, options)
    assert fault.place.lane == 0
    assert "bulk" in fault.place.text


def test_an_uninitialised_map_is_reported():
    device = simwarp.Device()
    maps = device.allocate(128, np.uint8, "maps")
    body = "mov.b64 %map, %in;\n" + INIT + EXPECT.format(256) + load((0, 0)) + WAIT
    with pytest.raises(UninitialisedRead):
        launch(body, bytes(128), device.upload(np.zeros(4, np.uint8)), maps)


def test_a_map_that_a_store_changed_is_reported():
    device = simwarp.Device()
    given = device.upload(np.zeros((20, 16), np.uint32))
    first, second = (device.tensor_map(given, (n, 16)) for n in (4, 8))
    maps = device.upload(np.frombuffer(first + second, np.uint8))
    copy = "".join(
        f"@%p1 ld.global.u64 %rd7, [%in+{at + 128}]; @%p1 st.global.u64 [%in+{at}], %rd7;\n"
        for at in range(0, 128, 8)
    )
    again = EXPECT.format(512) + load((0, 0)) + WAIT.replace("AGAIN", "MORE").replace("[bar], 0", "[bar], 1")
    body = "mov.b64 %map, %in;\n" + INIT + EXPECT.format(256) + load((0, 0)) + WAIT + copy
    out = device.upload(np.zeros(4, np.uint8))
    with pytest.raises(MissingProxyFence, match="overwritten since"):
        launch(body + again, bytes(128), out, maps)
    maps.upload(np.frombuffer(first + second, np.uint8))
    launch(body + RELEASE + ACQUIRE + again, bytes(128), out, maps)
    maps.upload(np.frombuffer(first + second, np.uint8))
    broken = body.replace(copy, "@%p1 st.global.u64 [%in+8], %rd1;\nmov.b64 %rd1, 0;\n")
    broken = broken.replace("mov.b64 %map, %in;", "mov.b64 %map, %in; mov.b64 %rd1, 7;", 1)
    with pytest.raises(TensorMapFault, match="overwritten"):
        launch(broken + ACQUIRE + again, bytes(128), out, maps)


def test_an_access_before_the_wait_is_reported():
    device = simwarp.Device()
    given = device.upload(np.zeros((20, 16), np.uint32))
    out = device.upload(np.zeros(256, np.uint8))
    with pytest.raises(CopyInFlight):
        launch(INIT + EXPECT.format(256) + load((0, 0)) + dump(256), device.tensor_map(given, (4, 16)), out)


def test_a_store_of_what_threads_wrote_needs_a_proxy_fence():
    device = simwarp.Device()
    target = device.upload(np.zeros(64, np.uint32))
    body = filled(256).replace(FENCE, "bar.sync 0;\n") + store((0,)) + DONE
    with pytest.raises(MissingProxyFence):
        launch(body, device.tensor_map(target, 64), target, device.upload(np.ones(64, np.uint32)))


@every_schedule
def test_a_load_of_what_the_kernel_wrote_needs_a_proxy_fence_and_order(schedule):
    device = simwarp.Device(schedule=schedule)
    given, out = device.upload(np.zeros(64, np.uint32)), device.upload(np.zeros(64, np.uint32))
    tensor_map = device.tensor_map(given, 64)

    def copied(written):
        body = INIT + EXPECT.format(256) + written + load((0,)) + WAIT + dump(256)
        launch(body, tensor_map, out, given)
        return out.download()

    stored = "@%p1 st.global.u32 [%in+8], 77;\n"
    assert copied(stored + "fence.proxy.async;\n")[2] == 77
    with pytest.raises(MissingProxyFence):
        copied(stored)
    others = "setp.eq.u32 %p6, %t, 70; @%p6 st.global.u32 [%in+8], 77; fence.proxy.async;\n"
    assert copied(others + "bar.sync 0;\n")[2] == 77
    with pytest.raises(Race):
        copied(others)


def test_a_store_that_others_read_needs_an_order():
    device = simwarp.Device()
    target = device.upload(np.zeros(64, np.uint32))
    body = filled(256) + store((0,)) + DONE
    late = "setp.eq.u32 %p6, %t, 70; @%p6 ld.global.u32 %r3, [%out+8]; @%p6 st.global.u32 [%out+8], %r3;\n"
    ones = device.upload(np.ones(64, np.uint32))
    launch(body + late, device.tensor_map(target, 64), target, ones)
    with pytest.raises((Race, CopyInFlight)):
        launch(filled(256) + store((0,)) + late, device.tensor_map(target, 64), target, ones)


@pytest.mark.parametrize(
    ("kind", "value", "bad"),
    [
        ("tfloat32", 1.0, False),
        ("tfloat32", 1.1, True),
        ("float32_ftz", 1.1, False),
        ("float32_ftz", 1e-39, True),
        ("tfloat32_ftz", 0.0, False),
    ],
)
def test_a_value_that_the_data_type_cannot_hold_is_reported(kind, value, bad):
    device = simwarp.Device()
    given = device.upload(np.full(64, value, np.float32))
    tensor_map = device.tensor_map(given, 64, data_type=kind)
    if bad:
        with pytest.raises(TensorMapFault, match="cannot hold it"):
            tile_of(device, tensor_map, load((0,)), 256)
    else:
        assert (tile_of(device, tensor_map, load((0,)), 256).view(np.float32) == np.float32(value)).all()


def test_collected_faults_let_the_run_go_on():
    device = simwarp.Device(checks="report")
    given = device.upload(np.zeros((20, 16), np.uint32))
    out = device.upload(np.zeros(256, np.uint8))
    body = INIT + load((0, 0, 0)) + "add.u32 %tile, %tile, 64;\n" + load((0, 0)) + store((0, -1))
    launch(body, device.tensor_map(given, (4, 16)), out)
    assert [type(fault) for fault in device.faults] == [TensorMapFault, Misaligned, TensorMapFault]


NEWER = {
    "gather": "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes",
    "wide im2col": "cp.async.bulk.tensor.3d.shared::cta.global.im2col::w.mbarrier::complete_tx::bytes",
    "scatter": "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group",
    "pairs of blocks": "cp.async.bulk.tensor.1d.shared::cta.global.mbarrier::complete_tx::bytes.cta_group::2",
    "atoms": "tensormap.replace.tile.swizzle_atomicity.global.b1024.b32",
}


@pytest.mark.parametrize("name", NEWER)
def test_forms_of_sm_100_are_refused_by_name(name):
    with pytest.raises(UnsupportedInstruction, match=r"(?s)has \.\w+.*needs sm_100"):
        simwarp.Device().load(HEAD + NEWER[name] + " [%tile], [%map, {0, 0}], [%bar]; ret; }")


@pytest.mark.parametrize(
    "text",
    [
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {0}], [%tile];",
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map], [%tile];",
        "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%map, 0], [%tile];",
        "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%map+64, {0}], [%tile];",
        "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [constant, {0}], [%tile];",
        "cp.async.bulk.prefetch.tensor.3d.L2.global.im2col [%map, {0, 0, 0}], {1, 1};",
        "cp.async.bulk.prefetch.tensor.3d.L2.global.im2col [%map, {0, 0, 0}], 1;",
        "fence.proxy.tensormap::generic.acquire.gpu [%map], 64;",
    ],
)
def test_what_ptxas_refuses_is_refused(text):
    with pytest.raises(PtxSyntaxError):
        simwarp.Device().load(HEAD + text + " ret; }")
