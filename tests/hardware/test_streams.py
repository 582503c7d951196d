"""Calls in streams of torch and CuPy, in graphs, and as operators of torch, on a GPU."""

from __future__ import annotations

import importlib
import random
import sys
import threading

import numpy as np
import pytest

import gpu
import reference
from reference.errors import CaptureError, DtypeError, LaunchError, ShapeError
from reference.types import Coo

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device():
    return gpu.CudaDevice()


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def real(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


A, B = real(300, 1000), real(1000, 200, seed=1)
X, W = real(4, 16, 16, 128), real(3, 3, 128, 64, seed=1)
PRODUCT, CONVOLUTION = reference.bmm(A, B), reference.bconv2d(X, W)


def same(found, expected):
    np.testing.assert_array_equal(found if isinstance(found, np.ndarray) else found.download(), expected)


def of_torch(torch, *hosts):
    return [torch.from_numpy(x).cuda() for x in hosts]


def busy(torch, stream):
    """Keep a stream busy for some milliseconds, so that work in a wrong stream overtakes it."""
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)


def test_calls_wait_for_the_stream_that_they_are_in(device, torch):
    """The operands are written in the stream behind a long wait; a call elsewhere reads zeros."""
    for given in (False, True):
        stream = torch.cuda.Stream()
        a, b = (torch.zeros(x.shape, device="cuda") for x in (A, B))
        x, w = (torch.zeros(x.shape, device="cuda") for x in (X, W))
        torch.cuda.synchronize()
        busy(torch, stream)
        with torch.cuda.stream(stream):
            for tensor, host in ((a, A), (b, B), (x, X), (w, W)):
                tensor.copy_(torch.from_numpy(host).pin_memory(), non_blocking=True)
            if not given:
                c, y = gpu.bmm(a, b, device=device), gpu.bconv2d(x, w, device=device)
        if given:
            c, y = (
                gpu.bmm(a, b, device=device, stream=stream),
                gpu.bconv2d(x, w, device=device, stream=stream),
            )
        same(c, PRODUCT)
        same(y, CONVOLUTION)


SPARSE = Coo(
    np.array(np.unravel_index(np.random.default_rng(1).choice(300 * 20 * 500, 9000, False), (300, 20, 500))),
    np.random.default_rng(2).standard_normal(9000).astype(np.float32),
    (300, 20, 500),
)
FACTORS = [real(n, 16, seed=n) for n in SPARSE.shape]


@pytest.mark.parametrize("how", ["coo", "mm-csf", "deterministic", "host"])
def test_sparse_products_wait_for_torchs_stream(device, torch, how):
    """The factors are written in the stream behind a long wait, and the result is read in it at once."""
    prepared = gpu.prepare(SPARSE, scheme="mm-csf" if how == "mm-csf" else "coo", device=device)
    tensor = SPARSE if how == "host" else prepared
    expected, stream = reference.mttkrp(SPARSE, FACTORS, 0), torch.cuda.Stream()
    for _ in range(3):  # planned, and known
        factors = [torch.zeros(x.shape, device="cuda") for x in FACTORS]
        torch.cuda.synchronize()
        busy(torch, stream)
        with torch.cuda.stream(stream):
            for factor, host in zip(factors, FACTORS, strict=True):
                factor.copy_(torch.from_numpy(host).pin_memory(), non_blocking=True)
            out = gpu.mttkrp(tensor, factors, 0, deterministic=how == "deterministic")
            copy = torch.as_tensor(out, device="cuda").clone()
        stream.synchronize()
        np.testing.assert_allclose(copy.cpu().numpy(), expected, rtol=1e-3, atol=1e-3)


def test_a_sparse_product_is_captured_by_torch(device, torch):
    prepared, factors = gpu.prepare(SPARSE, device=device), of_torch(torch, *FACTORS)
    gpu.mttkrp(prepared, factors, 0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = gpu.mttkrp(prepared, factors, 0)
    for factor in factors:
        factor.mul_(2.0)
    graph.replay()
    torch.cuda.synchronize()
    doubled = [2 * x for x in FACTORS]
    np.testing.assert_allclose(out.download(), reference.mttkrp(SPARSE, doubled, 0), rtol=1e-3, atol=1e-3)
    for tensor, options, message in (
        (prepared, {"deterministic": True}, "deterministic mttkrp"),
        (prepared, {}, "without a plan"),
        (SPARSE, {}, "without a plan"),
    ):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            factors[0].mul_(1.0)  # torch warns of a graph without work
            with pytest.raises(CaptureError, match=message):
                gpu.mttkrp(tensor, factors, 1, **options)


def test_a_tensor_of_torch_is_adopted_behind_the_work_that_writes_it(device, torch):
    stream = torch.cuda.Stream()
    coords, values = (
        torch.zeros((3, 9000), dtype=torch.int64, device="cuda"),
        torch.zeros(9000, device="cuda"),
    )
    torch.cuda.synchronize()
    busy(torch, stream)
    with torch.cuda.stream(stream):
        coords.copy_(torch.from_numpy(SPARSE.coords.astype(np.int64)).pin_memory(), non_blocking=True)
        values.copy_(torch.from_numpy(SPARSE.values).pin_memory(), non_blocking=True)
        there = [device.adopt(x) for x in (coords, values)]
    np.testing.assert_array_equal(there[0].download(), SPARSE.coords)
    np.testing.assert_array_equal(there[1].download(), SPARSE.values)


def test_streams_of_every_kind_are_taken(device, torch):
    a, b = gpu.prepare(A, "a", device=device), gpu.prepare(B, "b", device=device)
    device.synchronize()
    other, own = torch.cuda.Stream(), device.stream()
    streams = [own, other, other.cuda_stream, 0, 1, 2, torch.cuda.default_stream()]
    try:
        import cupy

        streams += [cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream.null]
    except ImportError:
        pass
    for stream in streams:
        for _ in range(2):
            same(gpu.bmm(a, b, stream=stream), PRODUCT)
    same(gpu.bmm(A, B, device=device, stream=own), PRODUCT)
    for wrong in ("stream", 1.5, True):
        with pytest.raises(DtypeError, match="stream= is a"):
            gpu.bmm(a, b, stream=wrong)


def test_a_stream_of_another_device_is_refused(device, torch):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    with pytest.raises(LaunchError, match="stream of CUDA device 1"):
        gpu.bmm(A, B, device=device, stream=torch.cuda.Stream(device=1))
    with pytest.raises(DtypeError, match="on CUDA device 1"):
        gpu.bmm(torch.from_numpy(A).to("cuda:1"), B, device=device)


def test_freed_memory_is_not_used_again_before_its_stream_is_done(device, torch):
    """Operands and results go as soon as their call returns, in two streams and the default one."""
    streams = [torch.cuda.Stream(), device.stream(), None]
    products = []
    for i in range(60):
        stream = streams[i % 3]
        a, b = gpu.prepare(A + i, "a", device=device), gpu.prepare(B, "b", device=device)
        device.synchronize()
        if i % 3 == 0:
            busy(torch, stream)
        gpu.bmm(a, b, stream=stream)  # dropped at once
        products.append((i, gpu.bmm(a, b, stream=stream)))
        del a, b
    for i, c in products:
        same(c, reference.bmm(A + i, B))


def test_rotating_tensors_in_threads_and_streams_give_torchs_answers(device, torch):
    """10,000 calls, most of them recorded ones: threads share plans, streams have workspaces of their own."""
    dtypes = torch.float32, torch.float16, torch.int8
    weights = {n: torch.randn(260, n, device="cuda") for n in (24, 64)}
    products = {n: gpu.prepare(w, "b") for n, w in weights.items()}
    filters = torch.randn(3, 3, 64, 32, device="cuda")
    prepared = gpu.prepare(filters, "w")
    torch.cuda.synchronize()
    wrong, failed = [], []

    def work(seed):
        draw, stream = random.Random(seed), torch.cuda.Stream()
        with device.current(), torch.cuda.stream(stream):
            for _ in range(2500):
                dtype, rows = draw.choice(dtypes), draw.choice((1, 8, 33))
                if draw.random() < 0.5:
                    n = draw.choice([*weights])
                    a = sign(torch.randn(rows, 260, device="cuda")).to(dtype)
                    y = torch.as_tensor(gpu.bmm(a, products[n]), device="cuda")
                    expected = (a.float() @ sign(weights[n])).int()
                else:
                    x = sign(torch.randn(2, 5, rows, 64, device="cuda")).to(dtype)
                    packs = draw.random() < 0.3
                    images = gpu.pack_tensor(x, layout="NHWC") if packs else x
                    y = torch.as_tensor(gpu.bconv2d(images, prepared, stream=stream), device="cuda")
                    maps, kernels = x.double().permute(0, 3, 1, 2), sign(filters).double().permute(3, 2, 0, 1)
                    expected = torch.nn.functional.conv2d(maps, kernels, padding=1).permute(0, 2, 3, 1).int()
                if not torch.equal(y, expected):
                    wrong.append((seed, dtype, rows))

    def guarded(seed):
        try:
            work(seed)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (wrong, failed) == ([], [])


def test_a_warm_call_asks_torch_for_its_result_alone(device, torch):
    w, filters = gpu.prepare(torch.from_numpy(B).cuda(), "b"), gpu.prepare(torch.from_numpy(W).cuda(), "w")
    a, x, of_torch_filters = of_torch(torch, A, X, W)
    for call, most in (
        (lambda: gpu.bmm(a, w), 55),
        (lambda: gpu.bconv2d(x, filters), 55),
        (lambda: gpu.bconv2d(x, of_torch_filters), 65),
        (lambda: gpu.pack(a), 55),
    ):
        for _ in range(4):
            call()
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        calls = []
        sys.setprofile(lambda _, event, __, calls=calls: calls.append(event) if "call" in event else None)
        y = call()
        sys.setprofile(None)
        assert torch.cuda.memory_stats()["allocation.all.allocated"] - before <= 1
        assert len(calls) <= most
        del y


@pytest.mark.parametrize("kind", ["ours", "torch", "cupy"])
def test_captured_calls_give_the_same(device, torch, kind):
    thresholds, flip = device.upload(np.arange(200, dtype=np.int32)), device.upload(np.zeros(200, np.uint8))
    a, b = gpu.prepare(A, "a", device=device), gpu.prepare(B, "b", device=device)
    x, w = gpu.prepare(X, "x", device=device), gpu.prepare(W, "w", device=device)

    def calls(stream=None):
        bits = gpu.bmm(a, b, thresholds=thresholds, flip=flip, stream=stream)
        return gpu.bmm(a, b, stream=stream), bits.words, gpu.bconv2d(x, w, stream=stream)

    warm = [y.download() for y in calls()]
    if kind == "ours":
        with device.capture() as graph:
            answers = calls(device.stream())
        launch = graph.launch
    elif kind == "torch":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            answers = calls(torch.cuda.current_stream())
        launch = graph.replay
    else:
        cupy = pytest.importorskip("cupy")
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            answers = calls(stream)
            graph = stream.end_capture()
        launch = lambda: graph.launch(stream)  # noqa: E731
    for _ in range(3):
        for y in answers:
            y.upload(np.zeros(y.shape, y.dtype))
        launch()
        torch.cuda.synchronize()
        for y, expected in zip(answers, warm, strict=True):
            same(y, expected)


def test_torch_operands_are_packed_in_a_torch_graph(device, torch):
    a, b = of_torch(torch, A, B)
    gpu.bmm(a, b, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        c = gpu.bmm(a, b, device=device)
        with pytest.raises(CaptureError, match="an upload"):
            gpu.bmm(a, B, device=device)
    a.neg_()
    for _ in range(3):
        noise = [torch.randn(1000, 1000, device="cuda") for _ in range(3)]
        graph.replay()
        torch.cuda.synchronize()
        same(c, reference.bmm(-A, B))
        del noise


def test_device_arrays_that_cannot_be_used_are_refused(device, torch):
    a, b = of_torch(torch, A, B)
    with pytest.raises(ShapeError, match="not contiguous"):
        gpu.bmm(a.T.contiguous().T, b, device=device)
    for wrong in (a.clone().requires_grad_(), a.int(), a.to(torch.complex64)):
        with pytest.raises(DtypeError):
            gpu.bmm(wrong, b, device=device)
    same(gpu.bmm(a.double(), b.half(), device=device), reference.bmm(A, B.astype(np.float16)))


def test_bfloat16_is_taken_by_every_door(device, torch):
    """The smallest numbers have signs, too, which float16 would lose."""
    a, b, x, w = (1e-30 * each for each in of_torch(torch, A, B, X, W))
    short = [each.bfloat16() for each in (a, b, x, w)]
    for _ in range(3):
        same(gpu.bmm(short[0], short[1]), PRODUCT)
        same(gpu.bmm(short[0], gpu.prepare(short[1], "b")), PRODUCT)
        same(gpu.bconv2d(short[2], short[3]), CONVOLUTION)
        same(gpu.bconv2d(short[2], gpu.prepare(short[3], "w")), CONVOLUTION)
        same(gpu.pack(short[0], layout="column").words, reference.pack(A, layout="column").words)
        words = gpu.pack_tensor(short[2], layout="NHWC").words
        same(words, reference.pack_tensor(X, layout="NHWC").words)


# ---- operators of torch


def sign(x):
    return (x >= 0).to(x.dtype) * 2 - 1


@pytest.fixture(scope="module")
def operators(torch):
    importlib.import_module("gpu.operators")
    return torch.ops.simwarp


def test_operators_answer_as_torch_does_of_signs(torch, operators):
    a, b = of_torch(torch, A, B)
    expected = (sign(a).double() @ sign(b).double()).int()
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        left, right = sign(a).to(dtype), sign(b).to(dtype)
        for _ in range(4):  # made, recorded, and played
            assert torch.equal(operators.bmm(left, right), expected)
            assert torch.equal(operators.bmm(left[:20], right), expected[:20])
        assert torch.equal(operators.bmm(left, right.t().contiguous().t()), expected)
        assert torch.equal(operators.bmm(left, right.t().contiguous(), transpose_b=True), expected)
    x, w = torch.from_numpy(X).cuda().permute(0, 3, 1, 2), torch.from_numpy(W).cuda().permute(3, 2, 0, 1)
    for options in (((1, 1), (1, 1), (1, 1)), ((2, 1), (0, 2), (1, 2))):
        stride, padding, dilation = options
        expected = torch.nn.functional.conv2d(
            sign(x).double(), sign(w).double(), None, stride, padding, dilation
        ).int()
        for layout in (torch.contiguous_format, torch.channels_last):
            y = operators.bconv2d(x.contiguous(memory_format=layout), w, *options)
            assert torch.equal(y, expected)


def test_operators_pass_torchs_own_checks(torch, operators):
    a, b = of_torch(torch, A, B)
    torch.library.opcheck(operators.bmm.default, (a, b))
    x, w = torch.from_numpy(X).cuda().permute(0, 3, 1, 2), torch.from_numpy(W).cuda().permute(3, 2, 0, 1)
    torch.library.opcheck(operators.bconv2d.default, (x, w))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_the_compiler_keeps_operators(torch, operators, mode):
    a, b = of_torch(torch, A, B)

    def layer(a, b):
        return operators.bmm(a * 2, b).float() + 1

    compiled = torch.compile(layer, fullgraph=True, mode=mode)
    for _ in range(4):
        assert torch.equal(compiled(a, b).clone(), layer(a, b))
