"""The ±1 convolution on an H200, beside the authors' figures and cuDNN.

    python benchmarks/bconv.py [--json benchmarks/results/h200/bconv.json]

64 x 64 images, 3 x 3 filters, stride 1, SAME, a batch of 16, as many input as output channels. Operands are
packed on the device, the output is int32 (``bconv-int32-first/C``) or bits against thresholds
(``bconv-bits-first/C``). These rows are btc1; the rows ``bconv/<scheme>`` are all of the papers' schemes.
What depends on filters alone (tiles, and the sums of their ones) is made once and not timed,
nor are tiles of images. One sample is twenty launches in one CUDA graph, on the same operands; the figure is
the median of samples. Operands are random, and one image of each answer is checked.

The floor is what the tensor cores can do at best (15,500 TOPS), or the time to write the output (4.3 TB/s).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from bmm import AUTHORS, graph_time
from common import Row, about_this_run, parser_of, publish
from hopper import seconds

import gpu
import reference
from gpu.bconv.btc import Borders, to_fsb
from gpu.bconv.geometry import conv_shape
from gpu.bconv.schemes import SCHEMES, Scheme, convolution_ptx
from gpu.compile import compiler_version
from reference.types import PackedTensor

BATCH, SIDE, WINDOW = 16, 64, 3
CHANNELS = (128, 256, 512, 1024)
TARGETS = {"int32": (126, 368, 1171, 4840), "bits": (112, 341, 1185, 4865)}
"""Microseconds of the published kernels, on another H200."""
MOST_OPERATIONS, MOST_BYTES = 15_500e12, 4.3e12


class Problem:
    """Packed random operands, and the reference result of one image."""

    def __init__(self, channels: int, random: np.random.Generator) -> None:
        self.images = (BATCH, SIDE, SIDE, channels)
        self.filters = (WINDOW, WINDOW, channels, channels)
        words = channels // 32
        self.image_words = random.integers(0, 2**32, (*self.images[:3], words), dtype=np.uint32)
        self.filter_words = random.integers(0, 2**32, (WINDOW, WINDOW, channels, words), dtype=np.uint32)
        spread = 3 * int((9 * channels) ** 0.5)
        self.thresholds = random.integers(-spread, spread, channels).astype(np.int32)
        self.flip = random.integers(0, 2, channels).astype(np.uint8)
        self.checked = int(random.integers(BATCH))
        image = PackedTensor(
            self.image_words[self.checked : self.checked + 1], (1, SIDE, SIDE, channels), "NHWC"
        )
        dots = reference.bconv2d(image, PackedTensor(self.filter_words, self.filters, "HWOI"))
        bits = reference.threshold_tensor(dots, self.thresholds, self.flip != 0)
        self.answers = {"int32": dots[0], "bits": bits.words[0]}


class Convolution:
    """The launches of one convolution, on buffers of its own."""

    def __init__(self, device: Any, scheme: Scheme, problem: Problem) -> None:
        self.scheme, self.problem = scheme, problem
        shape = conv_shape(problem.images, problem.filters)
        dtype = np.dtype(f"u{scheme.word // 8}")
        images, filters = (
            PackedTensor(device.upload(words.view(dtype)), size, layout, scheme.word)
            for words, size, layout in (
                (problem.image_words, problem.images, "NHWC"),
                (problem.filter_words, problem.filters, "HWOI"),
            )
        )
        if "HWNC-FSB" in scheme.images:
            images = to_fsb(images, device)
        self.operands: list[Any] = [scheme.arranged(one, device) for one in (images, filters)]
        if scheme.lines_of_tile:
            self.operands += [scheme.addends(self.operands[1], shape, device), Borders.of(shape).argument]
        self.rule = [device.upload(problem.thresholds), device.upload(problem.flip)]
        self.output = {
            "int32": device.allocate((*problem.images[:3], shape.filters), np.int32),
            "bits": device.allocate((*problem.images[:3], shape.filters // 32), np.uint32),
        }
        self.kernels = {
            name: device.load(convolution_ptx(scheme, shape, kind, "none", (9, 0)).text).kernel(scheme.name)
            for name, kind in (("int32", "int"), ("bits", "bits"))
        }
        self.grid, self.argument = scheme.launch(shape, "none"), shape.argument

    def launch(self, output: str, stream: Any) -> None:
        """Launch the kernel of one output."""
        rule = self.rule if output == "bits" else []
        y = self.output[output]
        self.kernels[output](*self.grid, *self.operands, y, self.argument, *rule, stream=stream)

    def check(self, output: str) -> None:
        """Compare one image of the result with the reference."""
        got = self.output[output].download()[self.problem.checked]
        if not np.array_equal(got, self.problem.answers[output]):
            raise SystemExit(f"{self.scheme.name} {output} {self.problem.images}: the answer is wrong")


def rows_of(device: Any, channels: int, i: int, random: np.random.Generator) -> list[Row]:
    problem = Problem(channels, random)
    library = {"cuDNN fp16": 1e6 * library_time(channels)}
    rows: list[Row] = []
    for output, targets in TARGETS.items():
        times: dict[str, float] = {}
        for scheme in SCHEMES.values():
            convolution = Convolution(device, scheme, problem)
            times[scheme.name] = 1e6 * seconds(device, partial(convolution.launch, output))
            convolution.check(output)
        peers = {AUTHORS: float(targets[i]), **library}
        cases = {f"bconv-{output}-first/{channels}": "btc1"}
        cases |= {f"bconv/{name}-{output}/{channels}": name for name in SCHEMES}
        for case, name in cases.items():
            target = float(targets[i]) if "first" in case else None
            params = {"channels": channels, "scheme": name, "output": output, "batch": BATCH}
            rows.append(
                Row(case, params, "us", "lower", times[name], peers, floor_of(channels, output), target)
            )
    return rows


def floor_of(channels: int, output: str) -> float:
    """A lower bound of the kernels' time, in microseconds."""
    outputs = BATCH * SIDE * SIDE * channels
    operations = 2 * outputs * WINDOW * WINDOW * channels
    written = outputs * 4 if output == "int32" else outputs / 8
    return 1e6 * max(operations / MOST_OPERATIONS, written / MOST_BYTES)


def library_time(channels: int) -> float:
    """The time of cuDNN through torch, on ±1 as float16, channels last."""
    like = {"dtype": torch.float16, "device": "cuda", "memory_format": torch.channels_last}
    x = torch.randint(0, 2, (BATCH, channels, SIDE, SIDE), device="cuda").mul_(2).sub_(1).to(**like)
    w = torch.randint(0, 2, (channels, channels, WINDOW, WINDOW), device="cuda").mul_(2).sub_(1).to(**like)
    return graph_time(lambda: torch.nn.functional.conv2d(x, w, padding=1))


def main() -> None:
    path = parser_of(__doc__).parse_args().json
    device, random = gpu.CudaDevice(), np.random.default_rng()
    torch.backends.cudnn.benchmark = True
    meta = about_this_run(
        gpu=device.name,
        driver=device.driver_version,
        cuda=torch.version.cuda,
        nvrtc=compiler_version().removeprefix("NVRTC "),
    )
    rows = [row for i, channels in enumerate(CHANNELS) for row in rows_of(device, channels, i, random)]
    publish(path, meta, rows)


if __name__ == "__main__":
    main()
