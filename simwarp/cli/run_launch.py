"""The options of commands that launch a kernel of a file, and the launch that they describe."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simwarp.cli.run_compiler import CompilerOptions
from simwarp.cli.run_words import Word, name_all, read_argument, read_extent, read_settings

if TYPE_CHECKING:
    from simwarp.run.source import Source
    from simwarp.run.work import Work

SourceFile = Annotated[Path, typer.Argument(help="CUDA C++ (.cu), of which kernels count, or PTX (.ptx).")]
Grid = Annotated[str, typer.Option(help="Blocks: up to three numbers, 4,1,1.")]
Block = Annotated[str, typer.Option(help="Threads per block: up to three numbers.")]
KernelName = Annotated[str | None, typer.Option(help="The kernel's name, if the file has several.")]
Args = Annotated[
    list[str] | None,
    typer.Option(
        help="A.npy, A.npy:inout, out:float32:1024 (for the kernel to fill), zeros:int32:64x64, a number."
        " n=1000 sets a parameter by name, 0=1000 by position; the others are set in order."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="A __constant__ or __device__ variable: c=FILE.npy, n=5."),
]
Shared = Annotated[int, typer.Option(min=0, help="Bytes of dynamic shared memory per block.")]
Cooperative = Annotated[bool, typer.Option("--cooperative", help="All blocks at once.")]
Cluster = Annotated[str, typer.Option(help="Blocks per cluster: one to three numbers.")]
CheckActions = Annotated[
    list[str] | None, typer.Option(help="raise, report or off: for all, or by kind, races=report,bounds=off.")
]
Capability = Annotated[str, typer.Option(help="The compute capability to compile for and to simulate.")]
Budget = Annotated[
    int, typer.Option(min=1, help="The most steps of a launch; a step is an instruction of some lanes.")
]
Incomplete = Annotated[
    bool, typer.Option("--partial", help="Allow elements of out: arrays to stay unwritten.")
]
BUDGET = 10**8


@dataclass(frozen=True)
class LaunchOptions:
    """The values of the options that describe a launch: file, kernel, arguments, grid and block."""

    file: Path
    kernel: str | None
    grid: str
    block: str
    arg: list[str]
    set: list[str]
    shared: int
    cooperative: bool
    cluster: str

    @cached_property
    def words(self) -> dict[str, Word]:
        """The kernel arguments of ``--arg``, by name."""
        return name_all([read_argument(text) for text in self.arg])

    def load(self, compiler: CompilerOptions, cc: tuple[int, int]) -> Source:
        """Compile the CUDA C++ file, or read the PTX file."""
        from simwarp.run.source import load

        return load(self.file, cc=cc, kernel=self.kernel, **compiler.for_file(self.file))

    def work(self, source: Source) -> Work:
        """The launch that the options describe, for a kernel of ``source``."""
        from simwarp.run.binding import Given
        from simwarp.run.work import Work

        args = [Given(word.value, word.key, name) for name, word in self.words.items()]
        blocks, threads = read_extent("--grid", self.grid), read_extent("--block", self.block)
        clusters = read_extent("--cluster", self.cluster) if self.cluster else None
        variables = read_settings(self.set)
        kernel = source.kernel(self.kernel)
        return Work(source, kernel, blocks, threads, args, self.shared, self.cooperative, clusters, variables)
