"""A PTX row is complete when it has facts, forms, a probe, a twin, evidence and a line in the docs."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from oracles import scalar_matrix as matrices
from oracles import scalar_ptx as twins
from simwarp.lab.evidence.bounds import parse_bound
from simwarp.lab.evidence.catalogue import maker, operands_of, probe_of
from simwarp.lab.evidence.control import BY_KIND
from simwarp.lab.evidence.forms import census, evidence, required, witness
from simwarp.lab.evidence.launch import batches
from simwarp.lab.evidence.probe import module
from simwarp.ptx.forms import forms, spellings
from simwarp.ptx.instructions import ROWS, TABLE
from support.offenders import check_each, every_case
from support.pages import page_module

ROOT = Path(__file__).parents[2]
TWINS, BOUNDED = {**twins.TWINS, **matrices.TWINS}, twins.BOUNDED
hooks = page_module()
CENSUS = ROOT / "tests" / "data" / "census_forms.txt"
SPACES = ("shared", "local", "const", "param", "global")
RECORD = "record it on a GPU with `simwarp record 'ptx-*'`"
CHAPTERS = sorted({".".join(row.section.split(".")[:3]) for row in ROWS.values()})
"""The sections of the PTX ISA that have rows, to three numbers."""
every_chapter = pytest.mark.parametrize("chapter", CHAPTERS)


def opcodes(row):
    return required(row) or forms(row)


def rows_of(chapter):
    return [name for name, row in ROWS.items() if f"{row.section}.".startswith(f"{chapter}.")]


def test_every_row_has_a_twin_and_every_twin_a_row():
    computing = {name for name, row in ROWS.items() if row.kind not in BY_KIND}
    assert computing == set(TWINS) | set(BOUNDED)
    assert not set(TWINS) & set(BOUNDED)
    assert not set(twins.TWINS) & set(matrices.TWINS)


@every_case("name", ROWS)
def test_every_row_has_a_name_section_and_architecture(name):
    row = ROWS[name]
    assert row.name == name
    assert re.fullmatch(r"9\.7(\.\d+){2,3}", row.section)
    assert row.summary
    assert not row.summary.endswith(".")
    assert row.fidelity in ("exact", "bounded", "open", "unsupported")
    assert bool(row.bound) == (row.fidelity == "bounded") == (name in BOUNDED)
    assert row.minimum_sm in (50, 53, 60, 61, 70, 72, 75, 80, 86, 89, 90, 100)
    if row.bound:
        assert parse_bound(row.bound).limit > 0


@every_chapter
def test_forms_cover_every_type_and_modifier_of_the_row(chapter):
    check_each(check_forms, rows_of(chapter))


def check_forms(name):
    """Each form is a spelling of its row that the table finds, and all types and modifiers occur."""
    row = ROWS[name]
    chosen = forms(row)
    assert chosen
    assert len(set(chosen)) == len(chosen)
    for opcode in opcodes(row):
        found, form = TABLE.find(opcode)
        assert (found.name, form.opcode) == (name, opcode)
    used = {word for opcode in chosen for word in opcode.split(".")}
    written = {
        word
        for a, b, _ in re.findall(r"\{([^}]*)\}|<([^>]*)>|(\.?[A-Za-z0-9_:]+)", row.spelling)
        for word in re.split(r"[|.]", a + b)
        if word
    }
    unused = {word for word in written - used if word.partition("::")[0] not in SPACES}
    assert unused == set(), "modifiers that no legal form has"
    assert {row.match(opcode).T for opcode in chosen} >= set(row.types)


def test_rows_with_few_spellings_test_all_of_them():
    assert forms(ROWS["popc"]) == spellings(ROWS["popc"])
    assert len(forms(ROWS["ld"])) < len(spellings(ROWS["ld"])) / 2


@pytest.mark.at_most(8)
@pytest.mark.slow_cases("9.7.9", "9.7.14", "9.7.15")
@every_chapter
def test_every_form_has_a_kernel_and_operands(chapter):
    check_each(check_kernels, rows_of(chapter))


def check_kernels(name):
    row = ROWS[name]
    assert maker(row) is not None
    for opcode in required(row):
        probe = probe_of(opcode)
        assert probe.results, opcode
        assert opcode in probe.entry
        assert len(operands_of(probe)) >= (256 if not probe.faults else 1), opcode


@pytest.mark.at_most(69)
@pytest.mark.slow_cases("9.7.9.8", "9.7.9.11", "9.7.9.21", "9.7.13.?", "9.7.7.1", "9.7.14.4.3", "9.7.6.1")
@pytest.mark.gate_cases("9.7.15.5")
@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas of the CUDA toolkit")
@pytest.mark.parametrize("section", sorted({row.section for row in ROWS.values()}))
def test_ptxas_accepts_every_kernel(section, tmp_path):
    """One ptxas call compiles many kernels, since starting it takes most of the time."""
    opcodes = [opcode for row in ROWS.values() if row.section == section for opcode in required(row)]
    for k, batch in enumerate(batches([probe_of(opcode) for opcode in opcodes])):
        path = tmp_path / f"{k}.ptx"
        path.write_text(module(batch))
        command = ["ptxas", "-arch=sm_90a", "-O0", "-o", str(tmp_path / "out"), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_no_opcode_belongs_to_two_rows():
    doubles = []
    for name, row in ROWS.items():
        others = [other for other in ROWS if other != name and ROWS[other].base == row.base]
        doubles += [(opcode, other) for opcode in forms(row) for other in others if ROWS[other].match(opcode)]
    assert doubles == []


# ----------------------------------------------------------------------------------------- evidence


@every_case("name", ROWS)
def test_evidence_has_enough_operands_and_a_recording(name):
    """`make gate` refuses a form without a recording."""
    for opcode in required(ROWS[name]):
        if (found := evidence().get(opcode)) is None:
            continue
        assert (ROOT / "tests" / "golden" / "sm_90" / f"{found.golden}.npz").exists(), opcode
        assert found.sets >= 256 or probe_of(opcode).faults, opcode
        assert (found.largest_error is not None) == (name in BOUNDED), opcode


def test_all_evidence_is_for_existing_forms():
    assert [opcode for opcode in evidence() if TABLE.find(opcode) is None] == []
    assert witness()["gpu"]["name"].startswith("NVIDIA"), RECORD


# -------------------------------------------------------------------------------------------- census


def listed():
    """The forms of the census, and the number of them that lets 99 % of its kernels run."""
    lines = CENSUS.read_text().split("\n\n")[0].splitlines()
    forms = [line for line in lines if not line.startswith("#")]
    (mark,) = (int(line.split()[1][:-1]) for line in lines if line.endswith(" 99 %"))
    return forms, mark


def test_the_census_matches_its_counts():
    forms, mark = listed()
    assert (len(forms), len(set(forms)), mark) == (712, 712, 592)
    outside = re.compile(r"cp\b")
    within = [form for form in forms[:mark] if not outside.match(form)]
    assert len(within) == 587
    assert list(census()) == within


def test_every_form_of_the_census_is_required_of_a_row():
    all_required = {opcode for row in ROWS.values() for opcode in required(row)}
    assert [form for form in census() if form not in all_required] == []


# --------------------------------------------------------------------------------------------- docs


def test_the_documentation_has_a_line_for_each_row():
    lines = hooks.table(ROWS).splitlines()[2:]
    assert [re.match(r"\| `(.+?)` \| (\S+) \|", line).groups() for line in lines] == [
        (name.replace("|", "\\|"), row.section) for name, row in ROWS.items()
    ]
    for line, row in zip(lines, ROWS.values(), strict=True):
        assert len(re.split(r"(?<!\\)\|", line)) == 8
        assert row.summary.replace("|", "\\|") in line


def test_the_documentation_lists_unsupported_instructions():
    text = hooks.outside()
    for line in CENSUS.read_text().splitlines():
        if line and not line.startswith("#") and TABLE.find(line) is None:
            assert f"`{line}`" in text
