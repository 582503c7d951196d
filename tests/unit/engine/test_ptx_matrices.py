"""Matrix instructions: converged warps, initialised registers, aligned memory, and supported chips."""

import numpy as np
import pytest

import simwarp
from simwarp.faults import (
    DivergentMatrix,
    Misaligned,
    OutOfBounds,
    PtxSyntaxError,
    Race,
    UninitialisedRead,
    UninitialisedRegister,
    UnsupportedInstruction,
    WrongStride,
)
from simwarp.observe import Observer
from support import small_kernels as small

STORE, NOTHING = small.STORE, small.NOTHING
text, run, fault_of, line_of = small.text, small.run, small.fault_of, small.line_of

MMA = "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r2,%r3}, {%r4}, {%r5}, {%r6,%r7};\n"
"""With bytes of 1 in A and B, each element of D is 16 more than that of C."""
ONES = "mov.b32 %r4, 0x01010101; mov.b32 %r5, 0x01010101; mov.b32 %r6, 5; mov.b32 %r7, 6;\n"
TILE = ".shared .align 128 .b8 tile[1024];"
FILLED = """mov.u32 %r8, tile; shl.b32 %r9, %lane, 4; add.u32 %r9, %r8, %r9; mov.b32 %r10, %i;
st.shared.v4.b32 [%r9], {%r10, %r10, %r10, %r10};
"""
"""Lane i has filled its row, at %r9 of 16 bytes, with its number."""
LDMATRIX = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r9];\n"

# ------------------------------------------------------------------------------------- who executes


def test_mma_computes_a_product():
    assert run(ONES + MMA + STORE) == [21] * 32
    assert run(ONES + MMA + "mov.b32 %r2, %r3;" + STORE, block=96, grid=3) == [22] * 288


def test_mma_runs_in_some_warps_only():
    """The branch and the predicate are uniform in each warp."""
    body = ONES + "mov.b32 %r2, 1; and.b32 %r10, %i, 32; setp.eq.u32 %p1, %r10, 0;\n"
    expected = ([1] * 32 + [21] * 32) * 2
    assert run(body + "@%p1 bra END;" + MMA + "END: " + STORE, block=128) == expected
    assert run(body + "@!%p1 " + MMA + STORE, block=128) == expected


@pytest.mark.parametrize("schedule", ["lowest pc", "stack", "random"])
def test_mma_waits_for_all_lanes_of_the_warp(schedule):
    body = f"""{ONES} setp.lt.u32 %p1, %lane, 7; @%p1 bra FEW; mov.b32 %r6, 9; bra TOGETHER;
FEW: mov.b32 %r6, 5;
TOGETHER: {MMA}"""
    device = simwarp.Device(schedule=schedule, seed=3)
    assert run(body + STORE, block=64, device=device) == ([21] * 7 + [25] * 25) * 2


def test_mma_predicated_for_a_part_of_a_warp_is_a_fault():
    body = ONES + "setp.lt.u32 %p1, %lane, 30;\n@%p1 " + MMA
    fault = fault_of(DivergentMatrix, body + STORE, block=64)
    assert (fault.place.warp, fault.place.lane, fault.check) == (0, 0, "barriers")
    assert "2 lanes, the first of them lane 30" in fault.values
    assert fault.place.line == line_of("@%p1 " + MMA.strip(), body + STORE)


@pytest.mark.parametrize("late", [False, True])
def test_mma_with_exited_lanes_is_a_fault(late):
    leave = "setp.eq.u32 %p1, %i, 40;\n@%p1 bra LEAVE;\n"
    body = leave + ONES + MMA + STORE + "\nLEAVE: ret;" if late else leave + "bra GO; LEAVE: ret; GO: "
    fault = fault_of(DivergentMatrix, body if late else body + ONES + MMA + STORE, block=64)
    assert (fault.place.warp, fault.place.lane) == (1, 0)
    assert "1 lanes, the first of them lane 8, have exited or do not exist" in fault.values


def test_mma_in_a_partial_warp_is_a_fault():
    fault = fault_of(DivergentMatrix, ONES + MMA + STORE, block=48)
    assert (fault.place.warp, "16 lanes" in fault.values) == (1, True)


def test_a_reported_divergent_mma_still_computes():
    device = simwarp.Device(checks="report")
    assert run(ONES + MMA + STORE, block=40, device=device) == [21] * 40
    (fault,) = device.faults
    assert (type(fault), fault.count) == (DivergentMatrix, 8)


# ---------------------------------------------------------------------------------------- registers


def test_mma_with_an_uninitialised_operand_is_a_fault():
    fault = fault_of(UninitialisedRegister, "mov.b32 %r4, 1; mov.b32 %r6, 1; mov.b32 %r7, 1;" + MMA + STORE)
    assert fault.register == "%r5"


def test_mma_may_overwrite_its_accumulator():
    again = MMA.replace("{%r2,%r3}", "{%r6,%r7}")
    assert run(ONES + again * 3 + "mov.b32 %r2, %r6;" + STORE) == [5 + 48] * 32


def test_mma_accepts_discarded_results_and_literals():
    body = ONES + MMA.replace("{%r2,%r3}", "{%r2,_}").replace("{%r6,%r7}", "{7,8}")
    assert run(body + STORE) == [23] * 32


@pytest.mark.parametrize(
    ("given", "operand"), [("{%r4,%r5}, {%r5}", "a"), ("{%r4}, {%r5,%r6,%r7}", "b"), ("{%r4}, %r5", "")]
)
def test_mma_refuses_a_wrong_number_of_registers(given, operand):
    body = ONES + MMA.replace("{%r4}, {%r5}", given)
    if not operand:  # one register may stand alone
        assert run(body + STORE) == [21] * 32
        return
    with pytest.raises(PtxSyntaxError, match=f"operand {operand} of .* has . registers") as caught:
        run(body + STORE)
    assert "has 1 in each lane" in str(caught.value)


def test_mma_refuses_registers_of_another_width():
    with pytest.raises(PtxSyntaxError, match=r"%rd1 .* is a \.b64; the operand takes 32 bits"):
        run(ONES + MMA.replace("{%r4}", "{%rd1}") + STORE)


# ------------------------------------------------------------------------------------------- memory


def test_ldmatrix_reads_rows_by_the_first_lanes_addresses():
    words = run(FILLED + "bar.sync 0;" + LDMATRIX + STORE, before=TILE)
    assert words == [lane // 4 for lane in range(32)]


def test_ldmatrix_ignores_the_addresses_of_other_lanes():
    body = FILLED + "bar.sync 0; setp.lt.u32 %p1, %lane, 8; @%p1 mov.b32 %r11, %r9;\n"
    words = run(body + LDMATRIX.replace("%r9", "%r11") + STORE, before=TILE)
    assert words == [lane // 4 for lane in range(32)]
    body = FILLED + "bar.sync 0; setp.lt.u32 %p1, %lane, 7; @%p1 mov.b32 %r11, %r9;\n"
    fault = fault_of(UninitialisedRegister, body + LDMATRIX.replace("%r9", "%r11") + STORE, before=TILE)
    assert (fault.register, fault.place.lane) == ("%r11", 7)


def test_ldmatrix_of_a_misaligned_row_is_a_fault():
    body = FILLED + "bar.sync 0; add.u32 %r9, %r9, 8;\n" + LDMATRIX
    fault = fault_of(Misaligned, body + STORE, before=TILE)
    assert (fault.width, fault.place.lane) == (16, 0)


def test_ldmatrix_of_an_outside_or_uninitialised_row_is_a_fault():
    body = FILLED + "bar.sync 0; setp.eq.u32 %p1, %lane, 5; @%p1 add.u32 %r9, %r9, FAR;\n" + LDMATRIX + STORE
    assert fault_of(OutOfBounds, body.replace("FAR", "1024"), before=TILE).place.lane == 5
    assert fault_of(UninitialisedRead, body.replace("FAR", "512"), before=TILE).place.lane == 5


def test_ldmatrix_without_a_barrier_races_with_other_warps():
    body = FILLED + "xor.b32 %r9, %r9, 0;\n"
    other = "xor.b32 %r10, %i, 32; shl.b32 %r10, %r10, 4; and.b32 %r10, %r10, 0x3f0; add.u32 %r9, %r8, %r10;"
    body = FILLED.replace("%lane, 4", "%i, 4") + other
    fault = fault_of(Race, body + LDMATRIX + STORE, before=TILE, block=64)
    assert (fault.earlier, fault.later) == ("write", "read")
    words = run(body + "bar.sync 0;" + LDMATRIX + STORE, before=TILE, block=64)
    assert words == [(lane % 32) // 4 + (0 if lane >= 32 else 32) for lane in range(64)]


def test_stmatrix_writes_what_ldmatrix_reads():
    body = """mov.u32 %r8, tile; shl.b32 %r9, %lane, 4; add.u32 %r9, %r8, %r9; mov.b32 %r10, %lane;
add.u32 %r11, %lane, 100; add.u32 %r12, %lane, 200; add.u32 %r13, %lane, 300;
stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%r9], {%r10,%r11,%r12,%r13}; bar.warp.sync -1;
ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r10,%r11,%r12,%r2}, [%r9];
"""
    assert run(body + STORE, before=TILE) == [300 + lane for lane in range(32)]
    swapped = body.replace("ldmatrix.sync.aligned.m8n8.x4.trans", "ldmatrix.sync.aligned.m8n8.x4")
    transposed = run(swapped + STORE, before=TILE)
    # lane 4 g holds element (g, 0); it was stored to (0, g), which lane g // 2 gets
    assert transposed[:2] == [300 | 304 << 16, 308 | 312 << 16]
    assert transposed[4:8] == [0] * 4


WMMA = "wmma.load.a.sync.aligned.row.m8n8k32.global.s4 {%r2}, [%in], %r3;\n"


def test_wmma_load_takes_one_address_and_one_stride():
    given = range(64)
    assert run("mov.u32 %r3, 32;" + WMMA + STORE, given=given) == list(range(32))
    words = run("mov.u32 %r3, 64;" + WMMA + STORE, given=given)
    assert words == [8 * (lane // 4) + lane % 4 for lane in range(32)]
    default = WMMA.replace(", %r3", "").replace(".global", "")
    assert run(default + STORE, given=given) == list(range(32))


def test_wmma_load_with_different_addresses_is_a_fault():
    body = "mov.u32 %r3, 32; cvt.u64.u32 %rd1, %lane; shl.b64 %rd1, %rd1, 2; add.u64 %in, %in, %rd1;\n"
    fault = fault_of(DivergentMatrix, body + WMMA + STORE, given=range(64))
    assert (fault.place.lane, "address" in fault.what) == (1, True)
    fault = fault_of(DivergentMatrix, "add.u32 %r3, %lane, 32;" + WMMA + STORE, given=range(64))
    assert (fault.place.lane, "stride" in fault.what) == (1, True)


def test_wmma_load_with_a_wrong_stride_or_pointer_is_a_fault():
    fault = fault_of(WrongStride, "mov.u32 %r3, 36;" + WMMA + STORE, given=range(64))
    assert (fault.width, "0x24" in fault.values) == (4, True)
    assert "9.7.14.4.2" in fault.advice
    fault = fault_of(Misaligned, "mov.u32 %r3, 32; add.u64 %in, %in, 2;" + WMMA + STORE, given=range(64))
    assert (type(fault), "address" in fault.values) == (Misaligned, True)


@pytest.mark.parametrize("space", ["shared", "generic"])
def test_wmma_loads_from_shared_memory_need_rows_aligned_to_16_bytes(space):
    """On an H200 other row addresses are a fault too."""
    body = FILLED + "bar.sync 0; mov.u32 %r3, STRIDE; mov.u64 %rd1, tile; add.u64 %rd1, %rd1, OFFSET;\n"
    body += "" if space == "shared" else "cvta.shared.u64 %rd1, %rd1;\n"
    body += "wmma.load.a.sync.aligned.row.m8n8k32.SPACE.s4 {%r2}, [%rd1], %r3;\n" + STORE
    body = body.replace(".SPACE", ".shared" if space == "shared" else "")

    def with_(stride, offset):
        return body.replace("STRIDE", str(stride)).replace("OFFSET", str(offset))

    assert run(with_(32, 16), before=TILE) == [lane // 4 + 1 for lane in range(32)]
    fault = fault_of(WrongStride, with_(40, 0), before=TILE)
    assert fault.width == 16
    assert fault_of(Misaligned, with_(32, 8), before=TILE).width == 16


def test_wmma_accepts_a_stride_of_16_bytes():
    """Where a lane holds 32 bytes the PTX ISA requires 32, the CUDA C++ Programming Guide 16."""
    registers = "{%r2,%r11,%r12,%r13,%r14,%r15,%r16,%r17}"
    load = f"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {registers}, [%in], %r3;\n"
    words = run("mov.u32 %r3, 24;" + load + STORE, given=range(12 * 16))
    assert words == [12 * (lane // 4) + lane % 4 for lane in range(32)]
    fault_of(WrongStride, "mov.u32 %r3, 18;" + load + STORE, given=range(12 * 16))


class Written(Observer):
    def __init__(self):
        self.events = []

    def on_write(self, event):
        self.events.append((event.register, event.lanes.size, event.values.dtype.itemsize))


@pytest.mark.parametrize("layout", ["row", "col"])
def test_wmma_store_writes_each_element_to_its_row_and_column(layout):
    """Columns of D are 2 t and 2 t + 1, where t is the lane's number in its quad."""
    store = f"wmma.store.d.sync.aligned.{layout}.m8n8k128.global.s32 [%out], {{%r2,%r3}}, 8; ret;"
    observer = Written()
    device = simwarp.Device(observe="all", observers=[observer])
    out = device.upload(np.full(64, NOTHING, np.uint32), "out")
    body = "shl.b32 %r2, %lane, 1; add.u32 %r3, %r2, 1;" + store
    device.load(text(body)).kernel("k")((1, 1, 1), (32, 1, 1), out, out)
    words = out.download().reshape(8, 8)
    assert ((words if layout == "row" else words.T).reshape(-1) == np.arange(64)).all()
    assert observer.events == [("%r2", 32, 4), ("%r3", 32, 4)]


# -------------------------------------------------------------------------------- chips and spellings


@pytest.mark.parametrize(
    ("target", "instruction", "needs"),
    [
        (
            "sm_75",
            "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc {%r2,%r3}, {%r4}, {%r5}, {%r6,%r7};",
            80,
        ),
        (
            "sm_75",
            "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%rd1,%rd2}, {%rd3}, {%rd4}, {%rd5,%rd6};",
            80,
        ),
        ("sm_80", "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r9], {%r2};", 90),
    ],
)
def test_matrix_instructions_of_a_newer_chip_are_refused(target, instruction, needs):
    with pytest.raises(
        UnsupportedInstruction, match=rf"needs sm_{needs}; this module is for {target}"
    ) as caught:
        simwarp.Device().load(text(instruction + "ret;").replace("sm_90a", target))
    assert "PTX ISA, section 9.7.14" in str(caught.value)


@pytest.mark.parametrize(
    ("instruction", "rule"),
    [
        (MMA.replace("m8n8k16", "m8n8k64"), "mma for s8 has the shapes m8n8k16, m16n8k16, m16n8k32"),
        (MMA.replace("row.col", "col.row"), "has the layouts row.col"),
        ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f32 {%r2,%r3}, {%r4}, {%r5}, {%r6};", "PTX ISA 9.0"),
    ],
)
def test_nonexistent_matrix_instructions_are_refused(instruction, rule):
    with pytest.raises(UnsupportedInstruction) as caught:
        simwarp.Device().load(text(instruction + "ret;"))
    assert rule in str(caught.value)
    assert "section 9.7.14" in str(caught.value)


def test_mma_sums_by_the_rule_of_the_device():
    """2^12 - 2^12 + 2^-13 + 2^-13: 25 fraction bits below 2^12 keep 2^-13, 24 do not."""
    first, second = 0xEC006C00, 0x08000800
    body = f"""mov.b32 %r4, 0; mov.b32 %r5, 0; mov.b32 %r8, 0x3c003c00; and.b32 %r9, %lane, 3;
setp.eq.u32 %p1, %r9, 0; @%p1 mov.b32 %r4, {first}; setp.eq.u32 %p1, %r9, 1; @%p1 mov.b32 %r4, {second};
mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {{%f1,%f2,%f3,%f4}}, {{%r4,%r5}}, {{%r8}},
 {{0f00000000,0f00000000,0f00000000,0f00000000}};
mov.b32 %r2, %f1;
"""
    hopper = run(body + STORE)
    assert np.array(hopper[:1], np.uint32).view(np.float32)[0] == 2.0**-12
    ampere = simwarp.Device(cc=(8, 0))
    out = ampere.upload(np.zeros(32, np.uint32))
    ampere.load(text(body + STORE).replace("sm_90a", "sm_80")).kernel("k")((1, 1, 1), (32, 1, 1), out, out)
    assert out.download()[0] == 0
