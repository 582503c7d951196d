"""`setmaxnreg`: the registers that warps of a block release and request."""

from __future__ import annotations

import pytest

import simwarp
from simwarp.engine.sync.register_pool import at_entry
from simwarp.faults import (
    Deadlock,
    PtxSyntaxError,
    RegisterCountFault,
    RegisterShortage,
    UnsupportedInstruction,
)
from support.small_kernels import STORE, fault_of, line_of, run, text

HOPPER = ".maxntid 384, 1, 1 .minnctapersm 1"
"""168 registers for each of 384 threads: 64,512 in all."""
ROLES = "shr.u32 %r3, %r1, 7; setp.eq.u32 %p1, %r3, 0; mov.u32 %r2, %r3;\n"
"""The first warpgroup produces."""
DEC, INC = "setmaxnreg.dec.sync.aligned.u32", "setmaxnreg.inc.sync.aligned.u32"


def specialised(released, requested):
    """One warpgroup releases registers, the two others request some."""
    body = f"@%p1 bra PRODUCE;\n{INC} {requested};\nbra END;\nPRODUCE: {DEC} {released};\nEND:"
    return ROLES + body + STORE


EACH_SCHEDULE = pytest.mark.parametrize("schedule", ["lowest pc", "stack", "random"])


@EACH_SCHEDULE
@pytest.mark.parametrize(("released", "requested"), [(40, 232), (24, 240), (168, 168), (40, 168), (40, 40)])
def test_counts_that_fit_the_block_are_met(released, requested, schedule):
    """The consumers reach their request first, and wait for the producer's release."""
    device = simwarp.Device(schedule=schedule)
    got = run(specialised(released, requested), block=384, grid=3, directives=HOPPER, device=device)
    assert got == [t // 128 for t in range(384)] * 3


@EACH_SCHEDULE
@pytest.mark.parametrize(("released", "requested"), [(80, 224), (40, 240), (24, 248), (168, 176)])
def test_counts_that_exceed_the_block_are_a_named_deadlock(released, requested, schedule):
    device = simwarp.Device(schedule=schedule)
    body = specialised(released, requested)
    fault = fault_of(RegisterShortage, body, block=384, directives=HOPPER, device=device)
    asked = 128 * released + 256 * requested
    assert isinstance(fault, Deadlock)
    assert (fault.check, fault.registers, fault.asked) == ("deadlock", 64512, asked)
    assert fault.place.text == f"{INC} {requested};"
    assert fault.waiting
    assert f"would own {asked}" in str(fault)
    assert "64512 registers, 168 for each thread" in str(fault)


def test_a_reported_shortage_ends_the_launch():
    device = simwarp.Device(checks={"deadlock": "report"})
    run(specialised(80, 224), block=384, directives=HOPPER, device=device)
    assert [type(fault) for fault in device.faults] == [RegisterShortage]


def test_a_producer_that_spins_while_consumers_lack_registers_is_a_shortage():
    """The other lanes poll memory for ever, and do not stand at a barrier."""
    body = (
        ROLES
        + f"""@%p1 bra PRODUCE;
{INC} 240; st.volatile.global.u32 [%out], 77; bra END;
PRODUCE: {DEC} 40;
AGAIN: ld.volatile.global.u32 %r4, [%out]; setp.ne.u32 %p2, %r4, 77; @%p2 bra AGAIN;
END: ret;"""
    )
    device = simwarp.Device(checks={"deadlock": "raise"})
    fault = fault_of(RegisterShortage, body, block=384, directives=HOPPER, device=device)
    assert fault.asked == 128 * 40 + 256 * 240


def test_registers_released_twice_serve_a_later_request():
    """64 to 40 to 24 of one warpgroup; 64 to 104 of the other."""
    low = f"LOW: {DEC} 40;\nbar.sync 2, 128;\n{DEC} 24;\nEND:"
    body = ROLES + f"@%p1 bra LOW;\n{INC} 104;\nbra END;\n" + low + STORE
    assert run(body, block=256, directives=".maxnreg 64") == [t // 128 for t in range(256)]
    more = body.replace("104", "112")
    assert fault_of(RegisterShortage, more, block=256, directives=".maxnreg 64").asked == 128 * (24 + 112)


@pytest.mark.parametrize("directives", ["", ".maxntid 384, 1, 1", ".reqntid 384, 1, 1", ".maxntid 256, 1, 1"])
def test_kernels_whose_count_at_entry_is_unknown_have_no_pool(directives):
    """There ptxas ignores the instruction (C7508)."""
    block = 256 if "256" in directives else 384
    assert run(specialised(80, 256), block=block, directives=directives) == [t // 128 for t in range(block)]


# The registers that ptxas 13.0.88 -v reports for a kernel with setmaxnreg of 240 and 24.
ENTRY = {
    ".maxnreg 128": 128,
    ".maxnreg 165": 168,
    ".maxntid 384, 1, 1 .minnctapersm 1": 168,
    ".reqntid 384, 1, 1 .minnctapersm 1": 168,
    ".maxntid 300, 1, 1 .minnctapersm 1": 168,
    ".maxntid 256, 1, 1 .minnctapersm 1": 240,
    ".maxntid 256, 1, 1 .minnctapersm 2": 128,
    ".maxntid 256, 1, 1 .minnctapersm 3": 80,
    ".maxntid 640, 1, 1 .minnctapersm 1": 96,
    ".maxntid 1024, 1, 1 .minnctapersm 1": 64,
    ".maxntid 384, 1, 1 .minnctapersm 1 .maxnreg 128": 128,
    ".maxntid 384, 1, 1 .maxnreg 255": 240,
    ".maxntid 384, 1, 1": None,
    "": None,
}


@pytest.mark.parametrize("directives", ENTRY)
def test_registers_at_entry_are_those_of_ptxas(directives):
    program = simwarp.Device().load(text(specialised(24, 240), directives=directives)).kernel("k").program
    assert at_entry(program, simwarp.chips.chips.SM_90) == ENTRY[directives]


def test_a_kernel_that_only_releases_begins_with_all():
    program = simwarp.Device().load(text(f"{DEC} 40; ret;", directives=".maxnreg 64")).kernel("k").program
    assert at_entry(program, simwarp.chips.chips.SM_90) == 64


@pytest.mark.parametrize("number", [0, 16, 23, 25, 100, 257, 264, 4294967288])
@pytest.mark.parametrize("opcode", [DEC, INC])
def test_counts_that_ptxas_refuses_are_refused(opcode, number):
    with pytest.raises(PtxSyntaxError, match="a multiple of 8 from 24 to 256"):
        simwarp.Device().load(text(f"{opcode} {number}; ret;"))


def test_targets_without_the_instruction_are_refused():
    for target in ("sm_90", "sm_80"):
        with pytest.raises(UnsupportedInstruction):
            simwarp.Device().load(text(f"{DEC} 40; ret;").replace("sm_90a", target))


ODD_WARP = "shr.u32 %r3, %r1, 5; setp.eq.u32 %p1, %r3, 2; mov.u32 %r2, 1;\n"
DIFFERENT = {
    "another count": f"@%p1 bra OTHER;\n{DEC} 40;\nbra END;\nOTHER: {DEC} 32;\nEND:",
    "another instruction": f"@%p1 bra OTHER;\n{DEC} 40;\nbra END;\nOTHER: {INC} 64;\nEND:",
    "a warp skips it": f"@%p1 bra END;\n{DEC} 40;\nEND:",
    "a warp has exited": f"@%p1 exit;\n{DEC} 40;\n",
    "a predicate differs": f"setp.ne.u32 %p1, %r1, 70;\n@%p1 {DEC} 40;\n",
}


@EACH_SCHEDULE
@pytest.mark.parametrize("how", DIFFERENT)
def test_warps_of_a_warpgroup_that_differ_are_a_fault(how, schedule):
    device = simwarp.Device(checks={"barriers": "report", "deadlock": "report"}, schedule=schedule)
    got = run(ODD_WARP + DIFFERENT[how] + STORE, block=128, directives=".maxnreg 64", device=device)
    (fault,) = [fault for fault in device.faults if isinstance(fault, RegisterCountFault)]
    assert fault.check == "barriers"
    assert fault.place.warp in range(4)
    assert sum(word == 1 for word in got) in (128, 96)


@EACH_SCHEDULE
@pytest.mark.parametrize("how", ["a warp skips it", "a warp has exited"])
def test_a_skipped_setmaxnreg_is_named_at_its_line_and_the_warp_that_skips_it_in_a_note(how, schedule):
    body = ODD_WARP + DIFFERENT[how] + STORE
    device = simwarp.Device(schedule=schedule)
    fault = fault_of(RegisterCountFault, body, block=128, directives=".maxnreg 64", device=device)
    assert fault.place.line == line_of(DEC, body, directives=".maxnreg 64")
    assert fault.place.warp != 2
    assert "warp 2" in fault.values


@pytest.mark.parametrize("leaves", ["bra END", "exit"])
def test_a_lane_that_skips_it_is_a_fault(leaves):
    body = f"mov.u32 %r2, 1; setp.eq.u32 %p1, %r1, 70;\n@%p1 {leaves};\n{DEC} 40;\nEND:" + STORE
    fault = fault_of(RegisterCountFault, body, block=128, directives=".maxnreg 64")
    assert (fault.place.warp, fault.count) == (2, 31)


def test_a_ragged_last_warp_is_whole_with_its_threads():
    assert run(f"mov.u32 %r2, 1; {DEC} 40;" + STORE, block=100, directives=".maxnreg 64") == [1] * 100


def test_warpgroups_may_differ_from_each_other_and_repeat():
    """A loop that releases and requests, by two warpgroups in turn, with barriers between."""
    body = (
        ROLES
        + f"""mov.u32 %r4, 0;
AGAIN: bar.sync 0; @%p1 bra FIRST;
{DEC} 40; bar.sync 0; bar.sync 0; {INC} 64; bra NEXT;
FIRST: bar.sync 0; {INC} 88; bar.sync 3, 128; {DEC} 64; bar.sync 0;
NEXT: add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 3; @%p2 bra AGAIN;
"""
    )
    for schedule in ("lowest pc", "stack", "random"):
        device = simwarp.Device(schedule=schedule)
        got = run(body + STORE, block=256, grid=2, directives=".maxnreg 64", device=device)
        assert got == [t // 128 for t in range(256)] * 2


def test_a_block_in_a_large_grid_waits_for_its_own_registers_only():
    """The odd blocks release; the even ones request what only the others released."""
    body = f"""mov.u32 %r3, %ctaid.x; and.b32 %r3, %r3, 1; setp.eq.u32 %p1, %r3, 1; mov.u32 %r2, 5;
@%p1 bra ODD; {INC} 72; bra END; ODD: {DEC} 40; END:"""
    fault = fault_of(RegisterShortage, body + STORE, block=128, grid=8, directives=".maxnreg 64")
    assert (fault.registers, fault.asked, fault.place.block) == (8192, 9216, (0, 0, 0))


# ---- fences


FENCES = """fence.proxy.alias 70
fence.proxy.async 90
fence.proxy.async.global 90
fence.proxy.async.shared::cta 90
fence.proxy.async.shared::cluster 90
fence.acquire.sync_restrict::shared::cluster.cluster 90
fence.release.sync_restrict::shared::cta.cluster 90
fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster 90
fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster 90
fence.mbarrier_init.release.cluster 90
griddepcontrol.wait 90
griddepcontrol.launch_dependents 90"""


@pytest.mark.parametrize("line", FENCES.splitlines())
def test_fences_run_from_the_target_that_ptxas_takes_them_for(line):
    fence, least = line.split()
    assert run(f"mov.u32 %r2, 3; {fence}; @%p1 {fence};\n".replace("@%p1", "") + STORE) == [3] * 32
    if int(least) == 90:
        with pytest.raises(UnsupportedInstruction, match="needs sm_90"):
            simwarp.Device().load(text(f"{fence}; ret;").replace("sm_90a", "sm_80"))


@pytest.mark.parametrize(
    "fence",
    [
        "fence.proxy",
        "fence.proxy.generic",
        "fence.proxy.async.shared",
        "fence.proxy.async::generic",
        "fence.acquire.sync_restrict::shared::cta.cluster",
        "fence.release.sync_restrict::shared::cluster.cluster",
        "fence.acquire.sync_restrict::shared::cluster.gpu",
        "fence.proxy.async::generic.acquire.sync_restrict::shared::cta.cluster",
    ],
)
def test_fences_that_ptxas_refuses_are_refused(fence):
    with pytest.raises(UnsupportedInstruction):
        simwarp.Device().load(text(f"{fence}; ret;"))


# ---- elect


@pytest.mark.parametrize("form", ["%r3|%p1, -1", "_|%p1, -1", "%r3|%p1, 0xFFFFFFFF", "%r3|%p1, %r5"])
def test_elect_takes_the_forms_that_ptxas_takes(form):
    body = f"mov.u32 %r5, -1; mov.u32 %r3, 0; elect.sync {form}; selp.u32 %r2, 1, %r3, %p1;\n"
    assert run(body + STORE, block=64) == ([1] + [0] * 31) * 2


@pytest.mark.parametrize("form", ["%r3, -1", "%p1, -1", "%r3|_, -1", "_|_, -1", "%r3|%p1"])
def test_elect_refuses_the_forms_that_ptxas_refuses(form):
    with pytest.raises((PtxSyntaxError, UnsupportedInstruction)):
        simwarp.Device().load(text(f"elect.sync {form}; ret;"))


def test_a_block_of_many_warpgroups_shares_one_pool():
    """Seven of eight warpgroups release 8 registers for each thread; the last one takes them all."""
    body = ROLES + f"setp.ne.u32 %p1, %r3, 7; @%p1 bra LOW; {INC} 120; bra END; LOW: {DEC} 56; END:" + STORE
    assert run(body, block=1024, directives=".maxnreg 64") == [t // 128 for t in range(1024)]
    more = body.replace("120", "128")
    assert fault_of(RegisterShortage, more, block=1024, directives=".maxnreg 64").registers == 65536
