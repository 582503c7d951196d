"""`exclude_picture`: the window of an output pixel, and the taps outside it."""

import itertools
import re
import xml.etree.ElementTree as ElementTree

import pytest

import reference
from reference.errors import ShapeError
from simwarp.draw import exclude_picture, to_svg, to_text


def cells(picture):
    """Labels of both grids, by row and column label."""
    grids = picture.lines[0]
    return [
        {
            (row, column): cell
            for row, line in zip(grid.row_labels, grid.cells, strict=True)
            for column, cell in zip(grid.column_labels, line, strict=True)
        }
        for grid in grids
    ]


def drawn(image, filter, *, stride=1, padding="SAME", dilation=1, pixel=(0, 0), **more):
    """The picture of a geometry resolved by the reference, and the number of excluded taps in it."""
    geometry = reference.conv_geometry(
        (1, *image, 1), (*filter, 1, 1), stride=stride, padding=padding, dilation=dilation
    )
    picture = exclude_picture(
        image,
        filter,
        (geometry.out_height, geometry.out_width),
        pad=(geometry.pad_top, geometry.pad_left),
        stride=(geometry.stride_h, geometry.stride_w),
        dilation=(geometry.dilation_h, geometry.dilation_w),
        pixel=pixel,
        **more,
    )
    return picture, reference.excluded_taps(geometry)


GEOMETRIES = [
    {"image": (3, 3), "filter": (3, 3)},
    {"image": (5, 4), "filter": (2, 3), "stride": (2, 1)},
    {"image": (1, 1), "filter": (5, 5)},
    {"image": (2, 3), "filter": (3, 2), "dilation": (2, 4), "padding": ((3, 1), (4, 4))},
    {"image": (4, 4), "filter": (1, 1), "padding": ((2, 0), (0, 3))},
    {"image": (7, 7), "filter": (2, 2), "stride": 4, "padding": "VALID"},
]


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_every_window_shows_its_excluded_taps(geometry):
    rows, columns = geometry["image"]
    taps = list(itertools.product(*map(range, geometry["filter"])))
    _, excluded = drawn(**geometry)
    for pixel in itertools.product(*map(range, excluded.shape)):
        picture, _ = drawn(**geometry, pixel=pixel)
        window, counts = cells(picture)
        outside = [at for at, cell in window.items() if cell.label == "×"]
        inside = {at: cell.label for at, cell in window.items() if "," in cell.label}
        assert len(outside) == excluded[pixel]
        assert len(outside) + len(inside) == len(taps)
        assert all(not (0 <= int(r) < rows and 0 <= int(c) < columns) for r, c in outside)
        assert all(0 <= int(r) < rows and 0 <= int(c) < columns for r, c in inside)
        assert sum(cell.label == "·" for cell in window.values()) == rows * columns - len(inside)
        for (p, q), cell in counts.items():
            chosen = (int(p), int(q)) == pixel
            assert cell.label == ("[{}]" if chosen else "{}").format(excluded[int(p), int(q)])


def test_excluded_taps_are_labelled_with_their_index():
    picture, _ = drawn((5, 5), (3, 3), stride=2, padding=((1, 0), (0, 1)), dilation=(1, 2), pixel=(1, 0))
    window, _ = cells(picture)
    assert {label: at for at, cell in window.items() if "," in (label := cell.label)} == {
        f"{r},{s}": (str(2 - 1 + r), str(2 * s)) for r in range(3) for s in range(3)
    }
    assert picture.notes[0] == (
        "Tap r,s of output pixel (p, q) is on row 2p - 1 + r and column 2q + 2s of the image."
    )


def test_notes_explain_the_sum():
    picture, _ = drawn((3, 3), (3, 3), channels=70, popc=13)
    assert picture.notes[1:] == (
        "5 of 9 taps are outside and contribute nothing.",
        "correction: (9 - 5) taps x 70 channels = 280 products",
        "raw popc: 13 of them are -1, where the bits differ",
        "result: 280 - 2 x 13 = 254",
    )
    assert drawn((3, 3), (3, 3), channels=70)[0].notes == picture.notes[:3]
    assert drawn((3, 3), (3, 3), popc=0)[0].notes == picture.notes[:2]


@pytest.mark.parametrize("pixel", [(0, 0), (300, 299), (599, 599)])
def test_large_images_are_shown_in_part(pixel):
    picture, excluded = drawn((600, 600), (3, 3), pixel=pixel)
    for grid in picture.lines[0]:
        assert len(grid.cells) <= 13
        assert "⋮" in grid.row_labels
        assert "…" in grid.column_labels
    _, counts = cells(picture)
    assert counts[str(pixel[0]), str(pixel[1])].label == f"[{excluded[pixel]}]"
    assert max(map(len, to_text(picture).splitlines())) < 200


def test_drawing_a_huge_image_takes_constant_time():
    picture = exclude_picture((2**31 - 1, 1), (3, 1), (2**31 - 1, 1), pad=(1, 0), pixel=(2**31 - 2, 0))
    assert "[1]" in to_text(picture)


def test_text_and_svg_show_the_same():
    picture, _ = drawn((5, 5), (3, 3), stride=2, channels=64, popc=100)
    text, svg = to_text(picture), to_svg(picture)
    ElementTree.fromstring(svg)
    assert svg.count(">×</text>") == text.count("×  |") == 5
    assert re.search(r"0 \|.*\[5\] \|  3  \|  5  \|", text)
    assert svg.count('<rect class="padding"') == 5
    for note in picture.notes:
        assert note in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pixel": (3, 0)}, r"pixel=\(3, 0\) is not in the output"),
        ({"pixel": (0, 7)}, r"from \(0, 0\) to \(2, 2\)"),
        ({"pixel": (-1, 0)}, "at least 0"),
        ({"pad": (0, -1)}, r"pad=\(0, -1\)"),
        ({"stride": (0, 1)}, "stride.*\n.*\n.*at least 1"),
        ({"dilation": (1, 0)}, "dilation"),
        ({"channels": 0}, "channels=0"),
        ({"popc": -1}, "popc=-1"),
    ],
    ids=str,
)
def test_bad_numbers_are_refused(change, message):
    with pytest.raises(ShapeError, match=message) as caught:
        exclude_picture((3, 3), (3, 3), (3, 3), **{"pad": (1, 1), **change})
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(
    "sizes", [((0, 3), (3, 3), (3, 3)), ((3, 3), (3, 0), (3, 3)), ((3, 3), (3, 3), (0, 1))]
)
def test_empty_sizes_are_refused(sizes):
    with pytest.raises(ShapeError, match="at least 1"):
        exclude_picture(*sizes)
