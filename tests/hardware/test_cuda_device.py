"""`gpu.CudaDevice` on a real GPU: behaviour that the simulator cannot replace."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import gpu
import reference
import simwarp
from gpu.bmm.packing import packing_plan
from gpu.bmm.schemes import SCHEMES
from gpu.compile import compile
from gpu.device import LaunchChain, LaunchPlan
from reference.devices import Im2col
from reference.errors import CaptureError, DtypeError, NotANumberError, ShapeError
from simwarp import tensormaps
from simwarp.faults import LaunchError
from support import tensor_tiles

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device():
    return gpu.CudaDevice()


def _matrix(rows, columns, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(dtype)


def test_default_device_is_the_gpu():
    a, b = _matrix(33, 70), _matrix(70, 9, seed=1)
    np.testing.assert_array_equal(gpu.bmm(a, b), reference.bmm(a, b))


LARGE = [(2048, 2048, 2048), (4099, 1031, 8191), (1, 70001, 3), (70001, 1, 65), (3, 5, 1000003)]


def _rule(dots, seed=0):
    """Thresholds equal to one dot product of each column, and alternating flips."""
    rng = np.random.default_rng(seed)
    rows, columns = dots.shape
    return dots[rng.integers(0, rows, columns), np.arange(columns)], rng.integers(0, 2, columns).astype(bool)


def _assert_bits(packed, dots, thresholds, flip, word, first="msb"):
    expected = reference.threshold(dots, thresholds, flip, word=word, first=first)
    words = packed.words if isinstance(packed.words, np.ndarray) else packed.words.download()
    assert (packed.shape, packed.word, packed.first) == (dots.shape, word, first)
    np.testing.assert_array_equal(words, expected.words)


@pytest.mark.parametrize("sizes", LARGE)
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_large_products_equal_the_reference(device, sizes, transpose_a, transpose_b):
    m, n, k = sizes
    a = _matrix(*((k, m) if transpose_a else (m, k)))
    b = _matrix(*((n, k) if transpose_b else (k, n)), seed=1)
    options = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    dots = reference.bmm(a, b, **options)
    thresholds, flip = _rule(dots)
    for name, scheme in SCHEMES.items():
        options["scheme"] = name
        np.testing.assert_array_equal(gpu.bmm(a, b, **options, device=device), dots)
        packed = gpu.bmm(a, b, **options, thresholds=thresholds, flip=flip, device=device)
        _assert_bits(packed, dots, thresholds, flip, scheme.word)


@pytest.mark.parametrize("first", ["msb", "lsb"])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("k", range(2**16 - 3, 2**16 + 3))
def test_k_beyond_16_bits_gives_exact_products(device, k, scheme, first):
    word = SCHEMES[scheme].word
    a, b = _matrix(67, k, np.float16), _matrix(k, 131, np.float16, 1)
    a[[0, 33]], b[:, [0, 64]], b[:, [1, 32, 130]] = 1, -1, 1  # dot products -K and K
    dots = reference.bmm(a, b)
    assert (dots.min(), dots.max()) == (-k, k)
    left = gpu.pack(device.upload(a), layout="column", word=word, first=first)
    right = gpu.pack(device.upload(b), word=word, first=first)
    np.testing.assert_array_equal(gpu.bmm(left, right, scheme=scheme).download(), dots)
    thresholds, flip = _rule(dots)
    packed = gpu.bmm(left, right, scheme=scheme, thresholds=thresholds, flip=flip)
    _assert_bits(packed, dots, thresholds, flip, word, first)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_thresholds_and_flips_are_applied_on_the_device(device, scheme):
    a, b = _matrix(257, 1000), _matrix(1000, 301, seed=1)
    dots = reference.bmm(a, b)
    thresholds, flip = _rule(dots)
    given = {"thresholds": device.upload(thresholds), "flip": device.upload(flip.astype(np.uint8))}
    for x in (a, device.upload(a)):
        packed = gpu.bmm(x, b, scheme=scheme, **given)
        assert isinstance(packed.words, np.ndarray) == (x is a)
        _assert_bits(packed, dots, thresholds, flip, SCHEMES[scheme].word)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_two_layers_are_right_in_reused_memory(device, scheme):
    """The outputs reuse memory of earlier arrays; no old bits may remain."""
    word = SCHEMES[scheme].word
    x, weights = _matrix(515, 1000), [_matrix(1000, 777, seed=1), _matrix(777, 333, seed=2)]
    dots = reference.bmm(x, weights[0])
    thresholds, flip = _rule(dots)
    middle = 2 * reference.unpack(reference.threshold(dots, thresholds, flip)).astype(np.int8) - 1
    expected = reference.bmm(middle, weights[1])
    left = gpu.pack(device.upload(x), layout="column", word=word)
    rights = [gpu.pack(device.upload(w), word=word) for w in weights]
    for fill in (0, 0xFF, 0xA5):
        for size in (515 * 333 * 4, 515 * -(-777 // word) * word // 8):
            device.upload(np.full(size, fill, np.uint8)).free()
        hidden = gpu.bmm(left, rights[0], scheme=scheme, thresholds=thresholds, flip=flip)
        _assert_bits(hidden, dots, thresholds, flip, word)
        np.testing.assert_array_equal(gpu.bmm(hidden, rights[1], scheme=scheme).download(), expected)


PACKED_SHAPES = [
    (4099, 4608),  # rows aligned to 16 bytes: vector kernels
    (2051, 4097),  # other rows: scalar kernels
    (3, 1000003),
    (1000003, 3),
]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8"])
@pytest.mark.parametrize("shape", PACKED_SHAPES)
def test_packing_equals_the_reference(device, dtype, shape):
    rng = np.random.default_rng(2)
    x = rng.integers(-3, 3, shape, np.int8).astype(dtype)
    source = device.upload(x)
    name, _ = packing_plan(source, "row", 32, device.multiprocessors)
    assert name == ("pack_row_vector" if shape[1] % 16 == 0 else "pack_row")
    for layout, word, first in itertools.product(["row", "column"], [32, 64], ["msb", "lsb"]):
        packed = gpu.pack(source, layout=layout, word=word, first=first)
        expected = reference.pack(x, layout=layout, word=word, first=first)
        np.testing.assert_array_equal(packed.words.download(), expected.words)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [2**16 + 16, 2**16 + 1], ids=["vector", "scalar"])
@pytest.mark.parametrize("layout", ["row", "column"])
@pytest.mark.parametrize("word", [32, 64])
def test_more_than_4294967296_elements_are_packed(device, layout, word, columns):
    """Indices need more than 32 bits; repeated rows give the expected words without packing all."""
    rows, period = 2**16 + 64, 64
    few = np.random.default_rng(3).integers(-3, 3, (period, columns), np.int8)
    x = np.tile(few, (rows // period, 1))
    assert x.size > 2**32
    source = device.upload(x)
    del x
    words = gpu.pack(source, layout=layout, word=word).words.download()
    source.free()
    expected = reference.pack(few, layout=layout, word=word).words
    repeated = np.tile(expected, (rows // period, 1) if layout == "row" else (1, rows // period))
    np.testing.assert_array_equal(words, repeated)


def test_a_product_may_exceed_4294967296_output_bits(device):
    m, n, k = 2**16 + 33, 2**16 + 65, 33
    a, b = np.tile(_matrix(47, k, np.float16), (m // 47 + 1, 1))[:m], _matrix(k, n, np.float16, 1)
    few = reference.bmm(a[:47], b)
    thresholds, flip = _rule(few)
    for scheme in ("bmm32", "bmm64", "bmms64"):
        word = SCHEMES[scheme].word
        words = gpu.bmm(a, b, scheme=scheme, thresholds=thresholds, flip=flip, device=device).words
        expected = reference.threshold(few, thresholds, flip, word=word).words
        repeated = np.tile(expected, (1, m // 47 + 1))[:, :m]
        np.testing.assert_array_equal(words, repeated)


def test_device_operands_give_a_device_array(device):
    a, b = _matrix(65, 130, np.float16), _matrix(130, 31, np.float16, 1)
    c = gpu.bmm(device.upload(a), device.upload(b))
    assert isinstance(c, type(device.upload(a)))
    np.testing.assert_array_equal(c.download(), reference.bmm(a, b))


def test_operands_packed_on_the_device_are_multiplied(device):
    a, b = _matrix(65, 130), _matrix(130, 31, seed=1)
    packed = gpu.pack(device.upload(a), layout="column")
    expected = reference.pack(a, layout="column")
    np.testing.assert_array_equal(packed.words.download(), expected.words)
    np.testing.assert_array_equal(gpu.bmm(packed, gpu.pack(device.upload(b))).download(), reference.bmm(a, b))


def test_nan_of_a_device_array_is_reported_at_the_next_synchronisation(device):
    bad = _matrix(40, 40)
    bad[7, 9] = np.nan
    x = device.upload(bad)
    packed = gpu.pack(x)
    with pytest.raises(NotANumberError):
        device.synchronize()
    device.synchronize()  # reported once
    gpu.pack(device.upload(_matrix(40, 40))).words.download()
    assert packed.shape == (40, 40)


def test_nan_of_a_host_array_is_reported_with_its_index(device):
    bad = _matrix(40, 50)
    bad[7, 9] = np.nan
    with pytest.raises(NotANumberError, match=r"b\[7, 9\]"):
        gpu.bmm(_matrix(3, 40), bad, device=device)


def test_torch_and_cupy_arrays_are_used_without_a_copy(device):
    torch = pytest.importorskip("torch")
    a, b = _matrix(37, 61), _matrix(61, 45, seed=1)
    expected = reference.bmm(a, b)
    c = gpu.bmm(torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda(), device=device)
    np.testing.assert_array_equal(c.download(), expected)
    assert torch.as_tensor(c, device="cuda").cpu().numpy().tolist() == expected.tolist()
    with pytest.raises(ShapeError, match="contiguous"):
        gpu.bmm(torch.from_numpy(a.T.copy()).cuda().T, torch.from_numpy(b).cuda(), device=device)
    # A torch slice may have any alignment, so that 16-byte loads may be impossible.
    flat = torch.from_numpy(np.concatenate([np.zeros(1, np.float32), np.tile(a, (1, 64)).ravel()])).cuda()
    misaligned = flat[1:].view(37, 61 * 64)
    expected_words = reference.pack(np.tile(a, (1, 64))).words
    np.testing.assert_array_equal(gpu.pack(misaligned, device=device).words.download(), expected_words)
    limits, flips = torch.zeros(45, dtype=torch.int32).cuda(), torch.ones(45, dtype=torch.uint8).cuda()
    packed = gpu.bmm(a, b, thresholds=limits, flip=flips, device=device)
    _assert_bits(packed, expected, np.zeros(45, np.int32), np.ones(45, bool), 32, "lsb")
    cupy = pytest.importorskip("cupy")
    c = gpu.bmm(cupy.asarray(a), cupy.asarray(b), device=device)
    np.testing.assert_array_equal(c.download(), expected)


def test_a_device_array_of_another_dtype_is_refused(device):
    with pytest.raises(DtypeError, match="int32"):
        gpu.pack(device.upload(np.zeros((3, 3), np.int32)))


SHIFT = """
#include <cooperative_groups.h>
extern "C" __global__ void shift(unsigned* words, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned mine = words[i];
    cooperative_groups::this_grid().sync();
    words[(i + 1) % n] = mine;
}
"""


def test_a_cooperative_launch_synchronises_the_grid(device):
    n = 64 * 128
    words = device.upload(np.arange(n, dtype=np.uint32))
    kernel = device.load(compile(SHIFT, "shift.cu", arch=device.compute_capability).text).kernel("shift")
    kernel((64, 1, 1), (128, 1, 1), words, np.uint32(n), cooperative=True)
    np.testing.assert_array_equal(words.download(), np.roll(np.arange(n, dtype=np.uint32), 1))


def test_streams_and_events_order_copies(device):
    stream, start, end = device.stream(), device.event(), device.event()
    host = np.arange(1 << 20, dtype=np.uint32)
    start.record(stream)
    array = device.allocate(host.shape, host.dtype)
    array.upload(host, stream)
    np.testing.assert_array_equal(array.download(stream), host)
    end.record(stream)
    end.synchronize()
    assert end.seconds_since(start) > 0
    np.testing.assert_array_equal(array.view((1 << 10, 1 << 10)).download(), host.reshape(1 << 10, 1 << 10))
    with pytest.raises(ShapeError):
        array.view((1 << 21,))


def test_pending_calls_keep_their_operands_alive(device):
    """Several calls of one plan with different arrays, without synchronisation between them."""
    rng = np.random.default_rng(4)
    signs = [rng.choice(np.array([-1, 1], np.int8), (512, 512)) for _ in range(12)]
    pairs = [(a, b) for a, b in zip(signs, signs[::-1], strict=True)]
    ready = [
        (gpu.prepare(device.upload(a), "a", scheme="btc3"), gpu.prepare(device.upload(b), "b", scheme="btc3"))
        for a, b in pairs
    ]
    products = [gpu.bmm(*each) for each in ready * 4]
    for product, (a, b) in zip(products, pairs * 4, strict=True):
        np.testing.assert_array_equal(product.download(), reference.bmm(a, b))


STORE = """extern "C" __global__ void store(unsigned n, float a, unsigned* x, float* y)
{ x[threadIdx.x] = n; y[threadIdx.x] = a; }"""


def test_arguments_and_arrays_are_accepted_as_on_the_simulator(device):
    for anywhere in (device, simwarp.Device()):
        kernel = anywhere.load(compile(STORE, "store.cu")).kernel("store")
        x, y = anywhere.allocate(4, "uint32"), anywhere.upload(np.zeros(4, np.float32))
        for grid, block, n, a in (
            (1, 4, -1, 2),
            ((1,), [np.int64(4)], np.uint64(2**32 - 1), np.int32(2)),
            (np.array([1, 1]), (4, 1, 1), np.int32(-1), np.float64(2)),
        ):
            x.upload(np.zeros(4, np.uint32))
            kernel(grid, block, n, a, x, y)
            assert x.download().tolist() == [2**32 - 1] * 4
            assert y.view(2, np.uint64).download().tolist() == [0x4000000040000000] * 2
        for wrong in ((2**32, 1, x, y), (1.5, 1, x, y), (1, None, x, y), (1, 1, 1.5, y), (1, 1, x)):
            with pytest.raises((DtypeError, LaunchError)):
                kernel(1, 4, *wrong)
        with pytest.raises(DtypeError, match="is a list"):
            anywhere.upload([1, 2])
        with pytest.raises((ShapeError, LaunchError), match="up to three"):
            kernel((1, 1, 1, 1), 4, 1, 1, x, y)


def test_structures_are_aligned_like_their_parameter(device):
    """A parameter of alignment 16 after one of 8 bytes leaves a gap between them."""
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry take(.param .u64 out, .param .align 16 .b8 given[32]) {
.reg .b64 %at, %a, %b;
ld.param.u64 %at, [out]; ld.param.v2.u64 {%a, %b}, [given+16];
st.global.u64 [%at], %a; st.global.u64 [%at+8], %b; ret; }
"""
    given = np.arange(4, dtype=np.uint64) + 1
    for anywhere in (device, simwarp.Device()):
        out = anywhere.upload(np.zeros(2, np.uint64))
        anywhere.load(text).kernel("take")((1, 1, 1), (1, 1, 1), out, np.void(given.tobytes()))
        assert out.download().tolist() == [3, 4]


CLUSTER = """
#include <cooperative_groups.h>
extern __shared__ unsigned cells[];
extern "C" __global__ void neighbour(unsigned* out, unsigned at) {
    auto cluster = cooperative_groups::this_cluster();
    const unsigned rank = cluster.block_rank(), size = cluster.num_blocks();
    cells[at] = blockIdx.x;
    cluster.sync();
    out[blockIdx.x] = 1000 * size + *cluster.map_shared_rank(cells + at, (rank + 1) % size);
    cluster.sync();
}
"""


@pytest.mark.parametrize(("size", "shared"), [(1, 4), (2, 64 << 10), (8, 4), (16, 200 << 10)])
def test_launches_in_clusters_agree_with_the_simulator(device, size, shared):
    if device.compute_capability < (9, 0):
        pytest.skip("clusters need compute capability 9.0")
    ptx = compile(CLUSTER, "cluster.cu", arch=device.compute_capability).text
    for anywhere in (device, simwarp.Device(device.compute_capability)):
        out = anywhere.upload(np.zeros(32, np.uint32))
        kernel = anywhere.load(ptx).kernel("neighbour")
        kernel(32, 1, out, shared // 4 - 1, shared=shared, cluster=size)
        expected = [1000 * size + b // size * size + (b + 1) % size for b in range(32)]
        assert out.download().tolist() == expected
        for wrong in (17, 3, 0):
            with pytest.raises(LaunchError):
                kernel(32, 1, out, 0, shared=shared, cluster=wrong)
        with pytest.raises(LaunchError, match="dynamic shared memory"):
            kernel(32, 1, out, 0, shared=228 << 10)


MATRIX, IMAGES = (40, 128), (2, 9, 7, 16)
TILES = {
    **{
        f"swizzle {span}": (MATRIX, {"box": (16, span // 2), "swizzle": span}, (8, 30))
        for span in (32, 64, 128)
    },
    **{f"short rows {span}": (MATRIX, {"box": (9, 8), "swizzle": span}, (120, -3)) for span in (32, 64, 128)},
    "steps": (MATRIX, {"box": (16, 32), "element_strides": (3, 1)}, (-8, 5)),
    **{
        f"nan {kind}": (MATRIX, {"box": (8, 16), "data_type": kind, "fill": "nan"}, (120, 36))
        for kind in ("float16", "bfloat16")
    },
    "images": (IMAGES, {"im2col": Im2col((-1, -1), (-1, -1), 8, 100)}, (8, 3, 2, 0)),
    "strided images": (
        IMAGES,
        {"im2col": Im2col((-1, 0), (0, -2), 16, 30), "element_strides": (1, 2, 3, 1)},
        (0, 0, -1, 0),
    ),
}


@pytest.mark.parametrize("name", TILES)
def test_tiles_through_tensor_maps_agree_with_the_simulator(device, name):
    """What no document tells is in here, too: see docs/tensor-maps.md."""
    shape, options, at = TILES[name]
    array = np.arange(1, np.prod(shape) + 1, dtype=np.uint16).view(np.float16).reshape(shape)
    body = tensor_tiles.load(at)
    if "im2col" in options:
        body = tensor_tiles.load(at, ".im2col", ", {2, 1}")
    simulator, tiles = simwarp.Device(), []
    size, span = tensormaps.tile_bytes(
        tensormaps.decode(simulator.tensor_map(simulator.upload(array), **options))
    )
    for here in (device, simulator):
        tensor_map = here.tensor_map(kept := here.upload(array), **options)
        tiles.append(tensor_tiles.tile_of(here, tensor_map, body, size, -(-span // 128) * 128 + 128).tolist())
        assert kept.nbytes == array.nbytes
    assert tiles[0] == tiles[1]


CHAIN = """
extern "C" __global__ void scale(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    if (i < n) y[i] = 2 * x[i];
}
extern "C" __global__ void add(const float* y, const float* bias, float* z, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float b = i < n ? bias[i] : 0;
    asm volatile("griddepcontrol.wait;" ::: "memory");
    if (i < n) z[i] = y[i] + b;
}
"""


@pytest.mark.parametrize("n", [1, 1000, 1 << 22])
def test_dependent_launches_wait_for_the_launch_before(device, n):
    if device.compute_capability < (9, 0):
        pytest.skip("dependent launches need compute capability 9.0")
    ptx, blocks = compile(CHAIN, "chain.cu", arch=device.compute_capability).text, (-(-n // 128), 1, 1)
    rng = np.random.default_rng(n)
    x, bias = (rng.standard_normal(n).astype(np.float32) for _ in range(2))
    scale = LaunchPlan(ptx, "scale", blocks, (128, 1, 1), (None, None, n))
    add = LaunchPlan(ptx, "add", blocks, (128, 1, 1), (None, None, None, n), dependent=True)
    y, z = (device.upload(np.zeros(n, np.float32)) for _ in range(2))
    given = [[device.upload(x), y], [y, device.upload(bias), z]]
    module = device.load(ptx)
    for stream in (None, device.stream()):  # launches one by one, then the chain as a graph
        for plan, arrays in zip((scale, add), given, strict=True):
            kernel = module.kernel(plan.name)
            kernel(blocks, 128, *arrays, n, stream=stream, dependent=plan.dependent)
        np.testing.assert_array_equal(z.download(stream), 2 * x + bias)
        z.upload(np.zeros(n, np.float32))
    for _ in range(3):
        device.launch_all(LaunchChain((scale, add)), given)
        np.testing.assert_array_equal(z.download(), 2 * x + bias)
        z.upload(np.zeros(n, np.float32))


def test_a_captured_graph_launches_kernels_plans_and_dependent_grids(device):
    if device.compute_capability < (9, 0):
        pytest.skip("dependent launches need compute capability 9.0")
    ptx = compile(CHAIN, "chain.cu", arch=device.compute_capability).text
    n, blocks = 1000, (8, 1, 1)
    x, bias = (np.random.default_rng(n).standard_normal(n).astype(np.float32) for _ in range(2))
    plan = LaunchPlan(ptx, "scale", blocks, (128, 1, 1), (None, None, n))
    for anywhere in (device, simwarp.Device(device.compute_capability)):
        y, z = (anywhere.upload(np.zeros(n, np.float32)) for _ in range(2))
        given, more = anywhere.upload(x), anywhere.upload(bias)
        add = anywhere.load(ptx).kernel("add")
        with anywhere.capture() as graph:
            anywhere.launch(plan, [given, y])
            add(blocks, 128, y, more, z, n, dependent=True)
            with pytest.raises(CaptureError):
                z.download()
        assert not z.download().any()
        del given, more
        for stream in (None, anywhere.stream()):
            graph.launch(stream)
            np.testing.assert_array_equal(z.download(stream), 2 * x + bias)
            z.upload(np.zeros(n, np.float32))
        with anywhere.capture() as plain:
            add(blocks, 128, y, z, z, n)
        with anywhere.capture() as twice:
            plain.launch()
            plain.launch()
        twice.launch()
        np.testing.assert_array_equal(z.download(), y.download() + y.download())
        with pytest.raises(CaptureError), anywhere.capture():
            anywhere.synchronize()
        anywhere.synchronize()
