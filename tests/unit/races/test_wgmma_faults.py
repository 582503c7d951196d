"""Mistakes with products of warpgroups, each beside a correct kernel."""

import gc
import weakref

import numpy as np
import pytest

import simwarp
from simwarp.engine.chunk import Chunk
from simwarp.faults import (
    CopyInFlight,
    Deadlock,
    DivergentMatrix,
    MissingProxyFence,
    OutOfBounds,
    ProductInFlight,
    Race,
    UninitialisedRead,
    UninitialisedRegister,
    WrongDescriptor,
)
from support import warpgroup_kernels as warpgroups
from support.warpgroup_kernels import COMMIT, ORDER, WAIT, Tile

SCHEDULES = ["lowest pc", "stack", "random"]
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)
S8 = "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8"
D, C, A = (warpgroups.registers(4, letter) for letter in "dca")
LEFT, RIGHT = Tile(0, 64), Tile(2048, 8)
SIZE = 2304
SET = f"mov.b64 %x, {LEFT.word:#x}; mov.b64 %y, {RIGHT.word:#x};\n"
PRODUCT = f"{S8} {D}, %x, %y, %yes;\n"
FROM_REGISTERS = f"{S8} {D}, {A}, %y, %yes;\n"
RANDOM = np.random.default_rng(3)
ROWS, COLUMNS = (RANDOM.integers(-128, 128, shape).astype(np.int8) for shape in ((64, 32), (8, 32)))
IMAGE = np.zeros((1, SIZE), np.uint8)
LEFT.write(IMAGE[0], ROWS.view(np.uint8))
RIGHT.write(IMAGE[0], COLUMNS.view(np.uint8))
LAYOUTS = warpgroups.fragments_of(S8).operands
SUM = ROWS.astype(np.int32) @ COLUMNS.T.astype(np.int32)


def run(body, schedule="lowest pc", threads=128, opcode=S8, checks="raise", before="", blocks=1):
    """D of a kernel on the tiles, whose accumulators begin at 7."""
    device = simwarp.Device(schedule=schedule, checks=checks, instruction_budget=500_000)
    text = warpgroups.kernel(opcode, SET + body, SIZE, True, threads, before=before)
    d = np.full((blocks, threads, 4), 7, np.uint32)
    a = np.zeros((blocks, threads, 4), np.uint32)
    a[:, :128] = LAYOUTS["a"].layout.pack(ROWS.view(np.uint8))[:threads]
    found = warpgroups.launch(text, np.repeat(IMAGE, blocks, axis=0), d, a, device, threads)
    return found.view(np.int32), device


def product_of(*arguments, **options):
    found, _ = run(*arguments, **options)
    return LAYOUTS["d"].layout.unpack(found[0, :128].view(np.uint32)).view(np.int32)


def fault_of(kind, body, schedule="lowest pc", **options):
    with pytest.raises(kind) as caught:
        run(body, schedule, **options)
    assert type(caught.value) is kind
    return caught.value


# ---- registers in flight --------------------------------------------------------------------------


@every_schedule
@pytest.mark.parametrize("product", [PRODUCT, FROM_REGISTERS])
def test_a_correct_kernel_is_silent(product, schedule):
    assert np.array_equal(product_of(ORDER + product + product + COMMIT + WAIT, schedule), 7 + 2 * SUM)


@every_schedule
@pytest.mark.parametrize(
    "read", ["add.u32 %r1, %d2, 1;", "st.global.b32 [%at], %d2;", "setp.eq.u32 %done, %d2, 1;"]
)
@pytest.mark.parametrize("between", ["", COMMIT, COMMIT + "wgmma.wait_group.sync.aligned 1;"])
def test_an_accumulator_read_before_the_wait_names_both_instructions(read, between, schedule):
    fault = fault_of(ProductInFlight, ORDER + PRODUCT + between + read + COMMIT + WAIT, schedule)
    assert fault.register == "%d2"
    assert read in fault.place.text
    assert fault.product.text.startswith("wgmma.mma_async")
    assert fault.count == 128


@every_schedule
def test_an_uncommitted_product_is_not_waited_for(schedule):
    fault_of(ProductInFlight, ORDER + PRODUCT + WAIT + "add.u32 %r1, %d0, 1;", schedule)


@every_schedule
@pytest.mark.parametrize(
    "write", ["mov.b32 %d3, 0;", "ld.global.b32 %d3, [%at];", "@%yes add.u32 %d3, %r1, %r1;"]
)
def test_an_accumulator_written_before_the_wait_is_a_fault(write, schedule):
    fault = fault_of(ProductInFlight, "mov.b32 %r1, 0;" + ORDER + PRODUCT + COMMIT + write + WAIT, schedule)
    assert fault.register == "%d3"


@every_schedule
def test_a_register_of_a_may_be_read_and_not_written_before_the_wait(schedule):
    body = ORDER + FROM_REGISTERS + COMMIT
    assert np.array_equal(product_of(body + "add.u32 %r1, %a1, 1;" + WAIT, schedule), 7 + SUM)
    assert np.array_equal(product_of(body + WAIT + "mov.b32 %a1, 0;", schedule), 7 + SUM)
    fault = fault_of(ProductInFlight, body + "mov.b32 %a1, 0;" + WAIT, schedule)
    assert fault.register == "%a1"
    assert "A" in fault.what


@every_schedule
def test_exit_with_products_in_flight_is_a_fault(schedule):
    fault = fault_of(ProductInFlight, ORDER + PRODUCT + COMMIT + "ret;", schedule)
    assert fault.place.text == "ret;"
    assert fault.count == 128


@every_schedule
def test_a_move_passes_an_accumulator_on_between_products(schedule):
    """The copy is in flight, the next product adds to it, and the wait ends both."""
    moves = " ".join(f"mov.b32 %c{i}, %d{i};" for i in range(4))
    back = " ".join(f"mov.b32 %d{i}, %c{i};" for i in range(4))
    chain = ORDER + PRODUCT + moves + PRODUCT.replace(D, C) + COMMIT
    assert np.array_equal(product_of(chain + WAIT + back, schedule), 7 + 2 * SUM)
    fault = fault_of(ProductInFlight, chain + "add.u32 %r1, %c1, 1;" + WAIT, schedule)
    assert fault.register == "%c1"


@every_schedule
def test_collected_faults_let_the_launch_go_on(schedule):
    body = ORDER + PRODUCT + COMMIT + "add.u32 %r1, %d0, 1;" + WAIT
    found, device = run(body, schedule, checks="report")
    assert np.array_equal(LAYOUTS["d"].layout.unpack(found[0].view(np.uint32)).view(np.int32), 7 + SUM)
    assert [type(fault) for fault in device.faults] == [ProductInFlight]
    assert run(body, schedule, checks={"products": "off"})[1].faults == []


# ---- fences ---------------------------------------------------------------------------------------


@every_schedule
def test_the_first_product_needs_a_fence(schedule):
    fault = fault_of(ProductInFlight, PRODUCT + COMMIT + WAIT, schedule)
    assert "first wgmma.fence" in fault.what


@every_schedule
@pytest.mark.parametrize("register", ["d1", "a2"])
def test_a_register_written_after_the_fence_needs_another(register, schedule):
    start = ORDER + FROM_REGISTERS + COMMIT + WAIT
    write = f"add.u32 %{register}, %{register}, 1;"
    rest = FROM_REGISTERS + COMMIT + WAIT
    run(start + write + ORDER + rest, schedule)
    fault = fault_of(ProductInFlight, start + write + rest, schedule)
    assert fault.register == f"%{register}"


@every_schedule
def test_products_of_one_shape_need_no_fence_between_them(schedule):
    again = PRODUCT + COMMIT + WAIT
    assert np.array_equal(product_of(ORDER + again + again + again, schedule), 7 + 3 * SUM)


@every_schedule
def test_a_copy_of_a_result_needs_no_fence(schedule):
    """Loops move accumulators from register to register where the source has one variable."""
    moves = " ".join(f"mov.b32 %c{i}, %d{i};" for i in range(4))
    back = " ".join(f"mov.b32 %d{i}, %c{i};" for i in range(4))
    body = ORDER + PRODUCT + COMMIT + WAIT + moves + PRODUCT.replace(D, C) + COMMIT + WAIT + back
    assert np.array_equal(product_of(body, schedule), 7 + 2 * SUM)


@every_schedule
@pytest.mark.parametrize(
    ("write", "kind"), [("", None), ("mov.b32 %c1, 0;", ProductInFlight)], ids=["unwritten", "written"]
)
def test_unwritten_accumulators_that_another_warpgroup_multiplies_into_need_no_fence(write, kind, schedule):
    """Both warpgroups fence while no lane has written the registers; the second one multiplies later."""
    product = PRODUCT.replace(D, C).replace("%yes", "%no") + COMMIT + WAIT
    late = "setp.ge.u32 %done, %t, 128;\n@%done bra LATE;\n"
    back = " ".join(f"mov.b32 %d{i}, %c{i};" for i in range(4))
    both = f"{ORDER}{late}{product}bar.sync 1;\nbra END;\nLATE: bar.sync 1;\n{write}\n{product}END: {back}"
    if kind:
        assert fault_of(kind, both, schedule, threads=256).register == "%c1"
        return
    found, _ = run(both, schedule, threads=256)
    for half in (found[0, :128], found[0, 128:]):
        assert np.array_equal(LAYOUTS["d"].layout.unpack(half.view(np.uint32)).view(np.int32), SUM)


@every_schedule
def test_products_of_two_shapes_need_a_fence_between_them(schedule):
    other = "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc"
    second = PRODUCT.replace(S8, other) + COMMIT + WAIT
    assert "two shapes" in fault_of(ProductInFlight, ORDER + PRODUCT + COMMIT + WAIT + second, schedule).what
    run(ORDER + PRODUCT + COMMIT + WAIT + ORDER + second, schedule)


# ---- who takes part -------------------------------------------------------------------------------


@every_schedule
def test_a_warp_that_never_comes_is_a_fault(schedule):
    late = "setp.ge.u32 %done, %t, 96;\n@%done ret;\n"
    fault = fault_of(DivergentMatrix, late + ORDER + PRODUCT + COMMIT + WAIT, schedule)
    assert "32 of its 128 lanes" in fault.values


@every_schedule
def test_a_block_without_four_warps_is_a_fault(schedule):
    fault_of(DivergentMatrix, ORDER + PRODUCT + COMMIT + WAIT, schedule, threads=96)


@every_schedule
def test_one_of_two_warpgroups_may_multiply(schedule):
    body = "setp.ge.u32 %done, %t, 128;\n@%done bra END;\n" + ORDER + PRODUCT + COMMIT + WAIT + "END:"
    assert np.array_equal(product_of(body, schedule, threads=256), 7 + SUM)


@every_schedule
def test_warps_that_come_one_by_one_wait_for_each_other(schedule):
    """Each warp loops as often as its number before it comes."""
    wait = """shr.u32 %r2, %t, 5;
SPIN: setp.eq.u32 %done, %r2, 0; @%done bra GO; sub.u32 %r2, %r2, 1; bra SPIN;
GO:"""
    body = wait + ORDER + PRODUCT + PRODUCT + COMMIT + WAIT
    found, _ = run(body, schedule, threads=256, blocks=3)
    for d in found.reshape(6, 128, 4):
        assert np.array_equal(LAYOUTS["d"].layout.unpack(d.view(np.uint32)).view(np.int32), 7 + 2 * SUM)


@every_schedule
def test_a_warp_that_waits_elsewhere_is_a_deadlock(schedule):
    body = "setp.lt.u32 %done, %t, 32;\n@%done bar.sync 1, 128;\n" + ORDER + PRODUCT + COMMIT + WAIT
    fault_of(Deadlock, body, schedule)


@every_schedule
@pytest.mark.parametrize("operand", ["descriptor of A", "descriptor of B", "predicate scale-d"])
def test_lanes_must_agree_on_descriptors_and_predicates(operand, schedule):
    change = {
        "descriptor of A": "setp.eq.u32 %done, %t, 77;\n@%done add.u64 %x, %x, 1;",
        "descriptor of B": "setp.ge.u32 %done, %t, 64;\n@%done add.u64 %y, %y, 1;",
        "predicate scale-d": "setp.lt.u32 %yes, %t, 33;",
    }[operand]
    fault = fault_of(DivergentMatrix, change + ORDER + PRODUCT + COMMIT + WAIT, schedule)
    assert operand in fault.what
    assert (fault.place.warp, fault.place.lane) == {"A": (2, 13), "B": (2, 0), "d": (1, 1)}[operand[-1]]


# ---- descriptors and shared memory ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "name", "offset"),
    [
        (Tile(0, 64, stride=512), RIGHT, "A", 2560),  # B's array follows A's, and ends at 2304
        (LEFT, Tile(2048, 8, leading=256), "B", 2304),
        (LEFT, Tile(2192, 8), "B", 2320),
    ],
)
def test_a_descriptor_that_leaves_shared_memory(left, right, name, offset):
    body = f"mov.b64 %x, {left.word:#x}; mov.b64 %y, {right.word:#x};" + ORDER + PRODUCT + COMMIT + WAIT
    fault = fault_of(OutOfBounds, body)
    assert (fault.space, fault.offset, fault.width) == ("shared", offset, 16)
    assert f"descriptor of {name}" in fault.what


def test_a_descriptor_that_leaves_its_array_for_another_one():
    more = "\n.shared .align 128 .b8 behind[4096];"
    right = Tile(2048, 8, leading=256)
    body = f"mov.b64 %y, {right.word:#x};" + ORDER + PRODUCT + COMMIT + WAIT
    fault = fault_of(OutOfBounds, body, before=more)
    assert (fault.allocation, fault.offset) == ("tiles", 2304)


@pytest.mark.parametrize("word", [RIGHT.word | 1 << 14, RIGHT.word | 1 << 52])
def test_bits_without_a_meaning_in_a_descriptor_are_found(word):
    body = f"mov.b64 %y, {word:#x};" + ORDER + PRODUCT + COMMIT + WAIT
    assert "bits" in fault_of(WrongDescriptor, body).what


def test_shared_memory_that_nothing_wrote_is_named():
    more = "\n.shared .align 128 .b8 fresh[512];"
    right = Tile(2304, 8)
    body = f"mov.b64 %y, {right.word:#x};" + ORDER + PRODUCT + COMMIT + WAIT
    fault = fault_of(UninitialisedRead, body, before=more)
    assert (fault.space, fault.offset) == ("shared", 2304)


def test_accumulators_that_nothing_wrote_are_named_unless_the_product_starts_at_zero():
    kernel = warpgroups.kernel(S8, "", SIZE)
    start, end = kernel.index("ld.global.b32 %d0"), kernel.index("st.global.b32 [%at+0]")
    for keeps, faulty in (("%yes", True), ("%no", False)):
        body = SET + ORDER + PRODUCT.replace("%yes", keeps) + COMMIT + WAIT + "\n"
        device = simwarp.Device()
        arguments = (
            kernel[:start] + body + kernel[end:],
            IMAGE,
            np.zeros((1, 128, 4), np.uint32),
            None,
            device,
        )
        if faulty:
            with pytest.raises(UninitialisedRegister) as caught:
                warpgroups.launch(*arguments)
            assert caught.value.register == "%d0"
        else:
            found = LAYOUTS["d"].layout.unpack(warpgroups.launch(*arguments)[0])
            assert np.array_equal(found.view(np.int32), SUM)


# ---- the asynchronous proxy -----------------------------------------------------------------------


@every_schedule
def test_shared_memory_overwritten_while_a_product_reads_it_is_found(schedule):
    """A thread of another warp than the first writes B: behind the wait, or before it."""
    write = "setp.eq.u32 %done, %t, 126;\n@%done st.shared.b32 [tiles+2048], %t;\n"
    issue = ORDER + PRODUCT + COMMIT
    assert np.array_equal(product_of(issue + WAIT + write, schedule), 7 + SUM)
    for body in (issue + write + WAIT, issue + "bar.sync 0;\n" + write + WAIT):
        fault = fault_of(CopyInFlight, body, schedule)
        assert (fault.space, fault.offset) == ("shared", 2048)
        assert "wgmma.mma_async" in fault.copy.text


@every_schedule
def test_another_warpgroup_must_be_ordered_behind_the_wait(schedule):
    """The second warpgroup overwrites B, with or without a barrier behind the first one's wait."""
    first = "setp.ge.u32 %done, %t, 128;\n@%done bra OTHER;\n" + ORDER + PRODUCT + COMMIT + WAIT
    other = "OTHER: {barrier} @%done st.shared.b32 [tiles+2048], 5;\n"
    assert np.array_equal(
        product_of(first + other.format(barrier="bar.sync 0;"), schedule, threads=256), 7 + SUM
    )
    with pytest.raises((Race, CopyInFlight, MissingProxyFence)):  # by who comes first
        run(first + other.format(barrier=""), schedule, threads=256)


@every_schedule
def test_a_write_before_the_product_needs_a_proxy_fence(schedule):
    write = "setp.eq.u32 %done, %t, 5;\n@%done st.shared.b32 [tiles], 0;\n"
    run(write + "fence.proxy.async; bar.sync 0;" + ORDER + PRODUCT + COMMIT + WAIT, schedule)
    fault_of(MissingProxyFence, write + "bar.sync 0;" + ORDER + PRODUCT + COMMIT + WAIT, schedule)
    fault_of(Race, write + "fence.proxy.async;" + ORDER + PRODUCT + COMMIT + WAIT, schedule)


@every_schedule
def test_a_tile_that_products_read_again_and_again_is_overwritten_behind_the_last_wait(schedule):
    """Between the turns, the store of a byte makes the race detector look at single bytes."""
    last = "sub.u32 %r1, %r1, 1; setp.eq.u32 %done, %r1, 0; @%done bra LAST;\n"
    other = WAIT + "setp.eq.u32 %done, %t, 0; @%done st.shared.b8 [other], %r1; bra AGAIN;\n"
    write = "LAST: setp.eq.u32 %done, %t, 126;\n@%done st.shared.b32 [tiles+2048], %t;\n"
    turn, before = "mov.u32 %r1, 4;\nAGAIN: " + ORDER + PRODUCT + COMMIT, ".shared .b8 other[16];"
    good = turn + WAIT + last + other + write
    assert np.array_equal(product_of(good, schedule, before=before), 7 + 4 * SUM)
    bad = turn + last + other + write + WAIT
    assert fault_of(CopyInFlight, bad, schedule, before=before).offset == 2048


@every_schedule
def test_a_warpgroup_that_goes_on_alone_is_named_as_the_reader(schedule):
    """One of 32 blocks multiplies again, on a compact copy, what it wrote without a proxy fence."""
    alone = "mov.u32 %n, %ctaid.x; setp.ne.u32 %done, %n, 5; @%done bra END; mov.u32 %r1, 2;\nAGAIN: "
    spin = "mov.u32 %r2, 99;\nSPIN: sub.u32 %r2, %r2, 1; setp.ne.u32 %done, %r2, 0; @%done bra SPIN;\n"
    write = "setp.eq.u32 %done, %t, 0; @%done st.shared.b32 [tiles+2048], 5;\n"
    again = "sub.u32 %r1, %r1, 1; setp.ne.u32 %done, %r1, 0; @%done bra AGAIN;\nEND:"
    body = alone + ORDER + PRODUCT + COMMIT + WAIT + spin + write + again
    fault = fault_of(MissingProxyFence, body, schedule, blocks=32)
    assert fault.place.block == (5, 0, 0)
    assert "wgmma.mma_async" in fault.place.text


def test_the_memory_of_a_chunk_is_free_at_its_end(monkeypatch):
    """What is kept of the reads of its products does not outlive it."""
    made, begin = [], Chunk.__init__

    def remembered(self, *arguments):
        made.append(weakref.ref(self))
        begin(self, *arguments)

    monkeypatch.setattr(Chunk, "__init__", remembered)
    gc.disable()
    try:
        run(ORDER + PRODUCT + PRODUCT + COMMIT + WAIT)
        assert [chunk() for chunk in made] == [None]
    finally:
        gc.enable()
