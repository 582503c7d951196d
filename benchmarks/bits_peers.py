"""The peers that `bits.py` measures in the same run: torch's, CUTLASS's, fp-cuda's, and rivals of our own.

CUTLASS's headers and fp-cuda's source are not part of this repository; nvcc compiles them at run time.
"""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from bits_cases import BATCH, SIDE, WINDOW, Case, bits_of, burst, launch_of, sets_of
from bits_rivals import U4, BitProduct, Xnor

from gpu.device import LaunchPlan
from reference.devices.tensor_map import TensorMap
from simwarp.lab.bench.peers import LeftOutError
from simwarp.lab.bench.peers import found as library

HERE = Path(__file__).resolve().parent
TERA = 1e12


class Peers:
    """The speeds of others, in TOPS by name; one that is missing is left out, and a line is printed.

    ``cutlass`` is the folder of CUTLASS's headers, its ``include``; ``fp_cuda``,
    ``ext/crates/fp-cuda/cuda_kernels`` of SpectralSequences/sseq.
    """

    def __init__(self, device: Any, cutlass: Path | None = None, fp_cuda: Path | None = None) -> None:
        self._device = device
        self._find = {
            "torch": partial(library, "torch"),
            "CUTLASS": lambda: cutlass_library(cutlass),
            "fp-cuda": lambda: fp_cuda_ptx(fp_cuda),
        }
        self._found = cache(self._look_for)
        self.numbers = cache(self._numbers)
        self.products, self.convolutions = cache(self._products), cache(self._convolutions)

    def _look_for(self, name: str) -> Any:
        """The module or function that a peer needs; None if the peer is left out."""
        try:
            return self._find[name]()
        except LeftOutError as error:
            print(f"{name} is left out: {error}")
            return None

    def _numbers(self, n: int) -> dict[str, float]:
        """Products of n x n matrices of ±1 as numbers."""
        return dict(torch_products(n)) if self._found("torch") else {}

    def _products(self, n: int) -> dict[str, float]:
        """Products of n x n matrices, of ±1 as numbers or of bits."""
        speeds = dict(self.numbers(n))
        if library := self._found("CUTLASS"):
            case = Cutlass(self._device, library, n)
            speeds["CUTLASS b1"] = max(self._speed(case) for case.tile in range(case.tiles))
        if ptx := self._found("fp-cuda"):
            speeds["fp-cuda"] = self._speed(FpCuda(self._device, ptx, n))
        return speeds | {"xnor": self._speed(Xnor(self._device, n)), "u4": self._speed(U4(self._device, n))}

    def _convolutions(self, channels: int) -> dict[str, float]:
        """Convolutions of the images and filters of `bits_cases.Convolution`."""
        return {"cuDNN f16": torch_convolution(channels)} if self._found("torch") else {}

    def _speed(self, case: Case) -> float:
        (time,) = burst(self._device, case, 1)
        return case.operations / time / TERA


# ---- libraries through torch -----------------------------------------------------------------------


def torch_products(n: int) -> Iterator[tuple[str, float]]:
    """The speeds of cuBLASLt's products of ±1, with B column-major."""
    import torch

    one = torch.ones((), device="cuda")
    kinds: dict[str, tuple[Any, Callable[[Any, Any], Any]]] = {
        "cuBLASLt s8": (torch.int8, torch._int_mm),
        "cuBLASLt e4m3": (torch.float8_e4m3fn, lambda a, b: _scaled(a, b, one)),
        "cuBLASLt f16": (torch.float16, torch.matmul),
    }
    for name, (dtype, multiply) in kinds.items():
        sets = [[_signs((n, n), dtype) for _ in "ab"] for _ in range(sets_of(2 * n * n * dtype.itemsize))]
        works = [partial(multiply, a, b.t()) for a, b in sets]
        try:
            time = _graph_time(works, short=n <= 4096)
        except RuntimeError as error:
            print(f"{name} is left out: {error}")
        else:
            yield name, 2 * n**3 / time / TERA


def torch_convolution(channels: int) -> float:
    """The speed of cuDNN's convolution of ±1, channels last."""
    import torch

    torch.backends.cudnn.benchmark = True
    last = {"memory_format": torch.channels_last}
    shape = (BATCH, channels, SIDE, SIDE)
    images = [_signs(shape, torch.float16).to(**last) for _ in range(sets_of(2 * int(np.prod(shape))))]
    w = _signs((channels, channels, WINDOW, WINDOW), torch.float16).to(**last)
    works = [lambda x=x: torch.nn.functional.conv2d(x, w, padding=1) for x in images]
    operations = 2 * np.prod(shape, dtype=float) * channels * WINDOW**2
    return float(operations) / _graph_time(works, short=channels <= 512) / TERA


def _scaled(a: Any, b: Any, one: Any) -> Any:
    """A product of float8 with scales of one."""
    import torch

    return torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)


def _signs(shape: tuple[int, ...], dtype: Any) -> Any:
    import torch

    return torch.randint(0, 2, shape, device="cuda", dtype=torch.int8).mul_(2).sub_(1).to(dtype)


def _graph_time(works: list[Callable[[], Any]], *, short: bool) -> float:
    """The time of one of several jobs that take turns, in the burst protocol."""
    from bmm import graph_time

    turn = itertools.cycle(works)
    inner = len(works) * -(-3 // len(works))
    return graph_time(lambda: next(turn)(), inner, samples=11, gap=0.06 if short else 0.3, warm=2)


# ---- products of bits ------------------------------------------------------------------------------


class Cutlass(BitProduct):
    """CUTLASS's product to int32, with the tile of a number."""

    tile = 0

    def __init__(self, device: Any, library: Any, n: int) -> None:
        self._library, self._device = library, device
        self.tiles = next(i for i in itertools.count() if library.tile_name(i) is None)
        self._c = device.allocate((n, n), np.int32)
        super().__init__("CUTLASS", n)

    def on_device(self) -> Iterator[Any]:
        """The launch for each set of operands."""
        n = self.n
        for host in self.host:
            a, b = map(self._device.upload, host)

            def launch(stream: Any, *, dependent: bool, a: Any = a, b: Any = b) -> None:
                queue = None if stream is None else stream.handle
                pointers = [ctypes.c_void_p(x) for x in (a.pointer, b.pointer, self._c.pointer, queue)]
                status = self._library.cutlass_b1(self.tile, n, n, n, *pointers)
                if status:
                    raise SystemExit(f"CUTLASS, {n} x {n}: status {status} of tile {self.tile}")

            yield launch

    def is_right(self) -> bool:
        """Compare some rows."""
        rows, counts = self.counts()
        return np.array_equal(self._c.download()[rows], counts)


class FpCuda(BitProduct):
    """fp-cuda's product to the parities of the counts. Its operands lie tile after tile of 1,024 bits."""

    rows, columns, stages, cluster = 192, 128, 4, 2

    def __init__(self, device: Any, ptx: str, n: int) -> None:
        self._device, self._ptx = device, ptx
        self._m = -(-n // (self.rows * self.cluster)) * self.rows * self.cluster
        self._n = -(-n // self.columns) * self.columns
        self._c = device.allocate((self._m, self._n // 32), np.uint32)
        super().__init__("fp-cuda", n)

    def on_device(self) -> Iterator[Any]:
        """The launch for each set of operands."""
        plan = self._plan()
        for a, b in self.host:
            placed = tiles_of(a, self.rows, self._m), tiles_of(b, self.columns, self._n)
            yield launch_of(self._device, plan, (*map(self._device.upload, placed), self._c))

    def _plan(self) -> LaunchPlan:
        m, n = self._m, self._n
        steps = -(-self.n // 1024)
        maps = (
            TensorMap("uint32", 0, (32, steps * m), (128,), (32, self.rows), (1, 1), swizzle=128),
            TensorMap("uint32", 0, (32, steps * n), (128,), (32, self.columns), (1, 1), swizzle=128),
            TensorMap("uint32", 0, (n // 32, m), (n // 8,), (self.columns // 32, self.rows), (1, 1)),
        )
        sizes = m // self.rows, n // self.columns, m, 1024 * steps
        of_stage = (self.rows + self.columns) * 128 + 16
        shared = self.stages * of_stage + 2 * self.rows * self.columns // 8
        blocks = self._device.multiprocessors // self.cluster * self.cluster
        grid, block = (blocks, 1, 1), (256, 1, 1)
        return LaunchPlan(self._ptx, "matmul_b1_kernel", grid, block, (*maps, *map(np.uint32, sizes)), shared)

    def is_right(self) -> bool:
        """Compare some rows."""
        rows, counts = self.counts()
        return np.array_equal(bits_of(self._c.download()[rows], self.n), counts & 1)


def tiles_of(lines: Any, box: int, padded: int) -> Any:
    """Lines of bits, padded to ``padded`` lines, as tiles of ``box`` lines by 1,024 bits."""
    n, words = lines.shape
    steps = -(-words // 32)
    whole = np.zeros((padded, 32 * steps), np.uint32)
    whole[:n, :words] = lines
    return np.ascontiguousarray(whole.reshape(-1, box, steps, 32).transpose(2, 0, 1, 3))


# ---- their code ------------------------------------------------------------------------------------


def cutlass_library(headers: Path | None) -> Any:
    """The product of ``peers/cutlass_b1.cu``, compiled with CUTLASS's headers."""
    if headers is None:
        raise LeftOutError("its headers are not given with --cutlass")
    options = ("-shared", "-Xcompiler", "-fPIC", "--expt-relaxed-constexpr", f"-I{headers}")
    chip = "-gencode=arch=compute_90a,code=sm_90a"
    with built(HERE / "peers" / "cutlass_b1.cu", "cutlass_b1.so", *options, chip) as path:
        library = ctypes.CDLL(str(path))
    library.tile_name.restype = ctypes.c_char_p
    return library


def fp_cuda_ptx(folder: Path | None) -> str:
    """The PTX of fp-cuda's kernel, compiled as its own build does."""
    if folder is None:
        raise LeftOutError("its source is not given with --fp-cuda")
    chip = "-gencode=arch=compute_90a,code=compute_90a"
    with built(folder / "matmul_b1.cu", "matmul_b1.ptx", "-ptx", "--use_fast_math", chip) as path:
        return path.read_text()


@contextmanager
def built(source: Path, name: str, *options: str) -> Iterator[Path]:
    """Compile a source by nvcc to a temporary file of this name."""
    if not source.exists():
        raise LeftOutError(f"{source} does not exist")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        command = ["nvcc", "-O3", "-std=c++17", *options, str(source), "-o", str(path)]
        try:
            subprocess.run(command, capture_output=True, text=True, check=True)
        except FileNotFoundError:
            raise LeftOutError("nvcc is not installed") from None
        except subprocess.CalledProcessError as error:
            raise LeftOutError(f"nvcc does not compile it:\n{error.stderr}") from None
        yield path
