"""The one table that the section files write their rows into."""

from collections.abc import Callable
from typing import Any

import numpy as np

from simwarp.ptx.rows import Table

TABLE = Table()
row = TABLE.row

where: Callable[..., Any] = np.where
"""`numpy.where`, whose types do not survive operands of any type."""
