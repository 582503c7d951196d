"""The rows ``door-torch/…`` and ``door-cupy/…`` of `door.py`: calls with tensors that are new in each call.

Eight tensors of one shape rotate, as activations do; the second operand is prepared, as weights are, where
the row does not say ``both``. ``fresh`` is the same call with a clone in each call, made before the clock
starts.
``door-torch-host/…`` is the time until the call returns. A row's answer is compared with torch's of signs.
``operator`` rows call ``torch.ops.simwarp``, whose weights are torch tensors, too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from common import Row

import gpu
import gpu.bnn
from reference.bnn import mlp, resnet18
from reference.types import Coo

TURNS = 8
SAMPLES = 120
WEIGHTS = (1024, 4096)
ROWS = (1, 8, 256, 4096)
DTYPES = ("float32", "float16", "bfloat16", "int8")
CHANNELS = (128, 512)
IMAGES = (8, 56, 56)
SHAPE, NONZEROS, RANK = (20_000, 3_000, 50_000), 5_000_000, 32
GOALS = {
    "bmm": 28.0,
    "bmm packed": 16.0,
    "bmm both": 45.0,
    "bconv2d": 32.0,
    "bconv2d packed": 18.0,
    "bconv2d both": 55.0,
    "pack": 16.0,
    "mttkrp": 25.0,
}
"""Microseconds until a call returns, by kind of row."""
RESULT_GOALS = {"mlp": 22.0, "resnet18": 108.0}
"""Microseconds until a network's answer is there."""

Finish = Callable[[], Row]


class Turns:
    """A call with one of several tensors in turn, or with a clone of it."""

    def __init__(self, bench: Any, call: Callable[[Any], Any], given: Sequence[Any], *, fresh: bool) -> None:
        self._bench, self._call, self._given, self._fresh = bench, call, given, fresh
        for x in given:
            for _ in range(3):
                call(x)

    def __call__(self) -> tuple[float, float]:
        """Median microseconds: with the result, and until the call returns."""
        wait, samples = self._bench.torch.cuda.synchronize, list[tuple[float, float]]()
        for turn in range(SAMPLES):
            x = self._given[turn % len(self._given)]
            x = (x.clone() if hasattr(x, "clone") else x.copy()) if self._fresh else x
            wait()
            start = time.perf_counter()
            kept = self._call(x)
            returned = time.perf_counter()
            wait()
            samples.append((time.perf_counter() - start, returned - start))
            del kept
        whole, host = zip(*samples, strict=True)
        return 1e6 * statistics.median(whole), 1e6 * statistics.median(host)


class Rows:
    """Makes the two rows of a call with arrays of a library."""

    def __init__(self, bench: Any, library: str) -> None:
        self._bench, self.torch, self._library = bench, bench.torch, library

    def of(
        self,
        what: str,
        kind: str,
        params: dict[str, Any],
        call: Callable[[Any], Any],
        given: Sequence[Any],
        right: Callable[[Any, Any], bool],
        *peers: tuple[str, Callable[[Any], Any], Sequence[Any]],
    ) -> Iterator[Finish]:
        """Rows of the result and of the host time; ``right`` compares an operand's answer."""
        if not all(right(x, call(x)) for x in (*given[:2], given[0]) for _ in range(3)):
            raise SystemExit(f"door-{self._library}/{what}: the answer is wrong")
        timings = {"ours": self._bench.timing(Turns(self._bench, call, given, fresh=False))}
        if not isinstance(given[0], list) and (hasattr(given[0], "clone") or hasattr(given[0], "copy")):
            timings["fresh"] = self._bench.timing(Turns(self._bench, call, given, fresh=True))
        for name, peer, of_peer in peers:
            timings[name] = self._bench.timing(Turns(self._bench, peer, of_peer, fresh=False))

        def row(which: int, name: str, target: float | None) -> Row:
            figures = {each: timing.medians[which] for each, timing in timings.items()}
            ours = figures.pop("ours")
            return Row(f"{name}/{what}", params, "us", "lower", ours, figures, target=target)

        yield lambda: row(0, f"door-{self._library}", RESULT_GOALS.get(kind))
        yield lambda: row(1, f"door-{self._library}-host", GOALS.get(kind))


def torch_rows(bench: Any) -> Iterator[Finish]:
    """All rows of calls with tensors of torch."""
    bench.torch.set_grad_enabled(mode=False)
    rows = Rows(bench, "torch")
    for n in WEIGHTS:
        yield from _products(rows, n)
    for channels in CHANNELS:
        yield from _convolutions(rows, channels)
    yield from _packings(rows)
    yield from _networks(rows)
    yield from _modules(rows)
    yield from _sparse(rows)
    yield from _operators(rows)
    yield from _machine_calls(rows)
    yield from _cupy(Rows(bench, "cupy"))


def _signs(torch: Any, x: Any) -> Any:
    return torch.where(x >= 0, 1, -1).to(torch.int8)


def _reals(torch: Any, shape: Sequence[int], dtype: str) -> list[Any]:
    tensors = [torch.randn(*shape, device="cuda") for _ in range(TURNS)]
    return [
        (2 * x).round().to(torch.int8) if dtype == "int8" else x.to(getattr(torch, dtype)) for x in tensors
    ]


def _products(rows: Rows, n: int) -> Iterator[Finish]:
    torch = rows.torch
    w = torch.randn(n, n, device="cuda")
    prepared, signs, half = gpu.prepare(w, "b"), _signs(torch, w), w.half()

    def right(x: Any, c: Any, signs: Any = signs) -> bool:
        expected = _signs(torch, x).double() @ signs.double()
        return bool(torch.equal(torch.as_tensor(c, device="cuda").double(), expected))

    for m in ROWS:
        halves = _reals(torch, (m, n), "float16")
        peer = "torch f16", lambda x, half=half: x @ half, halves
        for dtype in DTYPES:
            given, params = _reals(torch, (m, n), dtype), {"rows": m, "n": n, "dtype": dtype}
            yield from rows.of(
                f"bmm/{m}x{n}/{dtype}", "bmm", params, lambda x: gpu.bmm(x, prepared), given, right, peer
            )
        reals = _reals(torch, (m, n), "float32")
        for form, make in (
            ("packed", lambda x: gpu.pack(x, layout="column", first="lsb")),
            ("prepared", lambda x: gpu.prepare(x, "a")),
        ):
            given = [make(x) for x in reals]
            of = {id(each): x for each, x in zip(given, reals, strict=True)}
            yield from rows.of(
                f"bmm/{m}x{n}/{form}",
                "bmm packed",
                {"rows": m, "n": n, "operands": form},
                lambda x: gpu.bmm(x, prepared),
                given,
                lambda x, c, of=of: right(of[id(x)], c),
                peer,
            )
    given = _reals(torch, (n, n), "float32")
    peer = "torch f16", lambda x, half=half: x @ half, _reals(torch, (n, n), "float16")
    params = {"rows": n, "n": n, "dtype": "float32", "weights": "real"}
    yield from rows.of(f"bmm/{n}x{n}/both", "bmm both", params, lambda x: gpu.bmm(x, w), given, right, peer)


def _convolutions(rows: Rows, channels: int) -> Iterator[Finish]:
    torch = rows.torch
    torch.backends.cudnn.benchmark = True
    w = torch.randn(3, 3, channels, channels, device="cuda")
    prepared = gpu.prepare(w, "w")

    def convolved(x: Any, w: Any) -> Any:
        return torch.nn.functional.conv2d(x, w, padding=1)

    def for_torch(x: Any, order: Sequence[int]) -> Any:
        return x.permute(*order).contiguous(memory_format=torch.channels_last)

    half = for_torch(w.half(), (3, 2, 0, 1))
    double = _signs(torch, w).double().permute(3, 2, 0, 1)

    def right(x: Any, y: Any) -> bool:
        expected = convolved(_signs(torch, x)[:1].double().permute(0, 3, 1, 2), double)
        found = torch.as_tensor(y, device="cuda")[:1].double().permute(0, 3, 1, 2)
        return bool(torch.equal(found, expected))

    shape, params = (*IMAGES, channels), {"images": IMAGES, "channels": channels}
    peer = (
        "torch f16",
        lambda x: convolved(x, half),
        [for_torch(x, (0, 3, 1, 2)) for x in _reals(torch, shape, "float16")],
    )
    for dtype in DTYPES:
        given = _reals(torch, shape, dtype)
        yield from rows.of(
            f"bconv2d/{channels}/{dtype}",
            "bconv2d",
            {**params, "dtype": dtype},
            lambda x: gpu.bconv2d(x, prepared),
            given,
            right,
            peer,
        )
    reals = _reals(torch, shape, "float32")
    packed = [gpu.pack_tensor(x, layout="NHWC") for x in reals]
    of = {id(each): x for each, x in zip(packed, reals, strict=True)}
    yield from rows.of(
        f"bconv2d/{channels}/packed",
        "bconv2d packed",
        {**params, "operands": "packed"},
        lambda x: gpu.bconv2d(x, prepared),
        packed,
        lambda x, y: right(of[id(x)], y),
        peer,
    )
    yield from rows.of(
        f"bconv2d/{channels}/both",
        "bconv2d both",
        {**params, "dtype": "float32", "filters": "real"},
        lambda x: gpu.bconv2d(x, w),
        reals,
        right,
        peer,
    )


def _packings(rows: Rows) -> Iterator[Finish]:
    torch = rows.torch
    for dtype in DTYPES:
        given, params = _reals(torch, (1024, 1024), dtype), {"n": 1024, "dtype": dtype}

        def right(x: Any, packed: Any) -> bool:
            real = x.float().cpu().numpy()
            return np.array_equal(packed.words.download(), gpu.pack(real, layout="column").words)

        copy = "torch copy", lambda x: x.clone(), given
        call: Callable[[Any], Any] = lambda x: gpu.pack(x, layout="column")  # noqa: E731
        yield from rows.of(f"pack/1024/{dtype}", "pack", params, call, given, right, copy)
    given = _reals(torch, (*IMAGES, 128), "float32")

    def packed_right(x: Any, packed: Any) -> bool:
        expected = gpu.pack_tensor(x.cpu().numpy(), layout="NHWC").words
        return np.array_equal(packed.words.download(), expected)

    yield from rows.of(
        "pack_tensor/128",
        "pack",
        {"images": IMAGES, "channels": 128, "dtype": "float32"},
        lambda x: gpu.pack_tensor(x, layout="NHWC"),
        given,
        packed_right,
        ("torch copy", lambda x: x.clone(), given),
    )


def _networks(rows: Rows) -> Iterator[Finish]:
    torch = rows.torch
    for kind, network in (("mlp", mlp(seed=1)), ("resnet18", resnet18(seed=1))):
        prepared = gpu.bnn.prepare(network)
        given = [
            torch.randint(0, 256, (8, *network.input.shape), dtype=torch.uint8, device="cuda")
            for _ in range(TURNS)
        ]

        def right(x: Any, answer: Any, prepared: Any = prepared) -> bool:
            expected = prepared.run(x.cpu().numpy())  # tests/hardware compares this with the definition
            return all(map(np.array_equal, (each.download() for each in answer), expected))

        call: Callable[[Any], Any] = lambda x, prepared=prepared: prepared.run(x)  # noqa: E731
        yield from rows.of(f"network/{kind}/8", kind, {"network": kind, "images": 8}, call, given, right)


def _modules(rows: Rows) -> Iterator[Finish]:
    """Three binary layers of 1024 of a torch module, exported, beside the same module in float16."""
    from simwarp.torch import BinaryLinear, ImageSigns, Sign, export

    torch, width = rows.torch, 1024
    layers = [
        ImageSigns(),
        *(
            layer
            for _ in range(2)
            for layer in (BinaryLinear(width, width), torch.nn.BatchNorm1d(width), Sign())
        ),
        BinaryLinear(width, width),
    ]
    model = torch.nn.Sequential(*layers).eval()
    for norm in model:
        if isinstance(norm, torch.nn.BatchNorm1d):
            torch.nn.init.normal_(norm.running_mean, std=20.0)
    prepared = gpu.bnn.prepare(export(model, torch.randn(1, width), name="three layers"))
    model = model.cuda()
    weights = [_signs(torch, layer.weight).half() for layer in model if isinstance(layer, BinaryLinear)]
    halves = torch.nn.Sequential(
        *(layer for _ in range(2) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())),
        torch.nn.Linear(width, width),
    )
    halves = halves.cuda().half().eval().requires_grad_(requires_grad=False)
    for layer, weight in zip((each for each in halves if hasattr(each, "weight")), weights, strict=True):
        layer.weight.copy_(weight)
    compiled = torch.compile(halves, mode="reduce-overhead")
    for batch in (8, 256):
        given = _reals(torch, (batch, width), "float32")

        def right(x: Any, logits: Any) -> bool:
            return bool(torch.equal(torch.as_tensor(logits, device="cuda"), model(x)))

        peers = {
            "torch f16": lambda x: halves(x),
            "torch f16, compiled": lambda x: compiled(x),
        }
        half = _reals(torch, (batch, width), "float16")
        timings = [(name, call, half) for name, call in peers.items()]
        params = {"layers": 3, "width": width, "rows": batch}
        call: Callable[[Any], Any] = lambda x: prepared.run(x).logits  # noqa: E731
        yield from rows.of(f"module/{batch}", "module", params, call, given, right, *timings)


def _operators(rows: Rows) -> Iterator[Finish]:
    import_module("gpu.operators")  # which registers them
    torch, n = rows.torch, 1024
    w = torch.randn(n, n, device="cuda")
    signs, half = _signs(torch, w).double().T, w.half()
    for m in (8, 1024):

        def right(x: Any, c: Any) -> bool:
            return bool(torch.equal(c.double(), _signs(torch, x).double() @ signs))

        call: Callable[[Any], Any] = lambda x: torch.ops.simwarp.bmm(x, w, transpose_b=True)  # noqa: E731
        peer = "torch f16", lambda x: x @ half, _reals(torch, (m, n), "float16")
        params = {"rows": m, "n": n, "dtype": "float32", "weights": "real"}
        given = _reals(torch, (m, n), "float32")
        yield from rows.of(f"operator/bmm/{m}x{n}", "operator", params, call, given, right, peer)


def _machine_calls(rows: Rows) -> Iterator[Finish]:
    """Level-3 BLAS and convolutions of machines, with all arrays on the GPU, beside torch's own call."""
    from gpu import blas3, outofcore

    torch = rows.torch
    machine = gpu.CudaMachine([0])
    for n in (1024, 4096):
        w, c = torch.randn(n, n, device="cuda"), torch.zeros(n, n, device="cuda")

        def right(x: Any, product: Any, w: Any = w) -> bool:
            expected = x.double() @ w.double()
            return bool((torch.as_tensor(product, device="cuda").double() - expected).abs().max() < 1e-2)

        def gemm(x: Any, w: Any = w, c: Any = c) -> Any:
            return blas3.sgemm(1.0, x, w, 0.0, c, overwrite_c=1, device=machine)

        given = _reals(torch, (n, n), "float32")
        peer = "torch f32", lambda x, w=w: x @ w, given
        yield from rows.of(f"sgemm/{n}", "machine", {"n": n, "dtype": "float32"}, gemm, given, right, peer)
    filters, given, out = _layer(torch)
    peer = "torch f32", lambda x: torch.nn.functional.conv2d(x, filters, padding=1), given

    def conv(x: Any) -> Any:
        return outofcore.conv2d(x, filters, padding=1, device=machine, out=out)

    def convolved(x: Any, y: Any) -> bool:
        expected = torch.nn.functional.conv2d(x[:1].double(), filters.double(), padding=1)
        return bool((torch.as_tensor(y, device="cuda")[:1].double() - expected).abs().max() < 1e-2)

    yield from rows.of(
        "outofcore/64", "machine", {"images": IMAGES, "channels": 64}, conv, given, convolved, peer
    )


def _layer(torch: Any) -> tuple[Any, list[Any], Any]:
    """Filters, images and a result of 64 channels, float32."""
    images = (IMAGES[0], 64, *IMAGES[1:])
    filters = torch.randn(64, 64, 3, 3, device="cuda")
    return filters, _reals(torch, images, "float32"), torch.empty(images, device="cuda")


def _cupy(rows: Rows) -> Iterator[Finish]:
    import cupy

    torch, n = rows.torch, 1024
    w = torch.randn(n, n, device="cuda")
    prepared, signs = gpu.prepare(w, "b"), _signs(torch, w).double()

    def right(x: Any, c: Any) -> bool:
        found = torch.as_tensor(c, device="cuda").double()
        return bool(torch.equal(found, _signs(torch, torch.as_tensor(x, device="cuda")).double() @ signs))

    for m in (8, 1024):
        given = [cupy.asarray(x) for x in _reals(torch, (m, n), "float32")]
        halves = [cupy.asarray(x) for x in _reals(torch, (m, n), "float16")]
        half = cupy.asarray(w.half())
        params = {"rows": m, "n": n, "dtype": "float32"}
        call: Callable[[Any], Any] = lambda x: gpu.bmm(x, prepared)  # noqa: E731
        peer = "cupy f16", lambda x, half=half: x @ half, halves
        yield from rows.of(f"bmm/{m}x{n}/float32", "bmm", params, call, given, right, peer)
    images = [cupy.asarray(x) for x in _reals(torch, (*IMAGES, 128), "float32")]

    def packed_right(x: Any, packed: Any) -> bool:
        return np.array_equal(packed.words.download(), gpu.pack_tensor(x.get(), layout="NHWC").words)

    yield from rows.of(
        "pack_tensor/128",
        "pack",
        {"images": IMAGES, "channels": 128, "dtype": "float32"},
        lambda x: gpu.pack_tensor(x, layout="NHWC"),
        images,
        packed_right,
        ("cupy copy", lambda x: x.copy(), images),
    )


def _sparse(rows: Rows) -> Iterator[Finish]:
    torch, rng = rows.torch, np.random.default_rng(1)
    flat = np.unique(rng.integers(0, np.prod(SHAPE), NONZEROS))
    at = np.array(np.unravel_index(flat, SHAPE))
    tensor = Coo(at, rng.standard_normal(flat.size).astype(np.float32), SHAPE)
    factors = [[torch.randn(size, RANK, device="cuda") for size in SHAPE] for _ in range(TURNS)]
    places = torch.from_numpy(at).cuda()
    values = torch.from_numpy(tensor.values).cuda().double()
    for scheme in ("coo", "mm-csf"):
        prepared = gpu.prepare(tensor, scheme=scheme)

        def right(given: Any, out: Any) -> bool:
            found = torch.as_tensor(out, device="cuda").double()
            terms = values[:, None] * given[1][places[1]].double() * given[2][places[2]].double()
            expected = torch.zeros(SHAPE[0], RANK, device="cuda", dtype=torch.float64)
            expected.index_add_(0, places[0], terms)
            return bool(torch.allclose(found, expected, rtol=1e-3, atol=1e-3))

        params = {"nonzeros": flat.size, "rank": RANK, "scheme": scheme}
        call: Callable[[Any], Any] = lambda given, prepared=prepared: gpu.mttkrp(prepared, given, 0)  # noqa: E731
        yield from rows.of(f"mttkrp/{scheme}", "mttkrp", params, call, factors, right)
