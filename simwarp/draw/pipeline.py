"""The timeline of a pipeline as a picture: a row for each stage, time from left to right."""

from __future__ import annotations

from collections.abc import Mapping

from simwarp.draw.picture import Cell, Grid, Picture

_CELLS = {
    ".": Cell(shade="zero"),
    "~": Cell(shade="zero", mark=True),
    "=": Cell(shade="one", mark=True),
    "#": Cell(shade="one"),
}
_NOTE = "from left to right: copy in flight (faint orange), filled (orange), read (green), free (grey)"


def timeline(rows: Mapping[str, str]) -> Picture:
    """The picture of a pipeline's timeline, from the rows of `simwarp.observe.pipeline.Pipeline.cells`.

    >>> timeline({"mbarrier 0": ".~=#"}).lines[0][0].row_labels
    ('mbarrier 0',)
    """
    cells = tuple(tuple(_CELLS[sign] for sign in row) for row in rows.values())
    grid = Grid(cells or ((),), row_labels=tuple(rows), style="bits", size=14)
    return Picture("Pipeline", ((grid,),) if rows else (), (_NOTE,))
