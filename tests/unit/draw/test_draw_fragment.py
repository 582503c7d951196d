"""Pictures of fragments: correct labels, aligned columns, and distinguishable colours."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from reference import pack
from reference.errors import DtypeError, SchemeError, ShapeError
from simwarp.cli.frag_picture import picture_of
from simwarp.draw import hues
from simwarp.draw.formats import layout_picture
from simwarp.draw.fragment import (
    Held,
    held_of,
    holders,
    holders_picture,
    product,
    product_picture,
    registers,
    registers_picture,
)
from simwarp.draw.svg import to_svg
from simwarp.draw.text import to_text
from simwarp.fragments import TYPE_BITS, FragmentError, all_opcodes, fragments_of
from support.offenders import check_each
from support.pages import page_module

ROOT = Path(__file__).resolve().parents[3]
SVG = "{http://www.w3.org/2000/svg}"
HALF = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
BITS = "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc"
INK = {False: "#1f2328", True: "#e6e9ef"}


@cache
def maps():
    """One operand for each distinct map; of wgmma accumulators only the narrow ones."""
    found = {}
    for opcode in all_opcodes():
        for name, operand in fragments_of(opcode).operands.items():
            if operand.layout.columns <= 32 or name != "d":
                found.setdefault((operand.type, str(operand.layout)), operand)
    return found


every_type = pytest.mark.parametrize("kind", TYPE_BITS)


def check_maps(check, kind):
    """Call ``check`` on each operand whose elements have this type."""
    check_each(lambda key: check(maps()[key]), [key for key in maps() if key[0] == kind])


def span(label):
    """The numbers in a label: ``row 4–7`` gives 4 to 7."""
    first, last = re.fullmatch(r"(?:\w+ )?(\d+)(?:–(\d+))?", label).groups()
    return range(int(first), int(last or first) + 1)


def cells(grid):
    """Each cell with the rows and columns of its labels."""
    for row, of_row in zip(grid.row_labels, grid.cells, strict=True):
        for column, cell in zip(grid.column_labels, of_row, strict=True):
            yield cell, span(row), span(column)


def claimed(label):
    """The holders in a label: (lane, register, bit or None)."""
    for part in label.split(" "):
        lane, _, of_lane = part.partition(":")
        for register in of_lane.split(","):
            number, _, bit = register.partition(".")
            yield int(lane), int(number), int(bit) if bit else None


# --------------------------------------------------------------------------------------------------
# What a cell says
# --------------------------------------------------------------------------------------------------


@every_type
def test_every_cell_names_the_holders_of_its_elements(kind):
    check_maps(check_cells, kind)


def check_cells(operand):
    layout, picture = operand.layout, holders_picture(held_of(operand))
    seen = np.zeros((layout.matrices, layout.rows, layout.columns), int)
    assert len(picture.lines) == layout.matrices
    claims = []
    for matrix, (grid,) in enumerate(picture.lines):
        for cell, rows, columns in cells(grid):
            seen[matrix, rows.start : rows.stop, columns.start : columns.stop] += 1
            places = [(row, column) for row in rows for column in columns]
            for copy, (lane, register, bit) in enumerate(claimed(cell.label)):
                start = 0 if bit is None else bit
                claims += [
                    (row, column, matrix, copy, lane, register, start + i * layout.bits)
                    for i, (row, column) in enumerate(places)
                ]
            assert copy == layout.copies - 1
            assert cell.hue == next(claimed(cell.label))[0] % 32
    assert (seen == 1).all()
    claims = np.array(claims)
    np.testing.assert_array_equal(np.stack(layout.holder(*claims.T[:4]), -1), claims[:, 4:])


@every_type
def test_every_register_names_its_elements(kind):
    check_maps(check_registers, kind)


def check_registers(operand):
    layout = operand.layout
    ((grid,),) = registers_picture(held_of(operand)).lines
    named, places = [], []
    for cell, (lane,), (register,) in cells(grid):
        matrix, _, element = cell.label.rpartition(": ")
        rows, columns = map(span, element.split(","))
        named += [(row, column, int(matrix or 0)) for row in rows for column in columns]
        places += [(lane, register, slot * layout.bits) for slot in range(layout.slots)]
        assert len(named) == len(places)
    np.testing.assert_array_equal(np.stack(layout.element(*np.array(places).T), -1), named)
    assert (len(grid.cells), len(grid.cells[0])) == (layout.lanes, layout.registers)


def test_a_register_of_bits_is_one_cell():
    ((grid,),) = picture_of(BITS, "a").lines
    assert (len(grid.cells), len(grid.cells[0])) == (16, 8)
    assert grid.column_labels[-1] == "224–255"
    assert grid.cells[9][5].label == "5:3"


def test_an_element_held_more_than_once_names_all_its_registers():
    ((grid,),) = picture_of("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", "a").lines
    assert grid.cells[0][0].label == "0:0,4"
    notes = picture_of("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", "a").notes
    assert any("several registers" in note for note in notes)


def test_an_operand_is_drawn_as_text():
    lines = to_text(picture_of(HALF, "b")).splitlines()
    assert lines[:5] == [
        "B: 16 × 8 elements of f16",
        "",
        " column    0      1      2      3      4      5      6      7",
        "        +------+------+------+------+------+------+------+------+",
        "row 0–1 | 0:0  | 4:0  | 8:0  | 12:0 | 16:0 | 20:0 | 24:0 | 28:0 |",
    ]
    assert lines[-2:] == [
        "lane:register of each element, coloured by lane.",
        "f16: 2 elements in a register, neighbours from the lowest bit up.",
    ]


def test_large_matrices_are_shown_in_part():
    held = held_of(fragments_of("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16").operands["d"])
    ((grid,),) = holders_picture(held, most=(8, 6)).lines
    assert grid.row_labels == ("row 0", "1", "2", "3", "4", "⋮", "61", "62", "63")
    assert grid.column_labels == ("0", "1", "2", "…", "253", "254", "255")
    assert grid.cells[-1][-1].label == "127:127"
    assert {cell.shade for cell in grid.cells[5]} == {"gap"}
    ((grid,),) = registers_picture(held, most=(5, 5)).lines
    assert grid.row_labels == ("lane 0", "1", "⋮", "125", "126", "127")
    assert grid.column_labels == ("0", "1", "…", "125", "126", "127")


# --------------------------------------------------------------------------------------------------
# Products
# --------------------------------------------------------------------------------------------------

PRODUCTS = [
    HALF,
    BITS,
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
    "mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64",
    "wmma.mma.sync.aligned.row.col.m8n32k16.f16.f16",
    "wmma.mma.sync.aligned.row.col.m32n8k16.s32.s8.s8.s32",
]


def rectangles(svg):
    """Positions of the coloured cells in drawing order: (x, y, width)."""
    found = [r for r in ET.fromstring(svg).iter(f"{SVG}rect") if "hue" in r.get("class", "")]
    return [tuple(float(r.get(name)) for name in ("x", "y", "width")) for r in found]


@pytest.mark.parametrize("opcode", PRODUCTS)
def test_d_is_aligned_with_the_columns_of_b_and_the_rows_of_a(opcode):
    picture = picture_of(opcode)
    (room, b), (a, d) = picture.lines
    assert room.style == "blank"
    assert b.column_labels == d.column_labels
    assert a.row_labels == d.row_labels
    places = rectangles(to_svg(picture))
    of_b, rest = np.split(np.array(places), [b_size := len(b.cells) * len(b.cells[0])])
    of_b = of_b.reshape(len(b.cells), -1, 3)
    rows = rest.reshape(-1, 3)
    size_a = len(a.cells) * len(a.cells[0])
    of_a = rows[:size_a].reshape(len(a.cells), -1, 3)
    of_d = rows[size_a:].reshape(len(d.cells), -1, 3)
    assert b_size == of_b.size // 3
    assert (of_b[0, :, [0, 2]] == of_d[0, :, [0, 2]]).all()
    assert (of_a[:, 0, 1] == of_d[:, 0, 1]).all()
    assert of_b[:, :, 1].max() < of_d[:, :, 1].min()
    assert of_a[:, :, 0].max() < of_d[:, :, 0].min()


@pytest.mark.parametrize("opcode", PRODUCTS)
def test_columns_are_aligned_in_text(opcode):
    picture = picture_of(opcode)
    lines = to_text(picture).splitlines()
    rules = [line for line in lines if "+--" in line]
    above, below = rules[0], rules[2]
    assert below.endswith(above.strip())
    assert below.rindex(above.strip()) == above.index("+")


def test_cells_of_a_product_picture_equal_those_of_its_operands():
    (_, b), (a, d) = picture_of(HALF).lines
    for name, grid in (("a", a), ("b", b), ("d", d)):
        ((alone,),) = picture_of(HALF, name).lines
        assert grid.cells == alone.cells


def test_a_product_with_b_in_shared_memory_is_drawn():
    ((a, d),) = picture_of("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16").lines
    assert (a.title, d.title) == ("A, f16", "D, f32")


def test_c_is_not_drawn_when_held_like_d():
    assert picture_of(HALF).lines[1][1].title == "C and D, f32"
    unlike = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f16"
    assert picture_of(unlike).lines[1][1].title == "D, f32"
    assert picture_of(unlike).notes[0] == "The first of 4 products; other lanes hold the others likewise."


def some(rows, columns, name="A"):
    nothing = np.zeros((1, 1, rows, columns), int)
    return Held(name, "f64", 64, 64, nothing, nothing, nothing)


@pytest.mark.parametrize(
    ("a", "b", "d"),
    [((2, 3), (3, 4), (3, 4)), ((2, 3), (3, 4), (2, 3)), ((2, 3), (2, 4), (2, 4)), (None, (3, 4), (2, 3))],
)
def test_shapes_that_do_not_multiply_are_refused(a, b, d):
    operands = [None if shape is None else some(*shape) for shape in (a, b, d)]
    with pytest.raises(ShapeError, match=r"no product: .*\nA is m × k, B k × n and D m × n\n"):
        product_picture("none", *operands)


def test_holders_and_product_draw_text_or_svg():
    held = held_of(fragments_of(HALF).operands["a"])
    assert holders(held) == to_text(holders_picture(held))
    assert registers(held, svg=True) == to_svg(registers_picture(held))
    operands = some(2, 3, "A"), some(3, 2, "B"), some(2, 2, "D")
    assert product("p", *operands, svg=True) == to_svg(product_picture("p", *operands))


# --------------------------------------------------------------------------------------------------
# Colours
# --------------------------------------------------------------------------------------------------


def contrast(first, second):
    high, low = sorted((hues.luminance(first), hues.luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


# Linear RGB as seen by dichromats (Viénot, Brettel and Mollon 1999).
EYES = {
    "all cones": np.eye(3),
    "no green": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
    "no red": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
}


def lab(colour, eyes):
    """CIE L*a*b* values (D65) of a colour."""
    encoded = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ (np.array(eyes) @ linear) / (0.9505, 1, 1.089)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("dark", [False, True])
def test_text_contrasts_with_every_tint(dark):
    assert min(contrast(hues.tint(lane, dark=dark), INK[dark]) for lane in range(32)) >= 4.5
    assert f"--ink:{INK[dark]}" in to_svg(picture_of(HALF))


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("eyes", EYES)
def test_the_tints_of_two_lanes_differ(eyes, dark):
    seen = [lab(hues.tint(lane, dark=dark), EYES[eyes]) for lane in range(32)]
    closest = min(np.linalg.norm(a - b) for a, b in combinations(seen, 2))
    assert closest >= 1.8  # a difference of about 1 is visible


def test_tints_repeat_for_the_warps_of_a_warpgroup():
    assert hues.tint(37) == hues.tint(5)
    ((grid,),) = picture_of("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "d").lines
    assert grid.cells[63][7].label == "127:3"
    assert grid.cells[63][7].hue == 31


def test_only_pictures_with_lanes_contain_lane_colours():
    assert "hue" not in to_svg(layout_picture("row", rows=40, columns=2))
    svg = to_svg(picture_of("mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16"))
    style = ET.fromstring(svg).find(f"{SVG}style").text
    of_light, of_dark = style.split("@media")[-2:]
    assert set(re.findall(r"hue(\d+)\{", of_dark)) == {str(lane) for lane in (0, 1, 2, 3, 16, 17, 18, 19)}
    assert f".hue19{{fill:{hues.tint(19)}}}" in of_light
    assert f".hue19{{fill:{hues.tint(19, dark=True)}}}" in of_dark


@pytest.mark.parametrize("opcode", [*PRODUCTS, "ldmatrix.sync.aligned.m8n8.x4.trans.b16"])
def test_svg_is_deterministic_and_one_element(opcode):
    svg = to_svg(picture_of(opcode))
    assert ET.fromstring(svg).tag == f"{SVG}svg"
    assert svg == to_svg(picture_of(opcode))
    assert "\n\n" not in svg  # a blank line would end the element in Markdown


# --------------------------------------------------------------------------------------------------
# The page
# --------------------------------------------------------------------------------------------------


def test_page_pictures_and_table_are_generated_from_the_code():
    page = (ROOT / "docs" / "fragments.md").read_text(encoding="utf-8")
    rendered = page_module().on_page_markdown(page)
    pictures = re.findall(r"<svg.*?</svg>", rendered, re.DOTALL)
    assert len(pictures) == page.count("<!-- draw fragment") >= 7
    assert to_svg(picture_of(HALF)) in pictures
    assert "<!-- draw" not in rendered
    assert "<!-- lowerings" not in rendered
    assert (
        "| 1 `BMMA.168256.XOR.POPC` | 2 `BMMA.168256.AND.POPC`, 6 `LOP3`, 4 `IADD3` | two AND each"
        in rendered
    )
    assert "| none | 2 `HMMA.16816.F32`, 12 `F2FP`, 4 `FADD` |" in rendered


def test_a_marker_is_replaced_by_an_operand_picture():
    rendered = page_module().on_page_markdown(f"<!-- draw fragment {HALF} --operand b --registers -->")
    assert to_svg(picture_of(HALF, "b", registers=True)) in rendered


# --------------------------------------------------------------------------------------------------
# From Python
# --------------------------------------------------------------------------------------------------


def test_an_operand_a_layout_and_a_held_are_drawn():
    operand = fragments_of(HALF).operands["a"]
    for draw in (holders, registers):
        assert draw(operand) == draw(held_of(operand))
        assert draw(operand.layout, svg=True).startswith("<svg")
        assert draw(operand.layout).splitlines()[2:] == draw(operand).replace("f16", "b16").splitlines()[2:]


@pytest.mark.parametrize("opcode", [HALF, BITS, "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"])
def test_the_product_of_an_instruction_is_drawn_by_its_name(opcode):
    found, most = fragments_of(opcode), (4, 4)
    text = product(opcode, most=most)
    assert text == product(found, most=most) == to_text(product_picture_of_operands(found, most))
    assert text.startswith(found.opcode)


def product_picture_of_operands(found, most):
    held = {name: held_of(operand) for name, operand in found.operands.items()}
    d = replace(held["d"], name="C and D") if "c" in held else held["d"]
    return product_picture(found.opcode, held.get("a"), held.get("b"), d, most)


def test_operands_make_a_product():
    operands = fragments_of(HALF).operands
    text = product("mine", operands["a"], operands["b"], operands["d"])
    assert text == product("mine", *(held_of(operands[name]) for name in "abd"))


@pytest.mark.parametrize(
    "given",
    [
        np.ones((16, 16)),
        np.arange(64).reshape(8, 8),
        "a",
        fragments_of(HALF),
        pack(np.ones((8, 32)), layout="row"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_has_no_lanes_is_refused_with_what_to_pass(given):
    for draw in (holders, registers, lambda one: product("a product", None, None, one)):
        with pytest.raises(DtypeError, match=r"which lane holds(?s:.*)operands\[\"a\"\], a Layout or a Held"):
            draw(given)


def test_a_product_needs_an_instruction_or_its_result():
    with pytest.raises(FragmentError, match="moves a matrix, and is not a product"):
        product("ldmatrix.sync.aligned.m8n8.x4.shared.b16")
    with pytest.raises(FragmentError, match=r"mma\.sync\.what"):
        product("mma.sync.what")
    with pytest.raises(SchemeError, match="'mine' without d"):
        product("mine", fragments_of(HALF).operands["a"])
