"""The one table that the section files write their rows into."""

from simwarp.ptx.rows import Table

TABLE = Table()
row = TABLE.row
