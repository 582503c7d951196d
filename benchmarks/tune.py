"""The speed of every tile of Hopper's product, by output and size: which one is the fastest, and by how much.

    python benchmarks/tune.py [--outputs words int32 …] [--sizes 1024 …] [--json PATH]

Each figure is that of `bits.py`'s burst protocol, in TOPS. The tiles that win belong into
`gpu.bmm.warpgroups.TILES`, in an order that its estimate of a tile's time then follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bits import speed_row
from bits_cases import Product, burst
from common import Row, about_this_run, parser_of, publish

import gpu
from gpu.bmm.warpgroups import MOST_SHARED, TILES, WARPGROUP_SCHEMES, Tile
from gpu.compile import compiler_version

BOXES = {"words": (0,), "lines": (0,)}
SHAPES = (
    (64, 64),
    (64, 128),
    (64, 256),
    (128, 64),
    (128, 128),
    (128, 192),
    (128, 256),
    (192, 128),
    (256, 128),
)
MOST_SUMS = 192
"""The most sums of a thread."""


def candidates(output: str) -> Iterator[Tile]:
    """Tiles whose stages fill shared memory: of one warpgroup, of two together, and of two teams."""
    for rows, columns in SHAPES:
        for consumers, teams in ((1, 1), (2, 1), (2, 2)):
            members = consumers // teams
            if rows % (64 * members) or rows // members * columns // 128 > MOST_SUMS:
                continue
            for boxes in BOXES.get(output, (0, 1, 2, 3)):
                tiles = (Tile(rows, columns, consumers, stages, boxes, teams) for stages in range(8, 1, -1))
                fitting = [tile for tile in tiles if tile.shared(output) <= MOST_SHARED]
                yield from fitting[:2]


def rows_of(device: Any, outputs: list[str], sizes: list[int]) -> Iterator[Row]:
    """A row for each output, size and tile; the tile that is chosen today is marked."""
    for output in outputs:
        for n in sizes:
            chosen = WARPGROUP_SCHEMES["wgmma"].tile(n, n, n, output, device.multiprocessors)
            for tile in candidates(output):
                product = Product(device, (n, n, n), output, tile)
                shape = f"{tile.rows}x{tile.columns}/{tile.consumers}/{tile.teams}/{tile.stages}/{tile.boxes}"
                params, times = {"n": n, "chosen": tile == chosen}, burst(device, product)
                yield speed_row(f"{output}/{n}/{shape}", product, times, None, params)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--outputs", nargs="+", choices=TILES, default=["words", "int32", "int16"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[1024, 2048, 4096, 8192, 16384])
    options = parser.parse_args()
    device = gpu.CudaDevice()
    meta = about_this_run(gpu=device.name, nvrtc=compiler_version())
    publish(options.json, meta, list(rows_of(device, options.outputs, options.sizes)))


if __name__ == "__main__":
    main()
