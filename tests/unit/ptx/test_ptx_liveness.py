"""Register liveness: registers that diverged lanes still read are not overwritten."""

import pytest

from simwarp.faults import UninitialisedRegister
from simwarp.program.link import link
from simwarp.program.liveness import EVERY_REGISTER
from simwarp.ptx.parse import parse
from support import small_kernels as small

HEAD = ".version 8.0 .target sm_90 .address_size 64\n"
DECLARED = ".reg .pred %p; .reg .b32 %a, %b, %c, %v<3>; .reg .b64 %x;"


def live(body, before=""):
    """Names of the live registers at each instruction of a kernel."""
    module = parse(f"{HEAD}{before}.entry k() {{ {DECLARED} {body} }}")
    program = link(module, module.entries["k"])
    return [
        {name for slot, name in enumerate(program.registers) if slots >> slot & 1} for slots in program.live
    ]


def test_a_value_lives_from_its_write_to_its_last_read():
    assert live("mov.u32 %a, 1; mov.u32 %b, 2; add.u32 %c, %a, %b; add.u32 %c, %c, %b; ret;")[:5] == [
        set(),
        {"%a"},
        {"%a", "%b"},
        {"%b", "%c"},
        set(),
    ]


def test_a_predicated_write_keeps_the_old_value():
    assert live("@%p mov.u32 %a, 1; add.u32 %b, %a, %a; ret;")[0] == {"%p", "%a"}
    assert live("mov.u32 %a, 1; add.u32 %b, %a, %a; ret;")[0] == set()


def test_registers_read_in_the_next_iteration_are_live():
    body = "mov.u32 %a, 9; L: add.u32 %b, %a, %c; add.u32 %a, %a, -1; setp.ne.u32 %p, %a, 0; @%p bra L; ret;"
    assert live(body)[1:5] == [{"%a", "%c"}, {"%a", "%c"}, {"%a", "%c"}, {"%a", "%c", "%p"}]


def test_registers_read_on_either_side_of_a_branch_are_live():
    body = "@%p bra L; add.u32 %c, %a, 1; bra E; L: add.u32 %c, %b, 1; E: mov.u32 %v0, %c; ret;"
    assert live(body)[0] == {"%p", "%a", "%b"}
    table = "T: .branchtargets L, M; brx.idx %a, T; L: mov.u32 %v0, %b; ret; M: mov.u32 %v1, %c; ret;"
    assert live(table)[0] == {"%a", "%b", "%c"}


def test_addresses_vector_elements_and_the_carry_are_live():
    assert live("st.global.v2.u32 [%x+8], {%a, %b}; ret;")[0] == {"%x", "%a", "%b"}
    assert live("ld.global.v2.u32 {%a, %b}, [%x]; add.u32 %c, %a, %b; ret;")[:2] == [{"%x"}, {"%a", "%b"}]
    assert "%carry" in live("add.cc.u32 %a, %b, %c; addc.u32 %a, %a, 0; ret;")[1]


def test_every_register_is_live_in_a_kernel_with_calls():
    before = ".func f() { ret; }\n"
    module = parse(f"{HEAD}{before}.entry k() {{ {DECLARED} call f; ret; }}")
    assert set(link(module, module.entries["k"]).live) == {EVERY_REGISTER}


def test_waiting_lanes_keep_their_registers():
    """Odd lanes leave the loop at once; writes of the even lanes must keep their registers."""
    body = """mov.u32 %r2, %lane; and.b32 %r3, %lane, 1; setp.ne.u32 %p1, %r3, 0; mov.u32 %r4, 0;
@%p1 bra END;
L: add.u32 %r2, %r2, 100; mov.u32 %r5, %r2; add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 3; @%p2 bra L;
END: """
    assert small.run(body + small.STORE) == [lane + (0 if lane & 1 else 300) for lane in range(32)]


@pytest.mark.parametrize("lanes", ["lt.u32 %p1, %lane, 3", "ge.u32 %p1, %lane, 3"])
def test_a_register_uninitialised_in_some_lanes_is_reported(lanes):
    body = (
        f"setp.{lanes}; @%p1 bra SKIP;\nmov.u32 %r2, 5; add.u32 %r3, %r2, 1;\nSKIP: add.u32 %r4, %lane, 1;\n"
    )
    fault = small.fault_of(UninitialisedRegister, body + small.STORE)
    assert fault.register == "%r2"
    assert fault.place.lane == (0 if "lt" in lanes else 3)
