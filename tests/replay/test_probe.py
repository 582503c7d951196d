"""Fragment maps found on an H200 (``simwarp record probe``) are found on the simulator too."""

import re

import pytest

import simwarp
from simwarp.fragments import all_opcodes, fragments_of
from simwarp.fragments.opcodes import confirmations
from simwarp.lab.probe import probe
from simwarp.lab.recording import recorded

GOLDEN = recorded("probe").meta
FORMS = GOLDEN["forms"]
AWAITED = {opcode for opcode in all_opcodes() if re.search(r"m64n(240|256)k32.*\.s32\.", opcode)}
"""Forms of wgmma that ptxas accepts and the PTX ISA does not list; no recording has them yet."""


def family(opcode):
    """Group instructions with equal maps: types of one width, memory layouts, saturation."""
    layouts = tuple(
        (str(operand.layout), operand.layout.bits) for operand in fragments_of(opcode).operands.values()
    )
    return opcode.split(".sync")[0], layouts


REPRESENTATIVES = list({family(opcode): opcode for opcode in FORMS}.values())


def test_the_golden_is_complete_and_from_hardware():
    assert "NVIDIA" in GOLDEN["gpu"]["name"]
    assert set(GOLDEN["forms"]) == set(all_opcodes()) - AWAITED
    assert len(AWAITED) == 16


def test_maps_are_confirmed_for_exactly_the_chips_that_agreed():
    """`simwarp.fragments` lists a chip as confirmed for exactly the maps that its probe agreed with."""
    agreed = {opcode for opcode, form in GOLDEN["forms"].items() if form["agreed"]}
    assert {opcode for opcode, chips in confirmations().items() if "sm_90" in chips} == agreed


def is_gate(opcode):
    """Whether CI leaves a form out: one of wgmma, with a width like others."""
    width = re.search(r"m64n(\d+)k", opcode)
    return width is not None and width[1] not in ("8", "24", "72", "80", "160", "256")


@pytest.mark.slow_cases("mma.sync.aligned.m16n8k256.*", "mma.sync.aligned.m16n8k32.*satfinite.s32.u8*")
@pytest.mark.parametrize(
    "opcode", [pytest.param(x, marks=pytest.mark.gate if is_gate(x) else ()) for x in REPRESENTATIVES]
)
def test_the_simulator_agrees_with_the_recorded_probe(opcode):
    finding = probe(opcode, simwarp.Device())
    assert finding.digest == FORMS[opcode]["digest"]
    assert finding.agreed == FORMS[opcode]["agreed"], finding.differences
