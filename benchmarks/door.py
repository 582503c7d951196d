"""The cost of a whole call from Python, with all its host work, beside torch's own calls.

    python benchmarks/door.py [--only bmm,bconv2d] [--schemes auto] [--tensors uber4d,nell2] [--json PATH]
    python benchmarks/door.py --only torch [--json PATH]
    python benchmarks/door.py --simulator [--json PATH]

``door/…`` is the time of one call through the public API until its result is there: the call, then a
synchronisation. ``door-host/…`` is the time until the call returns. Operands lie on the device; ``packed``
are bits as `gpu.pack` and `gpu.pack_tensor` give them, ``prepared`` what `gpu.prepare` makes, ``f32`` real
numbers. ``door-graph/…`` is such a call, with prepared operands and the scheme "auto", that was captured in a
CUDA graph: the launch of the graph, then a synchronisation; torch's is captured, too. A sample is one call on
an idle device. Every row is measured once in each of several rounds over all rows, minutes apart, and its
figure is the median of the rounds' medians: a neighbour that disturbs the host's caches for some seconds
changes one round of a row. Each round runs on the core that is disturbed least at its start. Ctrl-C ends the
rounds: the whole ones count, and the file says how many they are.

``the kernels alone`` is the time on the device of the very launches of such a call, measured in the same
rounds: they are captured in a CUDA graph, in which they follow one another (see `hopper.py`); those of
MTTKRP on the same arrays, since where a tensor lies in memory changes their time. Torch's calls are timed
in the same rounds, as ours are. Every answer is compared: products and convolutions with torch's on
integers, MTTKRP with `reference`.

``door-torch/…`` and ``door-torch-host/…`` are calls with tensors of torch that are new in each call: see
`door_torch.py`.

``door/nothing`` is torch's smallest launch and a wait: what host, driver and chip take beside any work.
``door/mttkrp/<tensor>/<format>`` is the mode that takes longest; ``door/cpd/<tensor>`` one iteration, from
one fit to the next. ``door/simulator/bmm`` is the smallest `gpu.bmm`, 1 x 1 x 1, on `simwarp.Device()`:
calls a second on one core.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from typing import Any

import numpy as np
from bits_cases import launch_of
from common import Row, about_this_run, parser_of, publish, use_one_core
from door_torch import torch_rows

import gpu
import simwarp
from gpu.bmm.schemes import SCHEMES, TENSOR_CORE_SCHEMES
from gpu.bmm.warpgroups import WARPGROUP_SCHEMES
from gpu.compile import compiler_version
from simwarp.lab.bench.rounds import WARM_CALLS, Rounds, Timing, medians

SIZES = (256, 512, 1024, 2048, 4096, 8192)
CHANNELS = (128, 256, 512, 1024)
BATCH, SIDE, WINDOW = 16, 64, 3
KINDS = ("packed", "prepared", "f32")
RANK = 32
TENSORS = ("uber4d", "nell2", "darpa", "fr_s", "flick4d")
FORMATS = ("coo", "csf-one", "b-csf", "f-coo", "hicoo", "mm-csf")
ITERATIONS = 21
ALONE = "the kernels alone"
HOST_TARGETS = {"bmm": 18.0, "bconv2d": 18.0, "mttkrp": 25.0}
"""Microseconds until a call with prepared operands returns."""
MORE = 20.0
"""Microseconds that a call may take beyond its kernels."""
MORE_IN_A_GRAPH = 6.0
"""Microseconds that a captured call may take beyond its kernels."""
OF_PRODUCTS = {**SCHEMES, **TENSOR_CORE_SCHEMES, "auto": WARPGROUP_SCHEMES["wgmma"]}
"""Schemes by the name that a call gives, with the format of its packed operands."""
LARGE = 4096
ROUNDS = 7
SIMULATED = 400


class Streamed(gpu.CudaDevice):
    """A CUDA device that launches everything in one stream, so that a call's launches can be captured."""

    repeat: Any = None  # a recorded call is launched kernel by kernel, too

    def __init__(self) -> None:
        super().__init__()
        self.queue: Any = None

    def kernel(self, ptx: str, name: str) -> Any:
        """The kernel of a name, launched in the stream."""
        return StreamedKernel(self, super().kernel(ptx, name))

    def launch(self, plan: Any, arrays: Any) -> None:
        """Launch a kernel in the stream."""
        launch_of(self, plan, tuple(arrays))(self.queue, dependent=plan.dependent)

    def launch_all(self, chain: Any, arrays: Any) -> None:
        """Launch several kernels in the stream."""
        for plan, given in zip(chain.plans, arrays, strict=True):
            self.launch(plan, given)


class StreamedKernel:
    """A kernel that launches in the stream of its device."""

    def __init__(self, device: Streamed, kernel: Any) -> None:
        self._device, self._kernel = device, kernel

    def __call__(self, *args: Any, **options: Any) -> None:
        """Launch in the stream."""
        self._kernel(*args, **options | {"stream": self._device.queue})


def in_microseconds(call: Callable[[], Any], wait: Callable[[], None]) -> tuple[float, float]:
    """Median times of some calls: with the result, and until they return."""
    whole, host = medians(call, wait)
    return 1e6 * whole, 1e6 * host


Finish = Callable[[], Row]
"""Makes a row when all rounds are over."""


class Bench(Rounds):
    """The device, the device that captures, and the measurements of each round."""

    def __init__(self) -> None:
        import torch
        from hopper import seconds

        super().__init__()
        self.torch, self._seconds = torch, seconds
        self.device, self.streamed = gpu.CudaDevice(), Streamed()

    def door(self, call: Callable[[], Any], wait: Callable[[], None] | None = None) -> Timing:
        """Time a call with its result, and until it returns."""
        return self.timing(lambda: in_microseconds(call, wait or self.device.synchronize))

    def alone(self, call: Callable[[], Any]) -> Timing:
        """The device time of the launches of a call, captured."""

        def launch(stream: Any) -> None:
            self.streamed.queue = stream
            call()

        def measure() -> float:
            taken = self.on_device(launch)
            self.streamed.queue = None
            self.streamed.synchronize()
            return taken

        return self.timing(measure)

    def on_device(self, launch: Callable[[Any], None]) -> float:
        """The device time of launches in a stream, in microseconds."""
        return 1e6 * self._seconds(self.streamed, launch, inner=10, samples=3)

    def of_torch(self, call: Callable[[], Any]) -> Timing:
        """Time torch's call as `door` does."""
        return self.door(call, self.torch.cuda.synchronize)

    def rows(
        self,
        what: str,
        params: dict[str, Any],
        call: Callable[[], Any],
        alone: Timing,
        check: Callable[[Any], bool],
        peers: dict[str, Timing],
        target: Callable[[float], float | None],
        host_target: float | None = None,
    ) -> tuple[Finish, Finish]:
        """Two rows of a call: its time with the result, and its time until it returns."""
        if not check(call()):
            raise SystemExit(f"{what}: the answer is wrong")
        ours = self.door(call)

        def whole() -> Row:
            kernels = alone.medians[0]
            beside = {ALONE: kernels, **{name: timing.medians[0] for name, timing in peers.items()}}
            return Row(f"door/{what}", params, "us", "lower", ours.medians[0], beside, target=target(kernels))

        def host() -> Row:
            beside = {name: timing.medians[1] for name, timing in peers.items()}
            return Row(
                f"door-host/{what}", params, "us", "lower", ours.medians[1], beside, target=host_target
            )

        return whole, host

    def captured(
        self,
        what: str,
        params: dict[str, Any],
        call: Callable[[], Any],
        alone: Timing,
        check: Callable[[Any], bool],
        peers: dict[str, Timing],
    ) -> Finish:
        """The row of a call that is captured once, and then launched as a graph."""
        call()  # what is made at a first call
        with self.device.capture() as graph:
            result = call()
        graph.launch()
        if not check(result):
            raise SystemExit(f"{what} in a graph: the answer is wrong")
        ours = self.door(graph.launch)

        def row() -> Row:
            kernels = alone.medians[0]
            beside = {ALONE: kernels, **{name: timing.medians[0] for name, timing in peers.items()}}
            target = kernels + MORE_IN_A_GRAPH
            return Row(f"door-graph/{what}", params, "us", "lower", ours.medians[0], beside, target=target)

        return row

    def torch_captured(self, call: Callable[[], Any]) -> Timing:
        """Time torch's call as `captured` does."""
        for _ in range(WARM_CALLS):
            call()
        self.torch.cuda.synchronize()
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            call()
        return self.of_torch(graph.replay)


def target_of(kind: str, large: bool) -> Callable[[float], float | None]:
    """The target time of a call, computed from the time of its kernels."""
    if kind == "prepared":
        return lambda alone: alone + MORE
    if kind == "f32" and large:
        return lambda alone: max(1.1 * alone, alone + MORE)
    return lambda alone: None


def bmm_rows(bench: Bench, sizes: Sequence[int], schemes: Sequence[str]) -> Iterator[Finish]:
    torch = bench.torch
    for n in sizes:
        real = [torch.randn(n, n, device="cuda") for _ in "ab"]
        a, b = (torch.where(x >= 0, 1, -1).to(torch.int8) for x in real)
        expected = torch._int_mm(a, b.t().contiguous().t())
        half = a.half(), b.half()
        transposed = b.t().contiguous().t()
        peers = {
            "torch f16": bench.of_torch(lambda half=half: half[0] @ half[1]),
            "torch int8": bench.of_torch(lambda a=a, b=transposed: torch._int_mm(a, b)),
        }

        def right(c: Any, expected: Any = expected) -> bool:
            return bool(torch.equal(torch.as_tensor(c, device="cuda"), expected))

        for name in schemes:
            scheme = OF_PRODUCTS[name]
            for kind in KINDS:

                def made(
                    device: Any, name: str = name, scheme: Any = scheme, kind: str = kind, real: Any = real
                ) -> Callable[[], Any]:
                    left, right = (device.adopt(x) for x in real)
                    if kind == "packed":
                        form: dict[str, Any] = {"word": scheme.word, "first": scheme.first}
                        left = gpu.pack(left, layout="column", **form)
                        right = gpu.pack(right, layout="row", **form)
                    if kind == "prepared":
                        left, right = (
                            gpu.prepare(x, role, scheme=name) for x, role in ((left, "a"), (right, "b"))
                        )
                    return lambda: gpu.bmm(left, right, scheme=name)

                call, alone = made(bench.device), bench.alone(made(bench.streamed))
                if (name, kind) == ("auto", "prepared"):
                    captured = {"torch f16": bench.torch_captured(lambda half=half: half[0] @ half[1])}
                    params = {"n": n, "scheme": name}
                    yield bench.captured(f"bmm/{n}", params, call, alone, right, captured)
                yield from bench.rows(
                    f"bmm/{name}/{n}/{kind}",
                    {"n": n, "scheme": name, "operands": kind},
                    call,
                    alone,
                    right,
                    peers,
                    target_of(kind, n >= LARGE),
                    HOST_TARGETS["bmm"] if kind == "prepared" else None,
                )


def bconv2d_rows(bench: Bench, channels: Sequence[int]) -> Iterator[Finish]:
    torch = bench.torch
    torch.backends.cudnn.benchmark = True
    for c in channels:
        x = torch.randn(BATCH, SIDE, SIDE, c, device="cuda")
        w = torch.randn(WINDOW, WINDOW, c, c, device="cuda")
        signs = [torch.where(t >= 0, 1.0, -1.0) for t in (x, w)]
        half = [
            t.permute(*order).half().contiguous(memory_format=torch.channels_last)
            for t, order in zip(signs, ((0, 3, 1, 2), (3, 2, 0, 1)), strict=True)
        ]

        def convolve(given: Any = half) -> Any:
            return torch.nn.functional.conv2d(*given, padding=1)

        peers = {"torch f16": bench.of_torch(convolve)}
        image = convolve([half[0][:1].double(), half[1].double()])[0].permute(1, 2, 0).to(torch.int32)

        def right(y: Any, image: Any = image) -> bool:
            return bool(torch.equal(torch.as_tensor(y, device="cuda")[0], image))

        for kind in KINDS:

            def made(device: Any, kind: str = kind, x: Any = x, w: Any = w) -> Callable[[], Any]:
                images, filters = device.adopt(x), device.adopt(w)
                if kind == "packed":
                    images = gpu.pack_tensor(images, layout="NHWC")
                    filters = gpu.pack_tensor(filters, layout="HWOI")
                if kind == "prepared":
                    images, filters = gpu.prepare(images, "x"), gpu.prepare(filters, "w")
                return lambda: gpu.bconv2d(images, filters)

            call, alone = made(bench.device), bench.alone(made(bench.streamed))
            params = {"channels": c, "batch": BATCH, "side": SIDE}
            if kind == "prepared":
                captured = {"torch f16": bench.torch_captured(convolve)}
                yield bench.captured(f"bconv2d/{c}", params, call, alone, right, captured)
            yield from bench.rows(
                f"bconv2d/{c}/{kind}",
                {**params, "operands": kind},
                call,
                alone,
                right,
                peers,
                target_of(kind, large=False),
                HOST_TARGETS["bconv2d"] if kind == "prepared" else None,
            )


def pack_rows(bench: Bench, sizes: Sequence[int]) -> Iterator[Finish]:
    torch = bench.torch
    for n in sizes:
        x = torch.randn(n, n, device="cuda")
        signs = gpu.pack(x[:64].cpu().numpy(), layout="column", device=bench.device).words

        def right(packed: Any, signs: Any = signs) -> bool:
            return bool((packed.words.download()[:, :64] == signs).all())

        def made(device: Any, x: Any = x) -> Callable[[], Any]:
            source = device.adopt(x)
            return lambda: gpu.pack(source, layout="column")

        peers = {"torch copy": bench.of_torch(x.clone)}
        alone = bench.alone(made(bench.streamed))
        params = {"n": n, "dtype": "float32"}
        yield from bench.rows(f"pack/{n}", params, made(bench.device), alone, right, peers, lambda _: None)


def sparse_problem(name: str) -> tuple[Any, list[Any], list[tuple[Any, Any]]]:
    """A tensor, its factors, and for each mode the answer and how far from it a call may be."""
    from tensors import make

    import reference

    random = np.random.default_rng()
    tensor = make(name)
    factors = [random.uniform(-1, 1, (size, RANK)).astype(np.float32) for size in tensor.shape]
    answers = [
        (reference.mttkrp(tensor, factors, mode), reference.mttkrp_bound(tensor, factors, mode, np.float32))
        for mode in range(len(factors))
    ]
    return tensor, factors, answers


def mttkrp_rows(
    bench: Bench, names: Sequence[str], problems: Iterable[Any], formats: Sequence[str]
) -> Iterator[Finish]:
    for name, (tensor, host, answers) in zip(names, problems, strict=True):
        torches = [of_indices(bench, tensor, host, mode) for mode in range(len(host))]
        for of in formats:
            found: list[tuple[Finish, Finish]] = []
            prepared = gpu.prepare(tensor, scheme=of, device=bench.device)
            factors = [bench.device.upload(factor) for factor in host]
            for mode, (expected, bound) in enumerate(answers):

                def call(prepared: Any = prepared, factors: Any = factors, mode: int = mode) -> Any:
                    return gpu.mttkrp(prepared, factors, mode)

                def right(out: Any, expected: Any = expected, bound: Any = bound) -> bool:
                    return bool((abs(out.download() - expected) <= bound).all())

                found.append(
                    bench.rows(
                        f"mttkrp/{name}/{of}",
                        {"format": of, "rank": RANK, "dtype": "float32", "mode": mode},
                        call,
                        _kernels_of(bench, prepared, factors, mode),
                        right,
                        {"torch index_add_": torches[mode]},
                        target_of("prepared", large=False),
                        HOST_TARGETS["mttkrp"],
                    )
                )
            for modes in zip(*found, strict=True):
                yield lambda modes=modes: _slowest(modes)
        row = cpd_row(bench, name, tensor)
        yield lambda row=row: row


def _slowest(modes: Sequence[Finish]) -> Row:
    """The row of the mode that takes longest."""
    return max((finish() for finish in modes), key=lambda row: row.ours)


def _kernels_of(bench: Bench, prepared: Any, factors: Sequence[Any], mode: int) -> Timing:
    """The time of an MTTKRP's launches, on the arrays of the call: their addresses influence it."""
    addresses = [factor.pointer for factor in factors]

    def measure() -> float:
        out = gpu.mttkrp(prepared, factors, mode)  # freed at the end, so that the call gets the same memory
        plan = prepared.plan(mode, RANK, out.dtype)
        return bench.on_device(lambda stream: plan.launch(addresses, out, stream))

    return bench.timing(measure)


def of_indices(bench: Bench, tensor: Any, host: Sequence[Any], mode: int) -> Timing:
    """MTTKRP in plain torch: gather rows, multiply them, and add them up by index."""
    torch = bench.torch
    coords = [torch.from_numpy(tensor.coords[n].astype(np.int64)).cuda() for n in range(len(host))]
    values, factors = torch.from_numpy(tensor.values).cuda(), [torch.from_numpy(x).cuda() for x in host]

    def call() -> Any:
        rows = values[:, None]
        for n, factor in enumerate(factors):
            if n != mode:
                rows = rows * factor[coords[n]]
        return torch.zeros_like(factors[mode]).index_add_(0, coords[mode], rows)

    return bench.of_torch(call)


def cpd_row(bench: Bench, name: str, tensor: Any) -> Row:
    """An iteration: the median time from one to the next, which the host sees when the fit arrives."""
    from gpu.mttkrp import FORMATS as KNOWN

    stamps: list[float] = []
    gpu.cpd_als(
        KNOWN["f-coo"](tensor),
        RANK,
        iterations=ITERATIONS,
        tolerance=0.0,
        device=bench.device,
        progress=lambda iteration, fit: stamps.append(time.perf_counter()),
    )
    us = 1e6 * statistics.median(end - start for start, end in pairwise(stamps))
    return Row(f"door/cpd/{name}", {"format": "f-coo", "rank": RANK, "dtype": "float32"}, "us", "lower", us)


def simulator_row() -> Row:
    """The calls per second of the smallest product on the simulator."""
    device = simwarp.Device()
    a, b = (device.upload(np.ones((1, 1), np.float32)) for _ in "ab")
    for _ in range(20):
        gpu.bmm(a, b, scheme="bmm32")
    if gpu.bmm(a, b, scheme="bmm32").download()[0, 0] != 1:
        raise SystemExit("door/simulator/bmm: the answer is wrong")
    times: list[float] = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(SIMULATED):
            gpu.bmm(a, b, scheme="bmm32")
        times.append((time.perf_counter() - start) / SIMULATED)
    params = {"m": 1, "n": 1, "k": 1, "scheme": "bmm32", "operands": "f32", "calls": SIMULATED}
    return Row("door/simulator/bmm", params, "calls/s", "higher", 1 / statistics.median(times))


def show_round(done: int, of: int) -> None:
    """Print which round begins."""
    print(f"round {done + 1} of {of}", file=sys.stderr)


def nothing_row(bench: Bench) -> Finish:
    """The time of a launch and a wait without work."""
    timing = bench.of_torch(lambda: bench.torch.cuda._sleep(0))
    return lambda: Row("door/nothing", {}, "us", "lower", timing.medians[0])


def gpu_rows(bench: Bench, options: Any) -> Iterator[Finish]:
    chosen = options.only.split(",")
    names = options.tensors.split(",") if "mttkrp" in chosen else []
    with ProcessPoolExecutor(len(names) or 1, get_context("spawn")) as pool:
        problems = pool.map(sparse_problem, names)  # made while the other rows are
        if "bmm" in chosen:
            yield nothing_row(bench)
            yield from bmm_rows(bench, SIZES, options.schemes.split(","))
        if "bconv2d" in chosen:
            yield from bconv2d_rows(bench, CHANNELS)
        if "torch" in chosen:
            yield nothing_row(bench)
            yield from torch_rows(bench)
        if "pack" in chosen:
            yield from pack_rows(bench, SIZES)
        yield from mttkrp_rows(bench, names, problems, options.formats.split(","))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--only", default="bmm,bconv2d,pack,mttkrp", metavar="NAMES")
    parser.add_argument("--schemes", default=",".join(OF_PRODUCTS), metavar="NAMES", help="of bmm")
    parser.add_argument("--tensors", default=",".join(TENSORS), metavar="NAMES")
    parser.add_argument("--formats", default=",".join(FORMATS), metavar="NAMES")
    parser.add_argument("--simulator", action="store_true", help="only the row that needs no GPU")
    options = parser.parse_args()
    if options.simulator:
        use_one_core()
        meta, rows = about_this_run(nvrtc=compiler_version().removeprefix("NVRTC ")), [simulator_row()]
    else:
        bench = Bench()
        meta = about_this_run(
            gpu=bench.device.name,
            driver=bench.device.driver_version,
            torch=bench.torch.__version__,
            cuda=bench.torch.version.cuda,
            nvrtc=compiler_version().removeprefix("NVRTC "),
        )
        finishes: list[Finish] = []
        for finish in gpu_rows(bench, options):
            finishes.append(finish)
            print(f"{len(finishes)} rows prepared", end="\r", file=sys.stderr)
        meta["rounds"] = bench.measure(ROUNDS, show_round)
        rows = [finish() for finish in finishes]
    publish(options.json, meta, rows)


if __name__ == "__main__":
    main()
