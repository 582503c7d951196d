"""Tables and pictures of a report, drawn from plain data."""

import json
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from reference.errors import ShapeError
from simwarp.draw.banks import banks, banks_picture
from simwarp.draw.report import table, to_text
from simwarp.observe.banks import count_banks

REPORT = json.loads("""{
"fidelity": {"text": "12 thread-instructions: 12 exact, 0 bounded, 0 open, 0 contractable"},
"divergence": {"lines": {"a.cu:3": {"warp_instructions": 1200, "active_lanes": 31.5}},
               "total": {"warp_instructions": 1200, "active_lanes": 31.5}},
"banks": {"lines": {}, "total": {"conflicts": 0}, "opcodes": {}},
"sectors": {"lines": {"a.cu:3": {"sectors": 4}}, "total": {"sectors": 4},
            "opcodes": {"ld.f32": {"sectors": 4}}},
"traffic": {"spaces": {"global": {"loaded": 4096, "stored": 0}}, "requested": 4096, "compulsory_read": 128,
            "compulsory_written": 0, "operations": {"f32": 12345}},
"coverage": {"rows": {"add": {"section": "9.7.1.1", "fidelity": "exact", "count": 7,
             "forms": {"add.s32": 3, "add.u32": 4}, "operands": {"a": ["one", "zero"], "b": []}}},
             "not_met": ["sub"]}
}""")


def test_a_report_has_every_section():
    expected = """
Fidelity

12 thread-instructions: 12 exact, 0 bounded, 0 open, 0 contractable


Divergence: active lanes of warps

line    warp instructions  active lanes
a.cu:3              1,200         31.50
total               1,200         31.50


Bank conflicts: wavefronts of accesses to shared memory

none


Sectors: 32-byte pieces of global memory

line    sectors
a.cu:3        4
total         4

opcode  sectors
ld.f32        4


Traffic

space   loaded  stored
global   4,096       0

global memory        bytes
requested            4,096
compulsory, read       128
compulsory, written      0

type  operations
f32       12,345


Coverage: instructions, and the classes of their operand values

row  thread-instructions  forms            operands
add                    7  add.s32 add.u32  a: one, zero

1 rows of 2
"""
    assert to_text(REPORT) == expected.strip()


def test_a_report_without_observations_advises_observe():
    assert to_text({}) == 'nothing was observed: simwarp.Device(observe="all") counts everything'


def test_a_missing_number_is_drawn_as_a_dash():
    assert table(["a", "b"], [["x", None], ["y", 1.5]]) == "a     b\nx     -\ny  1.50"
    assert table(["a", "b"], []) == "a  b"


# ---- banks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_each_wavefront_has_a_row(width):
    """Compared with the observer, for stores, since loads may merge phases."""
    random = np.random.default_rng(width)
    lanes = np.arange(32)
    for stride in (0, 1, 2, 3, 8, 32, None):
        at = random.integers(0, 200, 32) * width if stride is None else lanes * stride * width
        there = random.random(32) < 0.8
        picture = banks_picture([int(a) if on else None for a, on in zip(at, there, strict=True)], width)
        found = count_banks(lanes[there], at[there].astype(np.uint64), width, "store")
        rows = picture.lines[0][0].cells
        assert len(rows) == found.wavefronts
        fewest = f"where {found.wavefronts - found.conflicts} would do" in picture.title
        assert fewest == (found.conflicts > 0)


def test_each_lane_is_drawn_in_its_bank():
    cells = banks_picture([8 * lane for lane in range(32)]).lines[0][0].cells
    assert [cell.label for cell in cells[0][::2]] == [str(lane) for lane in range(16)]
    assert [cell.label for cell in cells[1][::2]] == [str(lane) for lane in range(16, 32)]
    assert {cell.label for row in cells for cell in row[1::2]} == {""}


def test_lanes_that_share_a_word_share_a_cell():
    picture = banks_picture([4 * (lane // 8) for lane in range(32)])
    assert [cell.label for cell in picture.lines[0][0].cells[0][:5]] == ["0+7", "8+7", "16+7", "24+7", ""]
    assert picture.notes
    assert not banks_picture([4 * lane for lane in range(32)]).notes


def test_wide_elements_occupy_several_banks():
    cells = banks_picture([16 * lane for lane in range(32)], 16).lines[0][0].cells
    assert [cell.label for cell in cells[1][:5]] == ["8", "8", "8", "8", "9"]


def test_an_access_without_lanes_has_0_wavefronts():
    assert banks_picture([None] * 32).title == "0 wavefronts: lanes by bank"
    assert "0 wavefronts" in banks([None] * 32)


def test_text_and_svg_name_the_same_wavefronts():
    addresses = [16 * lane for lane in range(32)]
    assert banks(addresses).splitlines()[0] == "4 wavefronts where 1 would do: lanes by bank"
    root = ElementTree.fromstring(banks(addresses, svg=True))
    labels = [element.text for element in root.iter() if element.get("class") == "label"]
    assert labels == [str(lane) for lane in range(32)]


@pytest.mark.parametrize(
    ("addresses", "width", "message"),
    [
        ([0] * 31, 4, "31 addresses\ngive one for each of 32"),
        ([0] * 32, 3, "access of 3 bytes"),
        ([*range(32)], 4, "lane 1 at offset 1\n"),
        ([-4, *[0] * 31], 4, "lane 0 at offset -4"),
    ],
)
def test_unsuitable_addresses_are_refused(addresses, width, message):
    with pytest.raises(ShapeError, match=message):
        banks(addresses, width)
