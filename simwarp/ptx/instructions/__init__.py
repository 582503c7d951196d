"""Every instruction the executor knows, one row each, by PTX ISA section.

To add one: write its row in the file of its section. Parser, executor, documentation and tests
take it from there.
"""

from simwarp.ptx.instructions import (  # the order is that of the PTX ISA's chapter 9.7
    integer,
    comparison,  # isort: skip
    logic,
    movement,
    control,
    synchronisation,
)
from simwarp.ptx.instructions._table import TABLE
from simwarp.ptx.rows import Row

__all__ = ["ROWS", "TABLE", "comparison", "control", "integer", "logic", "movement", "synchronisation"]

ROWS: dict[str, Row] = TABLE.rows
"""All rows by name."""
