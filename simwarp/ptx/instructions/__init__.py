"""All supported instructions, one row each, in files by section of the PTX ISA.

To add one, write its row in the file of its section. Parser, executor, documentation and tests
use it from there.
"""

from simwarp.ptx.instructions import (
    approximate,
    asynchronous,
    atomic,
    comparison,
    control,
    conversion,
    extended,
    floating,
    half,
    integer,
    logic,
    matrix,
    mbarrier,
    memory,
    movement,
    synchronisation,
    tensor_maps,
    textures,
    video,
    warp,
    warpgroup,
)
from simwarp.ptx.instructions.table import TABLE
from simwarp.ptx.rows import Row

_FILES = (
    *(approximate, asynchronous, atomic, comparison, control, conversion, extended, floating, half),
    *(integer, logic, matrix, mbarrier, memory, movement, synchronisation, tensor_maps, textures),
    *(video, warp),
    warpgroup,
)
"""The modules whose import declares the rows."""
__all__ = ["ROWS", "TABLE"]


def _section(row: Row) -> list[int]:
    """The section of a row as numbers, to sort by."""
    return [int(part) for part in row.section.split(".")]


ROWS: dict[str, Row] = {row.name: row for row in sorted(TABLE.rows.values(), key=_section)}
"""All rows by name, in the order of the PTX ISA's chapter 9.7."""
