"""A PTX row is complete when it says what it is, where it stands, and has a twin and a line in the docs."""

import re
import runpy
from pathlib import Path

import pytest

from simwarp.ptx.instructions import ROWS, TABLE

ROOT = Path(__file__).parents[2]
TWINS = runpy.run_path(str(ROOT / "tests" / "scalar_ptx.py"))["TWINS"]
CONTROL = runpy.run_path(str(ROOT / "tests" / "ptx_kernels.py"))["CONTROL"]
CONTROL_KERNELS = runpy.run_path(str(ROOT / "tests" / "unit" / "test_ptx_rows.py"))["CONTROL_KERNELS"]
table = runpy.run_path(str(ROOT / "docs" / "hooks.py"))["table"]


def test_every_row_has_a_twin_and_every_twin_a_row():
    computing = {name for name, row in ROWS.items() if row.kind not in CONTROL}
    assert computing == set(TWINS)
    assert set(ROWS) - computing == set(CONTROL_KERNELS)


@pytest.mark.parametrize("name", list(ROWS))
def test_facts(name):
    row = ROWS[name]
    assert row.name == name
    assert re.fullmatch(r"9\.7\.\d+\.\d+", row.section)
    assert row.summary
    assert not row.summary.endswith(".")
    assert row.fidelity in ("exact", "bounded", "open", "unsupported")
    assert row.minimum_sm in (50, 70, 75, 80, 86, 89, 90, 100)
    assert row.kind in ("pure", "warp", "load", "store", "atomic", *CONTROL)


@pytest.mark.parametrize("name", list(ROWS))
def test_the_table_finds_the_row_by_each_of_its_forms(name):
    row = ROWS[name]
    assert row.forms()
    for opcode in row.forms():
        found, form = TABLE.find(opcode)
        assert (found.name, form.opcode) == (name, opcode)


def test_no_opcode_belongs_to_two_rows():
    forms = [(opcode, name) for name, row in ROWS.items() for opcode in row.forms()]
    doubles = [
        (opcode, other)
        for opcode, name in forms
        for other in ROWS
        if other != name and ROWS[other].match(opcode)
    ]
    assert doubles == []


def test_the_documentation_has_a_line_for_each_row():
    lines = table(ROWS).splitlines()[2:]
    assert [re.match(r"\| `(.+?)` \| (\S+) \|", line).groups() for line in lines] == [
        (name, row.section) for name, row in ROWS.items()
    ]
    for line, row in zip(lines, ROWS.values(), strict=True):
        assert len(re.split(r"(?<!\\)\|", line)) == 8
        assert row.summary.replace("|", "\\|") in line
