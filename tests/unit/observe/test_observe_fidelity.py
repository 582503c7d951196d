"""Instructions with exact, bounded, open and contractable results, counted lane by lane."""

from pathlib import Path

import pytest

import simwarp
from simwarp.observe.fidelity import contractable
from simwarp.program.link import link
from simwarp.ptx.parse import parse
from support import observed_loops as loops
from support import small_kernels as small

TESTS = Path(__file__).parents[2]
HEAD = ".version 8.0 .target sm_90 .address_size 64\n"
DECLARED = ".reg .pred %p; .reg .b16 %h<6>; .reg .f32 %f<6>; .reg .f64 %d<6>;"


def fused(body, before=""):
    """The opcodes of instructions that a compiler may fuse."""
    module = parse(f"{HEAD}{before}.entry k() {{ {DECLARED} {body} ret; }}")
    program = link(module, module.entries["k"])
    return [program.steps[at].instruction.opcode for at in sorted(contractable(program))]


def observed(body, block=32, **options):
    device = simwarp.Device(observe="fidelity", **options)
    small.run(body + small.STORE, block, device=device)
    return device, device.report.fidelity


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("sum_", ["add", "sub"])
def test_a_product_used_by_a_sum_is_contractable(kind, sum_):
    r = {"f32": "%f", "f64": "%d"}.get(kind, "%h")
    opcodes = [f"mul.{kind}", f"{sum_}.{kind}"]
    assert fused(f"mul.{kind} {r}1, {r}2, {r}3; {sum_}.{kind} {r}4, {r}1, {r}5;") == opcodes
    assert fused(f"mul.{kind} {r}1, {r}2, {r}3; {sum_}.{kind} {r}4, {r}5, {r}1;") == opcodes


@pytest.mark.parametrize(
    "body",
    [
        "mul.rn.f32 %f1, %f2, %f3; add.f32 %f4, %f1, %f5;",
        "mul.f32 %f1, %f2, %f3; add.rn.f32 %f4, %f1, %f5;",
        "mul.sat.f32 %f1, %f2, %f3; add.f32 %f4, %f1, %f5;",
        "mul.f32 %f1, %f2, %f3; add.f32 %f4, %f3, %f5;",
        "mul.f32 %f1, %f2, %f3; mul.f32 %f4, %f1, %f5;",
        "fma.rn.f32 %f1, %f2, %f3, %f4; add.f32 %f4, %f1, %f5;",
        "mul.f32 %f1, %f2, %f3; mov.f32 %f1, %f2; add.f32 %f4, %f1, %f5;",
        "add.f32 %f4, %f1, %f5; mul.f32 %f1, %f2, %f3;",
        "mul.f32 %f1, %f2, %f3; ret; add.f32 %f4, %f1, %f5;",
        "mul.f32 %f1, %f2, %f3; bra E; add.f32 %f4, %f1, %f5; E:",
    ],
)
def test_unfusable_products_are_not_counted(body):
    assert fused(body) == []


@pytest.mark.parametrize(
    "body",
    [
        "mul.ftz.f32 %f1, %f2, %f3; add.ftz.sat.f32 %f4, %f1, %f5;",
        "mul.f32 %f1, %f2, %f3; @%p mov.f32 %f1, %f2; add.f32 %f4, %f1, %f5;",
        "mul.f32 %f1, %f2, %f3; @%p bra E; mov.f32 %f1, %f2; E: add.f32 %f4, %f1, %f5;",
        "L: add.f32 %f4, %f1, %f5; mul.f32 %f1, %f2, %f3; @%p bra L;",
        "mul.f32 %f1, %f2, %f3; @%p ret; add.f32 %f1, %f1, %f1;",
    ],
)
def test_products_fusable_on_some_path_are_counted(body):
    assert len(fused(body)) == 2


def test_every_pair_of_product_and_sum_is_counted():
    body = "mul.f32 %f1, %f2, %f3; mul.f32 %f2, %f2, %f3; add.f32 %f4, %f1, %f2; sub.f32 %f5, %f1, %f4;"
    assert fused(body) == ["mul.f32", "mul.f32", "add.f32", "sub.f32"]


def test_registers_of_different_functions_are_not_confused():
    function = ".func f() { .reg .f32 %f<6>; add.f32 %f4, %f1, %f5; ret; }\n"
    assert fused("mul.f32 %f1, %f2, %f3; call f;", function) == []


BODY = """
mov.f32 %f1, 0f40000000; mov.u32 %r3, 5;
mul.f32 %f2, %f1, %f1;
setp.lt.u32 %p1, %lane, 7;
@%p1 add.f32 %f3, %f2, %f1;
rcp.approx.f32 %f4, %f1;
sqrt.approx.f32 %f4, %f1;
setp.lt.u32 %p1, %lane, 3;
@%p1 atom.global.add.u32 %r4, [%in], 1;
mov.u32 %r2, 1; """


def test_kinds_bounds_and_lines_are_reported():
    device, found = observed(BODY, block=40)
    assert found.counts["contractable"] == 40 + 7 + 7  # both warps have a lane 0 to 6
    assert found.counts["bounded"] == 80
    assert found.bounds == {"1 ulp": 40, "2^-23 of it": 40}
    assert found.counts["open"] == 3 + 3
    assert found.counts.total() == device.executed
    lines = found.lines["contractable"]
    at = {part: f"ptx:{small.line_of(part, BODY + small.STORE)}" for part in ("mul.f32", "add.f32", "atom")}
    assert {at["mul.f32"]: 40, at["add.f32"]: 14} == lines.to_json()
    assert found.lines["open"][at["atom"]] == 6


def test_a_run_ends_with_one_line_of_fidelity():
    _, found = observed(BODY, block=40)
    mul, add, atom = (small.line_of(part, BODY + small.STORE) for part in ("mul.f32", "add.f32", "atom"))
    assert str(found) == (
        f"{found.counts.total():,} thread-instructions: {found.counts['exact']:,} exact, "
        f"80 bounded (off by at most 1 ulp, 2^-23 of it), "
        f"6 open (the PTX ISA leaves the result open: ptx:{atom}), "
        f"54 contractable (ptxas may fuse a product with its sum: ptx:{mul}, ptx:{add})"
    )
    assert found.to_json()["text"] == str(found)


def test_a_long_list_of_lines_is_abbreviated():
    sums = "".join(f"add.f32 %f{3 + i % 5}, %f2, %f1;\n" for i in range(12))
    _, found = observed("mov.f32 %f1, 0f40000000; mul.f32 %f2, %f1, %f1;\n" + sums + "mov.u32 %r2, 1; ")
    assert str(found).endswith("and 5 more)")
    assert len(found.lines["contractable"]) == 13


def test_counts_of_chunks_compact_copies_and_launches_add_up():
    device = loops.run("fidelity", launches=2)
    found = device.report.fidelity
    # rem may be open: a division by zero is
    assert found.counts["open"] == 2 * 2 * loops.BLOCK * loops.GRID
    assert found.counts.total() == device.executed


def test_clearing_resets_the_counts():
    device, found = observed(BODY)
    device.report.clear()
    assert str(found) == "0 thread-instructions"
    assert found.to_json()["bounds"] == {}
