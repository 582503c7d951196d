"""`simwarp frag`: its five queries, printed as text, JSON and SVG."""

import json
import xml.etree.ElementTree as ET

import pytest

from simwarp.cli import main
from simwarp.cli.frag_picture import picture_of
from simwarp.draw.svg import to_svg
from simwarp.draw.text import to_text
from simwarp.fragments import all_opcodes, fragments_of

pytest.importorskip("typer", reason="the command line needs simwarp[cli]")

HALF = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
XOR = "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc"
WMMA = "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"


def printed(capsys, *arguments):
    assert main(["frag", *arguments]) == 0
    return capsys.readouterr().out


def reported(capsys, *arguments):
    return json.loads(printed(capsys, *arguments, "--json"))


# --------------------------------------------------------------------------------------------------
# The facts
# --------------------------------------------------------------------------------------------------


def test_shape_types_and_registers_of_an_instruction_are_printed(capsys):
    lines = printed(capsys, HALF).splitlines()
    assert lines[0] == f"{HALF}: from sm_80 on"
    assert lines[1] == "D = A B + C; A is 16 × 16, B 16 × 8, C and D 16 × 8"
    facts = {line.split()[0]: line for line in lines[3:7]}
    assert list(facts) == ["d", "a", "b", "c"]
    assert "f16" in facts["a"]
    assert "4 of 32 bits" in facts["a"]
    assert "slot 2:c1  lane 4:c2 8:r1  register 2:r8 2:c8" in facts["a"]
    assert "PTX ISA 9.7.14.5.8" in facts["a"]
    assert lines[7] == "sm_80 to sm_90: 1 HMMA.16816.F32"


def test_native_instructions_of_each_chip_are_listed(capsys):
    lines = printed(capsys, XOR).splitlines()
    assert "sm_80 to sm_89: 1 BMMA.168256.XOR.POPC" in lines
    assert any(line.startswith("sm_90: 2 BMMA.168256.AND.POPC, 6 LOP3, 4 IADD3 (two AND") for line in lines)
    chips = reported(capsys, XOR)["chips"]
    assert [chip["chips"] for chip in chips] == ["sm_80 to sm_89", "sm_90"]
    assert [chip["native"] for chip in chips] == [True, False]


@pytest.mark.parametrize(
    ("opcode", "first"),
    [
        ("ldmatrix.sync.aligned.m8n8.x4.trans.b16", "sm_75"),
        ("stmatrix.sync.aligned.m8n8.x2.b16", "sm_90"),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", "sm_89"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "sm_90a"),
    ],
)
def test_the_first_supporting_chip_is_named(opcode, first, capsys):
    assert reported(capsys, opcode)["first"] == first


def test_the_picture_equals_the_library_picture(capsys):
    assert printed(capsys, HALF).endswith(to_text(picture_of(HALF)) + "\n")
    assert printed(capsys, HALF, "--operand", "B").endswith(to_text(picture_of(HALF, "b")) + "\n")
    whole = printed(capsys, HALF, "--operand", "b", "--registers")
    assert whole.endswith(to_text(picture_of(HALF, "b", registers=True)) + "\n")
    assert ["lane", "0", "|", "0–1,0", "|", "8–9,0", "|"] in [line.split() for line in whole.splitlines()]


def test_instructions_that_move_matrices_show_no_product(capsys):
    shown = printed(capsys, "ldmatrix.sync.aligned.m8n8.x2.shared.b16")
    assert "D = A B" not in shown
    assert "matrix 1" in shown
    assert printed(capsys, "movmatrix.sync.aligned.m8n8.trans.b16").count("8 × 8 elements of b16") == 2


# --------------------------------------------------------------------------------------------------
# Places
# --------------------------------------------------------------------------------------------------


def test_holder_and_element_lookups_are_inverse(capsys):
    assert printed(capsys, HALF, "--element", "a:9,3", "--holder", "a:5,1,16").splitlines() == [
        "a: row 9, column 3 is held by lane 5, register 1, bits 16–31",
        "a: lane 5, register 1, bit 16 holds row 9, column 3",
    ]


def test_an_element_and_a_holder_of_a_bit_are_found(capsys):
    assert printed(capsys, XOR, "--element", "A:9, 200", "--holder", "b:31,1").splitlines() == [
        "a: row 9, column 200 is held by lane 6, register 3, bit 8",
        "b: lane 31, register 1, bit 0 holds row 224, column 7",
    ]


def test_every_copy_of_an_element_is_listed(capsys):
    assert printed(capsys, WMMA, "--element", "b:1,0").splitlines() == [
        "b: row 1, column 0 is held by lane 0, register 0, bits 16–31",
        "b: row 1, column 0 is held by lane 0, register 4, bits 16–31",
    ]


def test_an_element_of_several_matrices_names_its_matrix(capsys):
    load = "ldmatrix.sync.aligned.m8n8.x4.b16"
    assert printed(capsys, load, "--element", "r:7,7,3", "--holder", "r:31,3,16").splitlines() == [
        "r: row 7, column 7 of matrix 3 is held by lane 31, register 3, bits 16–31",
        "r: lane 31, register 3, bit 16 holds row 7, column 7 of matrix 3",
    ]


def test_lookups_are_printed_as_json(capsys):
    report = reported(capsys, HALF, "--element", "a:9,3", "--holder", "d:14,1")
    numbers = [[a[key] for key in ("row", "column", "lane", "register", "bit")] for a in report["answers"]]
    assert numbers == [[9, 3, 5, 1, 16], [3, 5, 14, 1, 0]]
    assert "holders" not in report["operands"][0]


# --------------------------------------------------------------------------------------------------
# Data and files
# --------------------------------------------------------------------------------------------------


@pytest.mark.slow_cases("mma.sync.aligned.m16n8k256.*")
@pytest.mark.parametrize("opcode", [HALF, XOR, WMMA, "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"])
def test_the_tables_are_inverse_to_each_other(opcode, capsys):
    report = reported(capsys, opcode)
    assert report["shape"] == fragments_of(opcode).shape._asdict()
    for operand in report["operands"]:
        bits = operand["register_bits"] // operand["elements_in_a_register"]
        for copy in operand["holders"]:
            for m, matrix in enumerate(copy):
                for i, row in enumerate(matrix):
                    for j, (lane, register, bit) in enumerate(row):
                        assert operand["elements"][lane][register][bit // bits] == [i, j, m]
        counted = [operand[key] for key in ("lanes", "registers", "elements_in_a_register")]
        elements = operand["elements"]
        assert counted == [len(elements), len(elements[0]), len(elements[0][0])]


def test_the_svg_is_written_to_the_named_file(capsys, tmp_path):
    file = tmp_path / "mma.svg"
    assert printed(capsys, HALF, "--svg", str(file)) == ""
    assert file.read_text(encoding="utf-8") == to_svg(picture_of(HALF))
    assert list(tmp_path.iterdir()) == [file]
    assert main(["frag", HALF, "--operand", "a", "--registers", "--svg", str(file)]) == 0
    assert capsys.readouterr().err == f"wrote {file}\n"
    assert ET.parse(file).getroot().find("{http://www.w3.org/2000/svg}title").text.startswith("A: 32 lanes")


@pytest.mark.gate
def test_all_instructions_are_listed(capsys):
    rows = reported(capsys, "--list")["rows"]
    assert {row["instruction"] for row in rows} == set(all_opcodes())
    assert len(rows) == sum(len(fragments_of(opcode).operands) for opcode in all_opcodes())
    by_name = {(row["instruction"], row["operand"]): row for row in rows}
    a = by_name[HALF, "a"]
    wanted = {"type": "f16", "shape": "m16n8k16", "registers": 4, "section": "9.7.14.5.8"}
    assert {key: a[key] for key in wanted} == wanted
    assert a["provenance"] == "PTX ISA 9.7.14.5.8"
    assert by_name[WMMA, "a"]["provenance"] == "observed"
    assert all(isinstance(row["confirmed"], list) for row in rows)
    shown = printed(capsys, "--list")
    assert all(row["instruction"] in shown for row in rows)
    assert shown.endswith(f"{len(all_opcodes())} instructions, {len(rows)} maps\n")


# --------------------------------------------------------------------------------------------------
# What is wrong with a request
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no instruction to show"),
        (["mma.sync.aligned.m16n8k17.row.col.f32.f16.f16.f32"], "m16n8k17"),
        (["add.f32"], "add.f32"),
        ([HALF, "--operand", "e"], "there is no operand 'e'"),
        ([HALF, "--element", "a:9"], "--element a:9 is not a position in an operand"),
        ([HALF, "--element", "a:9,3,0,0"], "is not a position in an operand"),
        ([HALF, "--element", "9,3"], "is not a position in an operand"),
        ([HALF, "--holder", "a:5,one"], "--holder a:5,one is not a position in an operand"),
        ([HALF, "--holder", "x:5,1"], "there is no operand 'x'"),
        ([HALF, "--element", "a:16,0"], "there is no row 16"),
        ([HALF, "--holder", "a:32,0"], "there is no lane 32"),
        ([HALF, "--svg", "/no/such/folder/x.svg"], "choose another file with --svg"),
    ],
)
def test_bad_requests_are_refused(arguments, message, capsys):
    assert main(["frag", *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert len(printed.err.splitlines()) in (2, 3)
    assert printed.out == ""
