"""The table of rows that every section file adds to, and functions that several files share."""

from collections.abc import Callable
from typing import Any

import numpy as np

from simwarp.ptx.rows import Form, Table

TABLE = Table()
row = TABLE.row

where: Callable[..., Any] = np.where
"""`numpy.where`, typed to accept operands of any type."""


def nothing(form: Form) -> None:
    """The function of rows that compute no value: the engine executes them by their kind."""


def operand(form: Form, a: Any) -> Any:
    """Return the operand: the function of rows such as moves and loads."""
    return a
