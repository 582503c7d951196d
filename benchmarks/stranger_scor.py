"""ScoR's micro-benchmarks: fences and atomic operations of the right and of the wrong scope."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from stranger_labels import Labelled
from stranger_sources import StrangerError, blank

PROJECT = "csl-iisc/ScoR"
KERNELS = 32
HOST = re.compile(r"#include <stdio.h>|^void errCheck[\s\S]*?^}|^int main[\s\S]*", re.MULTILINE)
TRUE = {
    "norace_interwarp-block_fence-atom_hrd-indirect": (
        "atomic operations with a block's scope from two blocks, and no fence behind the loops that wait: "
        "ordered in the suite's model (HRF-indirect), not in that of PTX"
    )
}
"""Right kernels that PTX's model calls racy."""


def cases(folder: Path, volatile: bool = True) -> Iterator[Labelled]:
    """The labelled kernels of a checkout; the racy ones alone, without the word volatile, if it is False."""
    paths = sorted((folder / "ScoR" / "microbenchmarks" / "src").glob("*.cu"))
    if len(paths) != KERNELS:
        raise StrangerError(
            f"{folder} holds {len(paths)} of ScoR's {KERNELS} micro-benchmarks\n"
            f"check out github.com/{PROJECT} in it"
        )
    for path in paths:
        text, racy = HOST.sub(blank, path.read_text()), path.stem.startswith("race")
        blocks, threads = (int(size) for size in re.findall(r"#define (?:NBLOCKS|TPERBLK)\s+(\d+)", text))
        if volatile or racy:
            yield Labelled(
                path.stem,
                racy,
                text if volatile else text.replace("volatile", ""),
                path.name,
                "kmain",
                (blocks,),
                (threads,),
                lambda module, put: [put(np.zeros(1, np.uint32))],
                reason=TRUE.get(path.stem, ""),
            )
