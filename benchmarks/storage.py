"""The memory and the number of fibers of the sparse formats: tables 5 and 8 of the MM-CSF paper.

    python benchmarks/storage.py [--tensors NAME …] [--json benchmarks/results/cpu/storage.json]

``storage/<tensor>/<format>``: the bytes of all indices and pointers in MB (1e6 bytes), values left out, as
the paper counts them (`reference.sparse.index_bytes`). The target is what another program, written apart from
this one, computed for the same tensor.
``fibers/<tensor>/<format>``: fibers, long ones cut. Beside them are the figures of the paper's own tensor of
that name, which is larger.

Formats are made by ``gpu.mttkrp.formats``; each is turned back into coordinates, which are compared with the
tensor. The seconds are those of making it once, on all cores; ``core_seconds`` is what the cores worked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import numba
import numpy as np
from common import Row, about_this_run, parser_of, show, write
from tensors import make

from gpu.mttkrp import formats
from reference.sparse import index_bytes
from reference.types import BCsf, Coo, Csf, FCoo, Fibers, HiCoo, SparseTensor
from simwarp.lab.papers.mm_csf import FIBERS

FORMATS: dict[str, Callable[[Coo], SparseTensor]] = {
    **formats.FORMATS,
    "mm-csf-static": partial(formats.mm_csf, lengths="static"),
}
TARGETS = {
    "nell2": (240.0, 80.8, 377.6, 488.4, 90.8, 82.3, 82.3),
    "darpa": (120.0, 40.3, 219.1, 244.2, 123.3, 41.2, 41.2),
    "fr_s": (168.5, 123.6, 422.8, 342.9, 291.5, 104.8, 105.0),
    "flick4d": (160.3, 167.4, 613.6, 486.5, 278.9, 76.0, 76.1),
    "uber4d": (50.5, 21.5, 86.6, 153.2, 12.6, 22.5, 22.5),
}
"""MB of each tensor in the formats below."""
WITH_TARGETS = ("coo", "csf-one", "csf-all", "f-coo", "hicoo", "mm-csf", "mm-csf-static")
COMPARED = ("b-csf", "b-csf-one", "mm-csf")


def rows_of(name: str) -> list[Row]:
    """All rows of a tensor."""
    tensor = make(name)
    targets = dict(zip(WITH_TARGETS, TARGETS[name], strict=True))
    rows: list[Row] = []
    fibers: dict[str, int] = {}
    for label, form in FORMATS.items():
        made, times = timed(partial(form, tensor))
        check(made, tensor, f"{name}, {label}")
        found = counts(made)
        fibers[label] = found.get("fibers", 0)
        held = {"nonzeros": tensor.values.size, "held": index_bytes(made, "held") / 1e6}
        size = index_bytes(made) / 1e6
        params = {**held, **found, **times}
        rows.append(Row(f"storage/{name}/{label}", params, "MB", "lower", size, {}, None, targets.get(label)))
        show(rows[-1:])
        del made
    return [*rows, *fiber_rows(name, fibers)]


def fiber_rows(name: str, fibers: dict[str, int]) -> Iterator[Row]:
    """The line of a tensor in table 5: fibers, and the percentage saved against SPLATT-ALL."""
    for label in COMPARED:
        params = {"splatt_all": fibers["csf-all"], "reduction": percent(fibers[label], fibers["csf-all"])}
        peers: dict[str, float] = {}
        if name in FIBERS:
            millions, params["paper_reduction"] = FIBERS[name][label]
            peers[f"the paper's {name} (2019-11)"] = 1e6 * millions
        yield Row(f"fibers/{name}/{label}", params, "fibers", "lower", fibers[label], peers)


def percent(fewer: int, many: int) -> float:
    return 100 * (1 - fewer / many)


def timed(form: Callable[[], SparseTensor]) -> tuple[SparseTensor, dict[str, float]]:
    """The result of a function, and its seconds."""
    start, core_start = time.perf_counter(), time.process_time()
    made = form()
    seconds, core_seconds = time.perf_counter() - start, time.process_time() - core_start
    return made, {"seconds": round(seconds, 3), "core_seconds": round(core_seconds, 3)}


def check(made: SparseTensor, tensor: Coo, what: str) -> None:
    """Compare the content of a format with the tensor."""
    again = formats.to_coo(made)
    if not (np.array_equal(again.coords, tensor.coords) and np.array_equal(again.values, tensor.values)):
        raise SystemExit(f"{what}: the format holds another tensor")


def counts(made: SparseTensor) -> dict[str, int]:
    """The counts of a format, added over its trees, copies or partitions."""
    if made.parts:
        of_each = [counts(part) for part in made.parts]
        return {what: sum(each[what] for each in of_each) for what in of_each[0]}
    match made:
        case Csf():
            return {"slices": made.indices[0].size, "fibers": made.indices[-2].size}
        case BCsf():
            return {"slices": made.slices.size, "fibers": made.fiber_pointers.size - 1}
        case Fibers():
            return {"partitions": 1, "fibers": made.pointers.size - 1}
        case FCoo():
            return {"segments": made.rows.size}
        case HiCoo():
            return {"blocks": made.block_coords.shape[1]}
        case _:
            return {}


def compile_all() -> None:
    """Build every format of a small tensor once, so that later times exclude compilation."""
    tensor = make("small3", 0.001)
    for form in FORMATS.values():
        check(form(tensor), tensor, "small3")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--tensors", nargs="+", choices=TARGETS, default=[*TARGETS], metavar="NAME")
    options = parser.parse_args()
    meta = about_this_run(threads=numba.get_num_threads())
    compile_all()
    rows = [row for name in options.tensors for row in rows_of(name)]
    show([row for row in rows if row.unit == "fibers"])
    if options.json:
        write(options.json, meta, rows)


if __name__ == "__main__":
    main()
