"""Other libraries' products of ±1 as numbers on a GPU: torch's and CuPy's, if installed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from simwarp.lab.bench.problems import Case, Convolution, Product
from simwarp.lab.network_studies import Timer


class LeftOutError(Exception):
    """Raised when a library cannot be compared with simwarp; the text is the reason."""


def found(name: str) -> Any:
    """Import a library; LeftOutError if it is missing or finds no GPU."""
    try:
        library = import_module(name)
    except ImportError as error:
        raise LeftOutError(error) from None
    if not library.cuda.is_available():
        raise LeftOutError(f"{name} finds no GPU")
    return library


class TorchClock:
    """The events and graphs of torch, in the interface that a `Timer` needs of a device."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    @contextmanager
    def capture(self) -> Generator[Any]:
        """Capture the torch launches of the block in a CUDA graph; ``launch`` of the result replays it."""
        graph = self._torch.cuda.CUDAGraph()
        self._torch.cuda.synchronize()
        with self._torch.cuda.graph(graph):
            yield SimpleNamespace(launch=graph.replay)

    def event(self) -> Any:
        """An event of torch's current stream, with the methods of `gpu` events."""
        event = self._torch.cuda.Event(enable_timing=True)
        seconds_since: Callable[[Any], float] = lambda earlier: earlier.event.elapsed_time(event) / 1e3  # noqa: E731
        return SimpleNamespace(
            event=event, record=event.record, synchronize=event.synchronize, seconds_since=seconds_since
        )


class Torch:
    """The libraries of torch: cuBLASLt in float16 and int8, and cuDNN in float16, channels last."""

    name = "torch"

    def __init__(self) -> None:
        self.torch = found("torch")
        self.version = self.torch.__version__

    def products(self, problem: Product) -> Iterator[Case]:
        """Products of float16 and of int8; the columns of B are contiguous for int8."""
        torch = self.torch
        a, b = (torch.from_numpy(x).cuda() for x in (problem.a, problem.b))
        halves, lines = [a.half(), b.half()], b.t().contiguous().t()
        yield self._case(problem, "float16", "float16", lambda: halves[0] @ halves[1], problem.moved(2, 2))
        if problem.n > 16 and problem.n % 8 == 0:  # cuBLASLt multiplies int8 matrices only of these sizes
            yield self._case(problem, "int8", "int32", lambda: torch._int_mm(a, lines), problem.moved(1, 4))

    def convolutions(self, problem: Convolution) -> Iterator[Case]:
        """Yield cuDNN's convolution of a problem in float16."""
        torch = self.torch
        torch.backends.cudnn.benchmark = True
        last = {"memory_format": torch.channels_last}
        x = torch.from_numpy(problem.x).cuda().half().permute(0, 3, 1, 2).contiguous(**last)
        w = torch.from_numpy(problem.w).cuda().half().permute(3, 2, 0, 1).contiguous(**last)

        def convolve() -> Any:
            return torch.nn.functional.conv2d(x, w, padding=1).permute(0, 2, 3, 1)

        yield self._case(problem, "float16", "float16", convolve, problem.moved(2, 2))

    def _case(
        self,
        problem: Product | Convolution,
        operands: str,
        output: str,
        call: Callable[[], Any],
        moved: float,
    ) -> Case:
        def right(result: Any) -> bool:
            return problem.is_right(result.cpu().numpy())

        meter = Timer(TorchClock(self.torch))
        return Case(self.name, operands, output, call, right, moved, meter, self.torch.cuda.synchronize)


class Cupy:
    """CuPy, of which the matrix product in float16 is measured."""

    name = "cupy"

    def __init__(self) -> None:
        self.cupy = found("cupy")
        self.version = self.cupy.__version__

    def products(self, problem: Product) -> Iterator[Case]:
        """Yield CuPy's product of a problem's matrices in float16."""
        cupy = self.cupy
        a, b = (cupy.asarray(x).astype(cupy.float16) for x in (problem.a, problem.b))

        def right(result: Any) -> bool:
            return problem.is_right(cupy.asnumpy(result))

        wait = cupy.cuda.get_current_stream().synchronize
        moved = problem.moved(2, 2)
        yield Case(self.name, "float16", "float16", lambda: cupy.matmul(a, b), right, moved, None, wait)

    def convolutions(self, problem: Convolution) -> Iterator[Case]:
        """Yield nothing: CuPy has no convolution."""
        return iter(())


PEERS: tuple[Callable[[], Any], ...] = (Torch, Cupy)
"""The function that makes each peer, or raises LeftOutError."""
