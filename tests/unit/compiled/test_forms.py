"""Machine code of every form that is traced gives the bits of its row, on edges and random operands."""

import numpy as np
import pytest

import simwarp
from simwarp.compiled.segments import register_types, trace
from simwarp.lab.evidence.forms import required
from simwarp.lab.evidence.probe import module
from simwarp.program.link import link
from simwarp.ptx.instructions import ROWS, TABLE
from simwarp.ptx.kinds import PURE
from simwarp.ptx.parse import parse
from support import run_ptx_rows as rows

NAMES = [name for name, row in ROWS.items() if row.kind is PURE]


def compare(forms):
    """Run forms on both engines."""
    probes = [rows.probe_of(form) for form in forms]
    operands = [rows.some_sets(probe) for probe in probes]
    for one, given in zip(probes, operands, strict=True):
        (expected,) = rows.run(simwarp.Device(engine="numpy"), [one], [given])
        (got,) = rows.run(simwarp.Device(engine="compiled"), [one], [given])
        np.testing.assert_array_equal(got, expected, err_msg=one.form)


def traced(form):
    """Whether the step of a form is compiled."""
    syntax = parse(module([rows.probe_of(form)]))
    program = link(syntax, next(iter(syntax.entries.values())))
    row, _ = TABLE.find(form)
    own = [step for step in program.steps if step.row is row]
    return all(trace(step, register_types(program)) is not None for step in own)


@pytest.mark.parametrize("name", NAMES)
def test_a_form_of_each_row_has_equal_bits(name):
    compare(required(ROWS[name])[:1])


@pytest.mark.gate
@pytest.mark.parametrize("name", NAMES)
def test_all_forms_of_each_row_have_equal_bits(name):
    compare(required(ROWS[name]))


@pytest.mark.parametrize(
    "form",
    [
        "add.u32",
        "mad.lo.s32",
        "mul.wide.s32",
        "mul.hi.u32",
        "shl.b32",
        "shr.s64",
        "lop3.b32",
        "shf.l.wrap.b32",
        "bfe.u32",
        "popc.b64",
        "clz.b32",
        "min.s32",
        "setp.lt.s32",
        "setp.leu.f32",
        "selp.b32",
        "add.rn.f32",
        "mul.f32",
        "fma.rn.f32",
        "fma.rn.f64",
        "fma.rn.ftz.f32",
        "div.rn.f64",
        "cvt.s64.s32",
        "cvt.rn.f32.s32",
        "neg.f32",
        "max.f32",
        "mov.b32",
        "div.s32",
        "rem.u64",
    ],
)
def test_the_usual_forms_are_compiled(form):
    assert traced(form)


def test_a_row_that_asks_for_values_is_not_compiled():
    assert not traced("sin.approx.f32")
