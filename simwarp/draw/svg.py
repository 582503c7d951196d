"""Render a picture as one self-contained SVG element with light and dark colours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from itertools import accumulate, groupby

from simwarp.draw.hues import rules
from simwarp.draw.picture import Cell, Grid, Picture
from simwarp.draw.text import to_text

STYLE = """
.simwarp-picture{--paper:#fff;--ink:#1f2328;--soft:#57606a;--line:#00796b;--tint:#b2dfdb;--plain:#eceff1;
--zero:#e4e9ec;--one:#00796b;--marked-zero:#ffd08a;--marked-one:#c25700;max-width:100%;height:auto;font-family:ui-monospace,monospace}
@media (prefers-color-scheme:dark){.simwarp-picture{--paper:#1e2129;--ink:#e6e9ef;--soft:#a9b1bd;
--line:#80cbc4;--tint:#1f5a55;--plain:#2c323d;--zero:#2f3541;--one:#80cbc4;--marked-zero:#6b4a12;--marked-one:#ffb74d}}
.simwarp-picture text{fill:var(--ink);font-size:12px}
.simwarp-picture .title{font-size:15px;font-weight:bold}
.simwarp-picture .grid-title{font-size:13px;font-weight:bold}
.simwarp-picture .lead{font-size:20px}
.simwarp-picture .corner,.simwarp-picture .axis,.simwarp-picture .note{fill:var(--soft)}
.simwarp-picture .paper,.simwarp-picture .on{fill:var(--paper)}
.simwarp-picture .tint{fill:var(--tint);stroke:var(--line)}
.simwarp-picture .plain{fill:var(--plain);stroke:var(--line)}
.simwarp-picture .padding{fill:none;stroke:var(--line);stroke-dasharray:3 3}
.simwarp-picture .zero{fill:var(--zero)}
.simwarp-picture .one{fill:var(--one)}
.simwarp-picture .marked-zero{fill:var(--marked-zero)}
.simwarp-picture .marked-one{fill:var(--marked-one)}
.simwarp-picture .mesh{fill:none;stroke:var(--paper);stroke-width:.8}
""".strip()
"""The style sheet of all pictures, except the colours of lanes."""

_CHARACTER = 7.3
_EDGE = 18
_GAP = 16
_LEAD = 44
_LEAST_BOX = 32.0
_ANCHORS = {"start": "", "middle": ' text-anchor="middle"', "end": ' text-anchor="end"'}


def to_svg(picture: Picture) -> str:
    """A picture as one self-contained ``<svg>`` element, for a file or a page.

    It needs no font file and no network, follows the reader's preference for light or dark, and has the title
    and the notes as ``<title>`` and ``<desc>``. Equal pictures give equal text.

    Examples
    --------
    >>> svg = to_svg(Picture("two words", ((Grid(((Cell("D0"), Cell("D1")),)),),)))
    >>> svg.count("<rect"), ">D1</text>" in svg
    (3, True)
    """
    body = [text_element(picture.title, _EDGE, _EDGE + 14, "title")]
    right, top = _EDGE + len(picture.title) * 9.2, float(_EDGE + 40)
    for line in picture.lines:
        x, bottom = float(_EDGE), top
        for i, grid in enumerate(line):
            frame = _Frame(grid, x + (_LEAD if i else 0), top)
            if i and grid.lead:
                body.append(text_element(grid.lead, x + _LEAD / 2, frame.middle + 7, "lead", "middle"))
            body += frame.draw()
            x, bottom = frame.right, max(bottom, frame.bottom)
        right, top = max(right, x), bottom + _GAP + 6
    for note in picture.notes:
        body.append(text_element(note, _EDGE, top + 6, "note"))
        right, top = max(right, _EDGE + len(note) * _CHARACTER), top + 18
    width, height = _number(right + _EDGE), _number(top + _EDGE - 10)
    return element(picture.title, picture.notes, _style(picture), (width, height), body)


def element(title: str, notes: Iterable[str], style: str, size: tuple[str, str], body: Iterable[str]) -> str:
    """An ``<svg>`` element with title, description, style sheet and background."""
    width, height = size
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="simwarp-picture" role="img" '
            f'width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(' '.join(notes))}</desc>",
            f"<style>{style}</style>",
            f'<rect class="paper" width="{width}" height="{height}" rx="6"/>',
            *body,
            "</svg>",
        ]
    )


def drawn(picture: Picture, svg: bool) -> str:
    """A picture as SVG if ``svg``, else as text."""
    return to_svg(picture) if svg else to_text(picture)


def _style(picture: Picture) -> str:
    """The style sheet, with only the colours that the picture uses."""
    cells = (cell for line in picture.lines for grid in line for row in grid.cells for cell in row)
    return f"{STYLE}\n{rules(cell.hue for cell in cells if cell.hue is not None)}".rstrip()


class _Frame:
    """A grid at its position in the picture: the coordinates of its cells, in SVG units, and its elements."""

    def __init__(self, grid: Grid, left: float, top: float) -> None:
        self.grid = grid
        label = max((len(text) for text in (grid.corner, *grid.row_labels)), default=0)
        note = max(map(len, grid.row_notes), default=0)
        self.left = left + (label * _CHARACTER + 12 if label else 0)
        self.title_y = top
        self.header_y = top + (20 if grid.title else 0)
        self.top = self.header_y + (8 if grid.column_labels else -8)
        self.widths, self.heights = self._widths(), self._heights()
        gaps = [4 * (i // grid.group if grid.group else 0) for i in range(len(self.widths))]
        starts = accumulate(self.widths[:-1], initial=0.0)
        self.x = [self.left + before + gap for before, gap in zip(starts, gaps, strict=True)]
        self.y = [self.top + before for before in accumulate(self.heights[:-1], initial=0.0)]
        self.edge = self.x[-1] + self.widths[-1]
        self.right = max(self.edge + (note * _CHARACTER + 8 if note else 0), self.left + len(grid.title) * 8)
        self.bottom = self.y[-1] + self.heights[-1]
        self.middle = (self.top + self.bottom) / 2

    def _widths(self) -> list[float]:
        grid = self.grid
        if grid.style == "bits":
            return [float(grid.size)] * len(grid.cells[0])
        cells = [cell for row in grid.cells for cell in row]
        # The label of a cell with padding gets half the cell.
        parts = 2 if not grid.tall and any(cell.padding for cell in cells) else 1
        labels = [max(len(cell.label), grid.least) * 8 * parts + 12 for cell in cells]
        full = float(max(_LEAST_BOX, *labels, *(len(label) * 8 + 8 for label in grid.column_labels)))
        gaps = [all(cell.shade == "gap" for cell in column) for column in zip(*grid.cells, strict=True)]
        return [_LEAST_BOX if gap else full for gap in gaps]

    def _heights(self) -> list[float]:
        grid = self.grid
        if grid.style == "bits":
            return [float(grid.size)] * len(grid.cells)
        full = 60.0 if grid.tall else 26.0
        return [26.0 if all(cell.shade == "gap" for cell in row) else full for row in grid.cells]

    def draw(self) -> Iterator[str]:
        """The SVG elements of the grid."""
        grid = self.grid
        if grid.style == "blank":
            return
        if grid.title:
            yield text_element(grid.title, self.left, self.title_y, "grid-title")
        if grid.corner:
            yield text_element(grid.corner, self.left - 12, self.header_y, "corner", "end")
        for label, x, width in zip(grid.column_labels, self.x, self.widths, strict=False):
            if label:
                yield text_element(label, x + width / 2, self.header_y, "axis", "middle")
        beside = (grid.row_labels, self.left - 8, "end"), (grid.row_notes, self.edge + 8, "start")
        for texts, x, anchor in beside:
            for label, y, height in zip(texts, self.y, self.heights, strict=False):
                if label:
                    yield text_element(label, x, y + height / 2 + 4, "axis", anchor)
        yield from self._bits() if grid.style == "bits" else self._boxes()

    def _bits(self) -> Iterator[str]:
        """The cells of a bit grid: one path per kind of cell, to keep the file small."""
        grid = self.grid
        for name in ("zero", "one", "marked-zero", "marked-one"):
            bars = "".join(
                f"M{_number(self.x[start])} {_number(y)}h{length}v{grid.size}h-{length}z"
                for row, y in zip(grid.cells, self.y, strict=True)
                for start, length in self._runs(row, name)
            )
            if bars:
                yield f'<path class="{name}" d="{bars}"/>'
        across = "".join(
            f"M{_number(self.left)} {_number(y)}H{_number(self.edge)}" for y in (*self.y[1:], self.bottom)
        )
        down = "".join(f"M{_number(x)} {_number(self.top)}V{_number(self.bottom)}" for x in self.x[1:])
        yield f'<path class="mesh" d="{across}{down}"/>'
        for row, y in zip(grid.cells, self.y, strict=True):
            for cell, x in zip(row, self.x, strict=True):
                if cell.label:
                    name = "on" if cell.shade == "one" else "off"
                    yield text_element(cell.label, x + grid.size / 2, y + grid.size / 2 + 4, name, "middle")

    def _runs(self, row: tuple[Cell, ...], name: str) -> Iterator[tuple[int, int]]:
        """The start and length of each run of cells of one kind; runs end at gaps between column groups."""
        size, group = self.grid.size, self.grid.group or len(row)
        for start in range(0, len(row), group):
            members = range(start, min(start + group, len(row)))
            for alike, run in groupby(members, lambda i: _kind(row[i]) == name):
                if alike:
                    first, *rest = run
                    yield first, (1 + len(rest)) * size

    def _boxes(self) -> Iterator[str]:
        for row, y, height in zip(self.grid.cells, self.y, self.heights, strict=True):
            for cell, x, width in zip(row, self.x, self.widths, strict=True):
                yield from self._box(cell, x + 1.5, y + 1.5, width - 3, height - 3)

    def _box(self, cell: Cell, x: float, y: float, width: float, height: float) -> Iterator[str]:
        """A cell and its padding as rectangles; the larger one holds the label."""
        if cell.shade != "gap":
            part = 1 - cell.padding
            full = (x, y, width, height * part) if self.grid.tall else (x, y, width * part, height)
            yield _rect(cell.shade if cell.hue is None else f"{cell.shade} hue{cell.hue}", *full)
            if cell.padding:
                down, across = (height * part, 0.0) if self.grid.tall else (0.0, width * part)
                rest = (x + across, y + down, width - across, height - down)
                yield _rect("padding", *rest)
                full = full if part >= 0.5 else rest
            x, y, width, height = full
        if cell.label:
            yield text_element(cell.label, x + width / 2, y + height / 2 + 4, "label", "middle")


def _kind(cell: Cell) -> str:
    return f"marked-{cell.shade}" if cell.mark else cell.shade


def _rect(name: str, x: float, y: float, width: float, height: float) -> str:
    sizes = f'x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" height="{_number(height)}"'
    return f'<rect class="{name}" {sizes}/>'


def text_element(text: str, x: float, y: float, name: str, anchor: str = "start") -> str:
    """A ``<text>`` element of a class, with its text escaped."""
    return f'<text class="{name}" x="{_number(x)}" y="{_number(y)}"{_ANCHORS[anchor]}>{escape(text)}</text>'


def _number(value: float) -> str:
    return f"{round(value, 1):g}"
