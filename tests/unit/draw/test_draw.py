"""`simwarp.draw`: text and SVG of small pictures show the same, correct values.

Layouts are held against `reference.pack`, operations against the scalar twins in
`tests/oracles/scalar_lanes.py`.
"""

import itertools
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import reference
from oracles import scalar_lanes as twins
from reference.errors import DtypeError, SchemeError, ShapeError
from simwarp import draw
from simwarp.cli import main
from simwarp.draw.bstc import OTHER, PROBE, operation_picture, tile_picture
from simwarp.draw.formats import layout_picture, place
from simwarp.draw.lane_words import words_picture
from simwarp.draw.picture import Cell, Grid, Picture
from simwarp.draw.svg import to_svg
from simwarp.draw.text import to_text
from support.offenders import every_case
from support.packed_integers import as_integers
from support.pages import page_module

ROOT = Path(__file__).resolve().parents[3]
SVG = "{http://www.w3.org/2000/svg}"
ALL = [0xFFFFFFFF] * 32
EVERY_LANE = [True] * 32


def u32(*values):
    return np.array(values, np.uint32)


def bits_of(cells, kind):
    """Rows of cells as numbers, most significant bit first."""
    return [sum(kind(cell) << i for i, cell in enumerate(reversed(row))) for row in cells]


def words_of(grid):
    return bits_of(grid.cells, lambda cell: cell.shade == "one")


def marks_of(grid):
    return bits_of(grid.cells, lambda cell: cell.mark)


# --------------------------------------------------------------------------------------------------
# Text
# --------------------------------------------------------------------------------------------------


def test_a_ragged_column_major_layout_is_drawn_as_text():
    assert draw.layout("column", rows=9, columns=70).splitlines() == [
        "column-major-32: 9 × 70 elements",
        "",
        "columns   0–31   32–63   64–69",
        "        +------+-------+--------+",
        "  row 0 |  D0  |  D9   | D18 ░░░|",
        "      1 |  D1  |  D10  | D19 ░░░|",
        "      2 |  D2  |  D11  | D20 ░░░|",
        "      3 |  D3  |  D12  | D21 ░░░|",
        "      ⋮ |  ⋮   |   ⋮   |   ⋮    |",
        "      7 |  D7  |  D16  | D25 ░░░|",
        "      8 |  D8  |  D17  | D26 ░░░|",
        "        +------+-------+--------+",
        "",
        "                    the first and the last word, bit by bit",
        "                bit   31   30   29   28   27   26   25    …    2     1     0",
        "                    +----+----+----+----+----+----+-----+---+-----+-----+-----+",
        " D0: row 0, columns | 0  | 1  | 2  | 3  | 4  | 5  |  6  | … | 29  | 30  | 31  |",
        "D26: row 8, columns | 64 | 65 | 66 | 67 | 68 | 69 | pad | … | pad | pad | pad |",
        "                    +----+----+----+----+----+----+-----+---+-----+-----+-----+",
        "",
        "Dn is word n in memory; words has shape (3, 9).",
        "Element (r, c) is in words[c // 32, r].",
        'first="msb": the first of 32 elements is in the most significant bit.',
        "Padding: 26 bits of each word of the last columns, all 0.",
    ]


def test_a_row_major_layout_is_drawn_as_text():
    assert draw.layout("row", word=64, rows=66, columns=2, first="lsb").splitlines() == [
        "row-major-64: 66 × 2 elements",
        "",
        "   column   0    1",
        "          +----+----+",
        "rows 0–63 | D0 | D1 |",
        "          |    |    |",
        "          +----+----+",
        "    64–65 | D2 | D3 |",
        "          |░░░░|░░░░|",
        "          +----+----+",
        "",
        "                   the first and the last word, bit by bit",
        "               bit   63    62    61    …    2    1    0",
        "                   +-----+-----+-----+---+-----+----+----+",
        "D0: column 0, rows | 63  | 62  | 61  | … |  2  | 1  | 0  |",
        "D3: column 1, rows | pad | pad | pad | … | pad | 65 | 64 |",
        "                   +-----+-----+-----+---+-----+----+----+",
        "",
        "Dn is word n in memory; words has shape (2, 2).",
        "Element (r, c) is in words[r // 64, c].",
        'first="lsb": the first of 64 elements is in the least significant bit.',
        "Padding: 62 bits of each word of the last rows, all 0.",
    ]


def test_a_layout_of_one_element_shows_its_padding():
    text = draw.layout("row", rows=1, columns=1)
    assert "the word, bit by bit" in text
    assert "rows 0 | D0 ░" not in text  # a column-major word has its padding below
    assert "rows 0 | D0 |\n       |░░░░|" in text


def test_an_operation_is_drawn_as_text():
    lines = draw.operation("B").splitlines()
    assert lines[:3] == [
        "B: popc counts the ones of each bit-row",
        "",
        "       before                               popc",
    ]
    assert lines[3] == "   bit 31     24      16      8       0     31     24      16      8       0"
    assert lines[4] == "lane 0 ....########################....     ...........................##...  = 24"
    assert lines[18] == "       00001111111111111111111100000000     00000000000000000000000000010100"
    assert lines[-1] == "# is 1, . is 0; highlighted bits are digits"


def test_a_tile_is_drawn_as_text():
    lines = draw.tile(64).splitlines()
    assert lines[:4] == [
        "BSTC-64: 32 lanes × 64 bits",
        "",
        "   bit 63     56      48      40      32      24      16      8       0",
        "lane 0 " + "." * 53 + "0" + "." * 10,
    ]
    assert lines[17] == " " * 7 + "#" * 53 + "1" + "#" * 10
    assert lines[34].startswith("    31 ")


def test_words_are_drawn_as_text():
    assert draw.words(u32(0xF0000001, 2)).splitlines() == [
        "2 words of 32 bits",
        "",
        "   bit 31       23       15       7      0",
        "lane 0 11110000 00000000 00000000 00000001  0xf0000001",
        "lane 1 00000000 00000000 00000000 00000010  0x00000002",
    ]


def test_different_words_are_marked_in_text():
    got, expected = np.arange(32, dtype=np.uint32), np.arange(32, dtype=np.uint32)
    got[5] ^= 0x80000003
    got[31] = 0
    assert draw.words(got, expected).splitlines() == [
        "2 of 32 words differ, in 8 bits",
        "",
        "         bit 31       23       15       7      0",
        " lane 5, got 10000000 00000000 00000000 00000110  0x80000006",
        "             ^                                ^^",
        "    expected 00000000 00000000 00000000 00000101  0x00000005",
        "lane 31, got 00000000 00000000 00000000 00000000  0x00000000",
        "                                           ^^^^^",
        "    expected 00000000 00000000 00000000 00011111  0x0000001f",
    ]


def test_long_word_arrays_are_drawn_in_part():
    many = np.zeros((3, 32), np.uint64)
    plain, different = draw.words(many).splitlines(), draw.words(many, ~many).splitlines()
    assert len(plain) == 3 + 32 + 2
    assert plain[3].split()[:2] == ["[0,", "0]"]
    assert plain[-1] == "… and 64 more"
    assert different[0] == "96 of 96 words differ, in 6144 bits"
    assert len(different) == 3 + 8 * 3 + 2
    assert different[-1] == "… and 88 more"


def test_equal_words_are_reported_as_equal():
    assert draw.words(u32(1, 2), u32(1, 2)) == "2 words, all as expected"
    assert ET.fromstring(draw.words(u32(1, 2), u32(1, 2), svg=True)).tag == f"{SVG}svg"


def test_empty_words_and_other_types_are_refused():
    with pytest.raises(DtypeError, match=r"words are int64: give uint32 or uint64"):
        draw.words([1, 2])
    with pytest.raises(DtypeError, match=r"words are uint32, expected are uint64"):
        draw.words(u32(1), np.array([1], np.uint64))
    with pytest.raises(ShapeError, match=r"shape \(1,\), expected \(2,\)"):
        draw.words(u32(1), u32(1, 2))
    with pytest.raises(ShapeError, match="at least one word"):
        draw.words(u32())


# --------------------------------------------------------------------------------------------------
# SVG
# --------------------------------------------------------------------------------------------------

PICTURES = {
    "column": layout_picture("column", rows=40, columns=70),
    "row": layout_picture("row", rows=40, columns=70, first="lsb"),
    "column 64": layout_picture("column", word=64, rows=3, columns=1000),
    "row 64": layout_picture("row", word=64, rows=100_000, columns=100_000),
    "aligned": layout_picture("column", rows=128, columns=128),
    "half": layout_picture("column", rows=123_456, columns=48),
    "one": layout_picture("row", rows=1, columns=1),
    "tile": tile_picture(),
    "tile 64": tile_picture(64),
    **{name: operation_picture(name) for name in "ABCDEFGH"},
    "words": words_picture(np.arange(32, dtype=np.uint32)),
    "differing words": words_picture(u32(5, 0xFFFFFFFF), u32(7, 0x0FFFFFFF)),
    "equal words": words_picture(u32(5), u32(5)),
    "escapes": Picture("a < b & c", ((Grid(((Cell("<&>"),),)),),), ("]]>",)),
}
every_picture = pytest.mark.parametrize("picture", PICTURES.values(), ids=PICTURES)


def strings(picture):
    """All text in a picture."""
    grids = [grid for line in picture.lines for grid in line]
    around = [
        text
        for grid in grids
        for text in (grid.title, grid.corner, *grid.column_labels, *grid.row_labels, *grid.row_notes)
    ]
    inside = [cell.label for grid in grids for row in grid.cells for cell in row]
    leads = [grid.lead for line in picture.lines for grid in line[1:]]
    return sorted(text for text in (picture.title, *picture.notes, *around, *inside, *leads) if text)


@every_picture
def test_text_and_svg_show_the_same_words(picture):
    image, text = ET.fromstring(to_svg(picture)), to_text(picture)
    assert sorted(element.text for element in image.iter(f"{SVG}text")) == strings(picture)
    grids = [grid for line in picture.lines for grid in line if grid.style == "boxes"]
    assert all(label in text for label in (picture.title, *picture.notes))
    for grid in grids:
        written = re.findall(r"[^\s|░]+", text)
        assert all(cell.label in written for row in grid.cells for cell in row)


@every_picture
def test_text_and_svg_show_the_same_bits(picture):
    """SVG squares, text characters and cells show the same bits."""
    paths = [
        (path.get("class"), run)
        for path in ET.fromstring(to_svg(picture)).iter(f"{SVG}path")
        for run in re.findall(r"M([\d.]+) ([\d.]+)h(\d+)v(\d+)h-", path.get("d"))
    ]
    drawn = {
        (round(float(x) + i * int(side), 1), float(y)): name
        for name, (x, y, length, side) in paths
        for i in range(int(length) // int(side))
    }
    grids = [grid for line in picture.lines for grid in line if grid.style == "bits"]
    expected = [
        f"marked-{cell.shade}" if cell.mark else cell.shade
        for grid in grids
        for row in grid.cells
        for cell in row
    ]
    assert sorted(drawn.values()) == sorted(expected)
    if len(grids) == 1:
        places = sorted(drawn, key=lambda place: (place[1], place[0]))
        assert [drawn[place] for place in places] == expected
        if not grids[0].cells[0][0].label:
            glyphs = {"zero": ".", "one": "#", "marked-zero": "0", "marked-one": "1"}
            width = len(grids[0].cells[0])
            rows = re.findall(rf"(?m)(?<= )[.#01]{{{width}}}$", to_text(picture))
            assert "".join(rows) == "".join(glyphs[name] for name in expected)


@every_picture
def test_svg_has_no_external_reference(picture):
    svg = to_svg(picture)
    image = ET.fromstring(svg)
    assert [child.tag for child in image][:3] == [f"{SVG}title", f"{SVG}desc", f"{SVG}style"]
    assert image[0].text == picture.title
    assert (image[1].text or "") == " ".join(picture.notes)
    assert not re.search(r"href|url\(|@import|@font-face|<script|src=", svg)
    assert svg.count("http") == 1  # the name of the namespace
    assert "prefers-color-scheme:dark" in svg
    used = {element.get("class") for element in image.iter() if element.get("class")}
    known = set(re.findall(r"\.([\w-]+)", image[2].text)) | {"label", "off", "axis"}
    assert used <= known
    assert set(re.findall(r"var\((--[\w-]+)\)", svg)) == set(re.findall(r"(--[\w-]+):", svg))


@every_picture
def test_cells_do_not_overlap_and_stay_inside(picture):
    image = ET.fromstring(to_svg(picture))
    width, height = (float(image.get(side)) for side in ("width", "height"))
    sizes = {"title": 15.0, "grid-title": 13.0, "lead": 20.0}
    boxes = []
    for text in image.iter(f"{SVG}text"):
        size = sizes.get(text.get("class"), 12.0)
        length = 0.6 * size * len(text.text)
        left = float(text.get("x")) - length * {"middle": 0.5, "end": 1}.get(text.get("text-anchor"), 0)
        # Capitals and digits have 0.73 of the font size; squares of bits may touch.
        top = float(text.get("y")) - 0.73 * size
        boxes.append((left, top, left + length, top + 0.73 * size, text.text))
    for x0, y0, x1, y1, label in boxes:
        assert min(x0, y0) >= 0, label
        assert x1 <= width, label
        assert y1 <= height, label
    for i, (x0, y0, x1, y1, label) in enumerate(boxes):
        for u0, v0, u1, v1, other in boxes[i + 1 :]:
            assert x1 <= u0 or u1 <= x0 or y1 <= v0 or v1 <= y0, (label, other)


@pytest.mark.gate
def test_drawing_is_deterministic():
    program = (
        "from simwarp import draw\n"
        "print(draw.operation('E', svg=True), draw.layout('row', rows=9, columns=9, svg=True))"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


# --------------------------------------------------------------------------------------------------
# Layouts and the reference
# --------------------------------------------------------------------------------------------------

FORMATS = list(itertools.product(("row", "column"), (32, 64, 128), ("msb", "lsb")))
every_format = pytest.mark.parametrize(("layout", "word", "first"), FORMATS)


def sizes(seed, count, most):
    generator = np.random.default_rng(seed)
    return [tuple(int(n) for n in generator.integers(1, most, 2)) for _ in range(count)]


def alone(row, column, rows, columns, **form):
    """The position and the word in which `reference.pack` stores a single +1."""
    signs = -np.ones((rows, columns), np.int8)
    signs[row, column] = 1
    words = as_integers(reference.pack(signs, **form)).ravel()
    (index,) = np.flatnonzero(words)
    return int(index), words[index]


@every_format
@every_case(("rows", "columns"), [(1, 1), (32, 64), (65, 1), *sizes(1, 4, 150)])
def test_every_element_is_drawn_at_its_position(layout, word, first, rows, columns):
    form = {"layout": layout, "word": word, "first": first}
    row, column = np.indices((rows, columns))
    index, bit = place(row, column, rows=rows, columns=columns, **form)
    assert len(set(zip(index.ravel().tolist(), bit.ravel().tolist(), strict=True))) == rows * columns
    bits = np.random.default_rng(rows).integers(0, 2, (rows, columns))
    words = as_integers(reference.pack((2 * bits - 1).astype(np.int8), **form)).ravel()
    assert (words[index] >> bit.astype(object) & 1 == bits).all()
    for r, c in ((0, 0), (rows - 1, columns - 1), (rows // 2, columns // 3)):
        assert alone(r, c, rows, columns, **form) == (int(index[r, c]), 1 << int(bit[r, c]))


@every_format
@every_case(("rows", "columns"), [(1, 1), (40, 70), (128, 128), *sizes(2, 5, 400)])
def test_a_layout_picture_agrees_with_pack(layout, word, first, rows, columns):
    form = {"layout": layout, "word": word, "first": first}
    words, close_up = (line[0] for line in layout_picture(rows=rows, columns=columns, **form).lines)
    by_column = layout == "column"
    spans, lines = (
        (words.column_labels, words.row_labels) if by_column else (words.row_labels, words.column_labels)
    )
    for i, line in enumerate(lines):
        for j, span in enumerate(spans):
            cell = words.cells[i][j] if by_column else words.cells[j][i]
            if cell.shade == "gap":
                assert cell.label in ("…", "⋮")
                continue
            across = int(line.split()[-1])
            start, *_, end = [int(n) for n in span.split()[-1].split("–")] * 2
            assert cell.padding == 1 - (end - start + 1) / word
            for along in {start, end}:
                r, c = (across, along) if by_column else (along, across)
                assert f"D{alone(r, c, rows, columns, **form)[0]}" == cell.label
    for label, row in zip(close_up.row_labels, close_up.cells, strict=True):
        name, across = re.match(r"(D\d+): \w+ (\d+), ", label).groups()
        for bit, cell in zip(close_up.column_labels, row, strict=True):
            if cell.shade == "tint":
                r, c = (int(across), int(cell.label)) if by_column else (int(cell.label), int(across))
                assert alone(r, c, rows, columns, **form) == (int(name[1:]), 1 << int(bit))
            else:
                assert cell.label == ("…" if bit == "…" else "pad")


@every_format
@every_case(("rows", "columns"), sizes(3, 3, 8))
def test_a_small_layout_shows_each_word_once(layout, word, first, rows, columns):
    picture = layout_picture(layout, word=word, rows=rows, columns=columns, first=first)
    shown = sorted(int(cell.label[1:]) for row in picture.lines[0][0].cells for cell in row)
    form = {"layout": layout, "word": word, "first": first}
    assert shown == list(range(as_integers(reference.pack(np.ones((rows, columns)), **form)).size))


def test_unknown_formats_are_refused():
    for wrong in ({"word": 48}, {"first": "left"}, {"layout": "diagonal"}):
        with pytest.raises(SchemeError, match="there is no"):
            draw.layout(**{"layout": "row", "rows": 1, "columns": 1, **wrong})
    for wrong in ({"rows": 0}, {"columns": -1}, {"rows": 1.5}):
        with pytest.raises(ShapeError, match="at least one row and one column"):
            draw.layout(**{"layout": "row", "rows": 1, "columns": 1, **wrong})
    with pytest.raises(SchemeError, match="choose 32 or 64"):
        draw.tile(48)
    with pytest.raises(SchemeError, match="a letter from A to H"):
        draw.operation("I")


# --------------------------------------------------------------------------------------------------
# Operations and the scalar twins
# --------------------------------------------------------------------------------------------------


def column_of(words, bit):
    return [word >> bit & 1 for word in words]


def votes(vote, words):
    return sum(int(vote(column_of(words, bit), ALL, EVERY_LANE)[0]) << bit for bit in range(32))


def shuffle(mode, b):
    c = [twins.shuffle_c(32, mode)] * 32
    return lambda words: [value for value, _ in twins.shfl(words, b, c, mode, ALL, EVERY_LANE)]


def turned(vote, bits):
    """Result of each lane i: the vote on bit ``bits[i]`` of all lanes."""
    return lambda words: [vote(column_of(words, bit), ALL, EVERY_LANE)[i] for i, bit in enumerate(bits)]


RESULTS = {
    "B": [lambda words: [twins.popc(word) for word in words]],
    "C": [lambda words: [twins.brev(word) for word in words]],
    "D": [lambda words: [votes(twins.vote_any, words)], lambda words: [votes(twins.vote_all, words)]],
    "E": [
        shuffle("idx", [31 - lane for lane in range(32)]),
        shuffle("up", [8] * 32),
        shuffle("down", [8] * 32),
        shuffle("bfly", [16] * 32),
    ],
    "F": [
        lambda words: [twins.shl(word, 5) for word in words],
        lambda words: [twins.shr(word, 5) for word in words],
    ],
    "G": [turned(twins.ballot, range(31, -1, -1))],
    "H": [turned(twins.rotate, range(32))],
}


@pytest.mark.parametrize("name", RESULTS)
def test_an_operation_picture_agrees_with_the_scalar_twin(name):
    before, *after = (grid for line in operation_picture(name).lines for grid in line)
    assert words_of(before) == PROBE.tolist()
    assert [words_of(grid) for grid in after] == [twin(words_of(before)) for twin in RESULTS[name]]
    if name != "B":  # the marks of a count name its lane
        assert [marks_of(grid) for grid in after] == [twin(marks_of(before)) for twin in RESULTS[name]]


def test_the_bitwise_pictures_agree_with_the_scalar_twins():
    a, b, *after = (words_of(grid) for line in operation_picture("A").lines for grid in line)
    assert a == PROBE.tolist()
    assert b == OTHER.tolist()
    for result, twin in zip(after, (twins.and_, twins.or_, twins.xor), strict=True):
        assert result == [twin(x, y) for x, y in zip(a, b, strict=True)]


def test_counts_are_written_beside_their_lanes():
    after = operation_picture("B").lines[0][1]
    assert [note for note in after.row_notes if note] == [f"= {twins.popc(w)}" for w in PROBE.tolist()[::4]]


def test_ballot_pictures_are_rotated_by_a_quarter_turn():
    """Ballot rotates clockwise (section 3.1 of the paper), with brev anticlockwise."""
    picture = np.array([[word >> bit & 1 for bit in range(31, -1, -1)] for word in PROBE.tolist()])
    for name, quarters in (("G", -1), ("H", 1)):
        cells = operation_picture(name).lines[0][1].cells
        ones = np.array([[cell.shade == "one" for cell in row] for row in cells])
        assert (ones == np.rot90(picture, quarters)).all()


# --------------------------------------------------------------------------------------------------
# The command and the pages
# --------------------------------------------------------------------------------------------------

LAYOUT = ["layout", "column", "--word", "32", "--rows", "40", "--cols", "70"]


@pytest.fixture
def _command():
    pytest.importorskip("typer", reason="the command line needs simwarp[cli]")


@pytest.mark.usefixtures("_command")
class TestCommand:
    def test_the_command_prints_the_text(self, capsys):
        assert main([*LAYOUT, "--first", "lsb"]) == 0
        assert capsys.readouterr().out == draw.layout("column", rows=40, columns=70, first="lsb") + "\n"

    def test_the_command_writes_the_svg(self, capsys, tmp_path):
        file = tmp_path / "layout.svg"
        assert main([*LAYOUT, "--svg", str(file)]) == 0
        assert file.read_text(encoding="utf-8") == draw.layout("column", rows=40, columns=70, svg=True)
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err == f"wrote {file}\n"
        assert list(tmp_path.iterdir()) == [file]

    def test_the_command_prints_json(self, capsys):
        assert main([*LAYOUT, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert [found[key] for key in ("layout", "rows", "columns", "word", "first")] == [
            "column",
            40,
            70,
            32,
            "msb",
        ]
        assert found["picture"]["lines"][0][0]["cells"][0][2]["label"] == "D80"

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["layout", "diagonal", "--rows", "1", "--cols", "1"], "there is no layout diagonal"),
            ([*LAYOUT, "--word", "48"], "there is no --word 48"),
            ([*LAYOUT, "--first", "left"], "there is no --first left"),
            ([*LAYOUT, "--rows", "0"], "--rows 0: give a matrix at least one row"),
            ([*LAYOUT, "--cols", "many"], "Invalid value for '--cols'"),
            (["layout", "row", "--rows", "1"], "--cols"),
            ([*LAYOUT, "--svg", "/no/such/folder/x.svg"], "choose another file with --svg"),
        ],
    )
    def test_bad_values_are_refused(self, arguments, message, capsys):
        assert main(arguments) == 2
        printed = capsys.readouterr()
        assert message in printed.err
        assert printed.out == ""


@pytest.mark.parametrize(("page", "least"), [("formats.md", 4), ("lanes.md", 9)])
def test_page_pictures_are_generated_from_the_code(page, least):
    rendered = page_module().on_page_markdown((ROOT / "docs" / page).read_text(encoding="utf-8"))
    pictures = re.findall(r"<svg.*?</svg>", rendered, re.DOTALL)
    assert len(pictures) >= least
    assert "<!-- draw" not in rendered
    assert rendered.count("<figure") == rendered.count("<details") == len(pictures)
    for picture in pictures:
        ET.fromstring(picture)


def test_a_marker_is_replaced_by_svg_and_text():
    rendered = page_module().on_page_markdown(
        "<!-- draw layout row --word 64 --rows 3 --cols 5 --first lsb -->"
    )
    form = {"word": 64, "rows": 3, "columns": 5, "first": "lsb"}
    assert draw.layout("row", **form, svg=True) in rendered
    assert draw.layout("row", **form).splitlines()[0] in rendered
