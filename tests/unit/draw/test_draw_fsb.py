"""Pictures of fixed-stride bits, compared with BTC's figure 14 and with a tiled matrix."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Literal

import numpy as np
import pytest

from reference.errors import SchemeError, ShapeError
from simwarp import draw
from simwarp.draw.fsb import fsb_picture, fsb_place
from simwarp.listings.btc.fsb import fsb_address


def labels(rows: int, columns: int, **format: object) -> list[list[str]]:
    return [[cell.label for cell in row] for row in fsb_picture(rows, columns, **format).lines[0][1].cells]


def test_tiles_equal_figure_14_of_the_paper() -> None:
    """8 × 4 bits in tiles of 4 × 2: H = 4, W = 8, BH = 2, BW = 4."""
    assert labels(4, 8, tile=(2, 4), word=1) == [
        ["0", "1", "2", "3", "8", "9", "10", "11"],
        ["4", "5", "6", "7", "12", "13", "14", "15"],
        ["16", "17", "18", "19", "24", "25", "26", "27"],
        ["20", "21", "22", "23", "28", "29", "30", "31"],
    ]


@pytest.mark.parametrize(("rows", "columns"), [(8, 128), (1, 1), (13, 200), (17, 384), (9, 129)])
def test_addresses_equal_those_of_a_tiled_matrix(rows: int, columns: int) -> None:
    down, across = -(-rows // 8), -(-columns // 128)
    padded = np.zeros((down * 8, across * 128), np.int64)
    padded[:rows, :columns] = 1 + np.arange(rows * columns).reshape(rows, columns)
    memory = padded.reshape(down, 8, across, 128).swapaxes(1, 2).ravel()
    row, column = np.ogrid[:rows, :columns]
    by_row = fsb_place(row, column, rows=rows, columns=columns, tile=(8, 128), order="row")
    assert np.array_equal(memory[by_row], padded[:rows, :columns])
    by_column = fsb_place(column, row, rows=columns, columns=rows, tile=(128, 8), order="column")
    assert np.array_equal(by_column, by_row)  # B by columns is its transpose by rows


@pytest.mark.parametrize("order", ["row", "column"])
def test_the_listings_store_bits_where_the_picture_shows_them(order: Literal["row", "column"]) -> None:
    row, column = np.ogrid[:300, :200]
    listed = fsb_address(row, column, (300, 200), (8, 128), order)
    drawn = fsb_place(row, column, rows=300, columns=200, tile=(8, 128), order=order)
    assert np.array_equal(listed, drawn)


def test_padding_has_an_address_and_no_element() -> None:
    assert labels(3, 6, tile=(2, 4), word=1)[1:] == [
        ["4", "5", "6", "7", "12", "13", "pad", "pad"],
        ["16", "17", "18", "19", "24", "25", "pad", "pad"],
        ["pad"] * 8,
    ]
    assert "Padding: 14 bits, all 0." in draw.fsb(3, 6, tile=(2, 4), word=1)
    assert "Padding" not in draw.fsb(16, 256)


def test_neighbouring_tiles_have_different_colours() -> None:
    cells = fsb_picture(16, 256).lines[0][1].cells
    assert {cell.hue for row in cells[:8] for cell in row[:4]} == {0}
    assert {cell.hue for row in cells[8:] for cell in row[4:]} == {12}


def test_words_past_the_edge_show_their_valid_bits() -> None:
    last = fsb_picture(8, 200).lines[0][1].cells[0][6]
    assert last.label == "34"
    assert last.padding == 0.75
    assert "32 bits" in draw.fsb(8, 200)


def test_svg_is_one_element() -> None:
    svg = ET.fromstring(draw.fsb(13, 200, svg=True))
    assert svg.tag.endswith("svg")
    assert draw.fsb(200, 13, tile=(128, 8), order="column").startswith("FSB, tiles of 128 × 8: 200 × 13")


@pytest.mark.parametrize(
    ("error", "named", "arguments"),
    [
        (ShapeError, "rows=0", {"rows": 0}),
        (ShapeError, "columns=-1", {"columns": -1}),
        (ShapeError, r"tile\[1\]=0", {"tile": (8, 0)}),
        (ShapeError, "word=1.5", {"word": 1.5}),
        (SchemeError, "order='both'", {"order": "both"}),
        (SchemeError, "word=32 does not divide", {"tile": (2, 4)}),
        (SchemeError, "a column of a tile", {"order": "column"}),
    ],
)
def test_errors_name_the_argument(error: type[Exception], named: str, arguments: dict[str, object]) -> None:
    with pytest.raises(error, match=named) as raised:
        draw.fsb(**{"rows": 8, "columns": 128, **arguments})
    assert len(str(raised.value).splitlines()) == 3
