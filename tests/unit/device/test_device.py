"""`simwarp.device`: memory, launches, streams and errors of a simulated GPU."""

import gc
import weakref

import numpy as np
import pytest

import simwarp
from reference.errors import DtypeError, ShapeError
from simwarp.faults import (
    DoubleFree,
    LaunchError,
    OutOfBounds,
    RunawayKernel,
    UninitialisedRead,
    UnsupportedInstruction,
)
from support.offenders import every_case

HEADER = ".version 9.0\n.target sm_90\n.address_size 64\n"

# out[i] = in[i] + more, one thread per element
ADD = """
.visible .entry add(.param .u64 out, .param .u64 in, .param .u32 more) {
    .reg .b32 %r<5>; .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [in];
    ld.param.u32 %r1, [more];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd3, %r2, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.u32 %r3, [%rd4];
    add.u32 %r4, %r3, %r1;
    add.s64 %rd5, %rd1, %rd3;
    st.global.u32 [%rd5], %r4;
    ret; }
"""
# reads back the last word of its static shared memory, or the word at an offset into the dynamic one
SHARED = """
.extern .shared .align 16 .b8 dynamic[];
.visible .entry static() {
    .reg .b32 %r<2>;
    .shared .align 16 .b8 cells[64];
    mov.u32 %r1, 7;
    st.shared.u32 [cells+60], %r1;
    ret; }
.visible .entry dynamic_at(.param .u32 offset) {
    .reg .b32 %r<4>;
    ld.param.u32 %r1, [offset];
    mov.u32 %r2, dynamic;
    add.u32 %r3, %r1, %r2;
    st.shared.u32 [%r3], %r1;
    ret; }
"""
LOOP = ".visible .entry forever() { AGAIN: bra AGAIN; }\n.visible .entry nothing() { ret; }\n"
SMALL_BLOCKS = ".visible .entry small() .maxntid 64, 1, 1 { ret; }\n"
ONE = (1, 1, 1)


@pytest.fixture
def device():
    return simwarp.Device()


@pytest.fixture
def kernel(device):
    module = device.load(HEADER + ADD + SHARED + LOOP + SMALL_BLOCKS)
    return module.kernel


def message(error):
    """The text of an error; assert that it has a line of advice."""
    text = str(error.value)
    assert all(text.splitlines())
    return text


# ---------------------------------------------------------------------------------------- arrays


@every_case("dtype", [np.bool_, np.int8, np.uint16, np.float32, np.uint64, np.complex128])
@every_case("shape", [(), (3,), (0,), (2, 0, 3), (5, 7), (2, 3, 4)])
def test_a_download_equals_the_upload(device, shape, dtype):
    host = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    array = device.upload(host)
    assert (array.shape, array.dtype, array.nbytes) == (shape, np.dtype(dtype), host.nbytes)
    assert array.device is device
    got = array.download()
    assert (got.shape, got.dtype) == (host.shape, host.dtype)
    np.testing.assert_array_equal(got, host)


def test_an_array_in_any_order_is_uploaded_by_its_indices(device):
    host = np.arange(12, dtype=np.int32).reshape(3, 4)
    for other in (host.T, host[::-1], host[:, ::2]):
        np.testing.assert_array_equal(device.upload(other).download(), other)


def test_a_download_is_a_copy(device):
    array = device.upload(np.zeros(4, np.int32))
    array.download()[:] = 1
    assert array.download().tolist() == [0] * 4


@pytest.mark.parametrize("host", [np.zeros(4, np.int32), np.zeros((3, 1), np.int32), np.zeros(3, np.uint32)])
def test_an_upload_has_the_shape_and_dtype_of_the_array(device, host):
    array = device.allocate((3,), np.int32, "words")
    with pytest.raises(ShapeError) as error:
        array.upload(host)
    assert "upload to words" in message(error)
    assert "convert or reshape" in message(error)


def test_a_negative_dimension_is_refused(device):
    with pytest.raises(ShapeError):
        device.allocate((-1,), np.int32)


def test_unnamed_arrays_get_distinct_names(device):
    arrays = [device.allocate((1,), np.int8) for _ in range(3)]
    assert len({array.name for array in arrays}) == 3
    assert device.upload(np.zeros(1), "given").name == "given"


def test_a_view_shares_memory_with_its_array(device):
    words = device.upload(np.array([1, 2, 3, 4], np.uint32), "words")
    halves = words.view((2, 4), np.uint16)
    assert (halves.pointer, halves.name, halves.nbytes) == (words.pointer, "words", 16)
    assert halves.download().tolist() == [[1, 0, 2, 0], [3, 0, 4, 0]]
    halves.upload(np.zeros((2, 4), np.uint16))
    assert words.download().tolist() == [0] * 4
    assert words.view((2,)).dtype == np.uint32
    assert words.view((2,)).view((4,)).shape == (4,), "a view of a part can be widened again"


def test_a_view_is_copied_to_the_host_from_where_it_begins(device):
    array, host = device.upload(np.arange(6, dtype=np.uint16)), np.zeros((2, 1), np.uint16)
    array.view((2, 1), offset=6).copy_to(host, device.stream(independent=True))
    assert host.tolist() == [[3], [4]]


def test_a_view_larger_than_its_array_is_refused(device):
    array = device.allocate((4,), np.uint32, "words")
    for shape, dtype in (((5,), None), ((3,), np.uint64), ((17,), np.uint8)):
        with pytest.raises(ShapeError) as error:
            array.view(shape, dtype)
        assert "view of words" in message(error)
        assert "the array has 16" in message(error)


def test_a_foreign_array_cannot_be_adopted(device):
    with pytest.raises(DtypeError, match="copy it to the host"):
        device.adopt(object())


# ------------------------------------------------------------------------------------- life times


def test_memory_is_freed_with_the_last_array(device):
    for _ in range(2000):  # 2 GiB in all
        device.allocate((1 << 18,), np.uint32)
        assert len(device.memory.allocations) <= 1
    assert device.memory.allocations == []


def test_a_view_keeps_its_memory_alive(device):
    view = device.upload(np.arange(4, dtype=np.uint32)).view((2, 2)).view((4,))
    gc.collect()
    assert view.download().tolist() == [0, 1, 2, 3]
    assert len(device.memory.allocations) == 1
    del view
    assert device.memory.allocations == []


def test_memory_in_a_reference_cycle_is_freed(device):
    cycle = [device.allocate((4,), np.uint32)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert device.memory.allocations == []


def test_memory_of_an_unreferenced_array_is_freed(device, kernel):
    out, source = device.allocate((32,), np.uint32), device.upload(np.zeros(32, np.uint32), "source")
    address = np.uint64(source.pointer)
    del source
    with pytest.raises(OutOfBounds, match=r"byte 0 of source \(128 bytes at 0x[0-9a-f]+\), which was freed"):
        kernel("add")(ONE, (32, 1, 1), out, address, np.uint32(0))


def test_a_temporary_array_lives_as_long_as_its_launch(device, kernel):
    out = device.allocate((32,), np.uint32)
    kernel("add")(ONE, (32, 1, 1), out, device.upload(np.zeros(32, np.uint32)), np.uint32(5))
    assert out.download().tolist() == [5] * 32


def test_unreferenced_devices_and_arrays_are_freed(device):
    other = simwarp.Device()
    array, memory = other.allocate((4,), np.uint32), weakref.ref(other.memory)
    del other, array
    gc.collect()
    assert memory() is None


def test_unwritten_elements_are_reported_by_mask(device):
    struct = np.dtype([("a", "i1"), ("b", "f4"), ("c", "i2", (3,))], align=True)
    pair = device.allocate((2,), struct, "pair")
    assert pair.unwritten().tolist() == [True, True]
    pair._allocation.fill(np.zeros(1, np.uint8), 0)
    pair._allocation.fill(np.zeros(10, np.uint8), 4)
    assert pair.unwritten().tolist() == [False, True]  # its padding is still unwritten
    words = device.allocate((2, 2), np.uint32)
    words._allocation.fill(np.zeros(11, np.uint8))
    assert words.unwritten().tolist() == [[False, False], [True, True]]
    assert words.view((1, 4)).unwritten().shape == (1, 4)
    words.upload(np.zeros((2, 2), np.uint32))
    assert not words.unwritten().any()
    assert device.allocate((0, 3), np.uint32).unwritten().shape == (0, 3)


def test_later_use_of_a_freed_array_is_a_fault(device, kernel):
    array, out = device.upload(np.zeros(32, np.uint32), "array"), device.allocate((32,), np.uint32)
    view = array.view((8, 4))
    array.free()
    for use in (array.download, view.download, lambda: array.upload(np.zeros(32, np.uint32))):
        with pytest.raises(OutOfBounds, match="which was freed"):
            use()
    with pytest.raises(OutOfBounds, match="which was freed") as error:
        kernel("add")(ONE, (32, 1, 1), out, view, np.uint32(0))
    assert (error.value.allocation, error.value.place.lane) == ("array (freed)", 0)
    with pytest.raises(DoubleFree, match="array"):
        view.free()
    assert [a.name for a in device.memory.allocations] == [out.name]


# --------------------------------------------------------------------------------------- launches


def test_a_launch_runs_each_thread_and_counts_what_it_executed(device, kernel):
    source, out = device.upload(np.arange(40, dtype=np.uint32)), device.allocate((40,), np.uint32)
    kernel("add")(ONE, (40, 1, 1), out, source, np.uint32(100))
    assert out.download().tolist() == list(range(100, 140))
    assert device.executed == 40 * 11


def test_results_do_not_depend_on_how_many_lanes_are_in_flight():
    host = np.arange(1000, dtype=np.uint32)
    for chunk_lanes in (1, 32, 100, 1 << 14):
        device = simwarp.Device(chunk_lanes=chunk_lanes)
        source, out = device.upload(host), device.allocate((1000,), np.uint32)
        device.load(HEADER + ADD).kernel("add")(ONE, (1000, 1, 1), out, source, np.uint32(1))
        np.testing.assert_array_equal(out.download(), host + 1)


def test_reading_unwritten_memory_is_a_fault(device, kernel):
    source, out = device.allocate((32,), np.uint32, "source"), device.allocate((32,), np.uint32)
    with pytest.raises(UninitialisedRead, match="source"):
        kernel("add")(ONE, (32, 1, 1), out, source, np.uint32(0))


def test_a_module_lists_its_kernels(device):
    module = device.load(HEADER + LOOP)
    assert module.kernels == ["forever", "nothing"]
    assert module.kernel("nothing").name == "nothing"
    with pytest.raises(LaunchError, match="no kernel 'missing' in this module; it has forever, nothing"):
        module.kernel("missing")


@pytest.mark.parametrize(
    "block",
    [(0, 1, 1), (1, 0, 1), (1025, 1, 1), (32, 32, 2), (-1, 1, 1), (-2, -2, 1), (32, 1, 1, 1)],
    ids=str,
)
def test_a_block_outside_1_to_1024_threads_is_refused(kernel, block):
    with pytest.raises(LaunchError, match="kernel nothing") as error:
        kernel("nothing")(ONE, block)
    assert str(block) in message(error)


@pytest.mark.parametrize(
    "grid",
    [(0, 1, 1), (1, 1, 0), (-1, -1, 1), (1, 65536, 1), (1, 1, 65536), (2**31, 1, 1), ()],
    ids=str,
)
def test_a_grid_beyond_its_limits_is_refused(kernel, grid):
    with pytest.raises(LaunchError, match="kernel nothing") as error:
        kernel("nothing")(grid, ONE)
    assert str(grid) in message(error)


def test_a_block_beyond_maxntid_is_refused(kernel):
    kernel("small")(ONE, (64, 1, 1))
    with pytest.raises(LaunchError, match="65 threads; it takes 1 to 64"):
        kernel("small")(ONE, (65, 1, 1))


def test_a_wrong_number_of_arguments_is_refused(device, kernel):
    for arguments in ((), (np.uint32(1),), (np.uint64(0),) * 2 + (np.uint32(0),) * 2):
        with pytest.raises(LaunchError, match=f"takes 3 arguments, {len(arguments)} given"):
            kernel("add")(ONE, ONE, *arguments)


@pytest.mark.parametrize(
    ("bad", "part"),
    [
        (5.0, "argument 2 is 5.0; parameter 2 is of u32\npass an integer"),
        (2**32, "argument 2 is 4294967296, which does not fit a u32"),
        (None, "argument 2 is None; parameter 2 is of u32\npass an integer"),
        ("5", "argument 2 is '5'; parameter 2 is of u32\npass an integer"),
        ([5], "argument 2 is [5]; parameter 2 is of u32\npass an integer"),
        (np.uint64(2**32), "argument 2 is np.uint64(4294967296), which does not fit a u32"),
        (np.int64(-(2**31) - 1), "argument 2 is np.int64(-2147483649), which does not fit a u32"),
        (np.float32(5), "argument 2 is np.float32(5.0); parameter 2 is of u32\npass an integer"),
        (np.zeros(2, np.uint32), "argument 2 is 8 bytes; the parameter takes 4 bytes"),
    ],
)
def test_an_unsuitable_argument_is_refused(device, kernel, bad, part):
    array = device.allocate((32,), np.uint32)
    with pytest.raises(LaunchError) as error:
        kernel("add")(ONE, (32, 1, 1), array, array, bad)
    assert f"kernel add(u64, u64, u32): {part}" in str(error.value)


def test_an_array_is_refused_as_a_32_bit_argument(device, kernel):
    array = device.allocate((32,), np.uint32)
    with pytest.raises(LaunchError, match="argument 2"):
        kernel("add")(ONE, (32, 1, 1), array, array, array)


# ---------------------------------------------------------------------------------- shared memory


def test_a_kernel_uses_its_declared_shared_memory(kernel):
    kernel("static")((3, 1, 1), (32, 1, 1))


@pytest.mark.parametrize("size", [4, 64, 1000, 227 * 1024])
def test_dynamic_shared_memory_has_the_size_of_the_launch(kernel, size):
    kernel("dynamic_at")((2, 1, 1), ONE, np.uint32(size // 4 * 4 - 4), shared=size)
    with pytest.raises(OutOfBounds, match="shared=") as error:
        kernel("dynamic_at")((2, 1, 1), ONE, np.uint32(size // 4 * 4), shared=size)
    assert (error.value.space, error.value.offset) == ("shared", size)


def test_dynamic_shared_memory_is_0_by_default(kernel):
    with pytest.raises(OutOfBounds, match="shared="):
        kernel("dynamic_at")(ONE, ONE, np.uint32(0))


@pytest.mark.parametrize(
    ("name", "shared"), [("nothing", 227 * 1024 + 1), ("static", 227 * 1024), ("nothing", -1)]
)
def test_too_much_dynamic_shared_memory_is_refused(kernel, name, shared):
    most = 227 * 1024 - (64 if name == "static" else 0)
    with pytest.raises(LaunchError, match=f"{shared} bytes of dynamic shared memory; it takes 0 to {most}"):
        kernel(name)(ONE, ONE, shared=shared)


KIB = {48: ((5, 0), (6, 1)), 64: ((7, 5),), 96: ((7, 0),), 99: ((8, 6), (8, 9), (12, 0))}
KIB |= {163: ((8, 0), (8, 7)), 227: ((9, 0), (10, 0), (10, 3))}


@pytest.mark.parametrize(
    ("cc", "kib"), [(cc, kib) for kib, capabilities in KIB.items() for cc in capabilities]
)
def test_the_shared_memory_limit_is_that_of_the_chip(cc, kib):
    text = f".version 9.0 .target sm_{cc[0]}{cc[1]} .address_size 64 .entry k() {{ ret; }}"
    kernel = simwarp.Device(cc=cc).load(text).kernel("k")
    kernel(1, 1, shared=kib << 10)
    with pytest.raises(LaunchError, match=f"it takes 0 to {kib << 10}"):
        kernel(1, 1, shared=(kib << 10) + 1)


def test_a_turing_chip_refuses_200_kib_of_shared_memory():
    text = ".version 9.0 .target sm_75 .address_size 64 .entry k() { ret; }"
    kernel = simwarp.Device(cc=(7, 5)).load(text).kernel("k")
    with pytest.raises(LaunchError, match=r"kernel k: 204800 bytes .* it takes 0 to 65536"):
        kernel(1, 1, shared=200 << 10)


# ----------------------------------------------------------------------------- streams and events


def test_streams_run_and_events_measure_seconds(device, kernel):
    stream, before, after = device.stream(), device.event(), device.event()
    out = device.allocate((32,), np.uint32)
    before.record(stream)
    kernel("add")(ONE, (32, 1, 1), out, device.upload(np.ones(32, np.uint32)), np.uint32(1), stream=stream)
    after.record(stream)
    stream.synchronize()
    after.synchronize()
    assert out.download(stream).tolist() == [2] * 32
    out.upload(np.zeros(32, np.uint32), stream)
    assert out.download().tolist() == [0] * 32
    assert 0 < after.seconds_since(before) < 60
    assert after.seconds_since(before) == -before.seconds_since(after)


def test_deferred_checks_run_once_at_the_next_synchronisation(device):
    calls = []
    device.defer(lambda: calls.append("first"))
    device.defer(lambda: calls.append("second"))
    assert calls == []
    device.synchronize()
    device.synchronize()
    assert calls == ["first", "second"]
    device.defer(lambda: calls.append("third"))
    device.upload(np.zeros(1)).download()
    assert calls == ["first", "second", "third"]


def test_a_deferred_check_may_raise(device):
    def check():
        raise ShapeError("found later")

    device.defer(check)
    with pytest.raises(ShapeError, match="found later"):
        device.synchronize()
    device.synchronize()


# ----------------------------------------------------------------------------------------- limits


def test_a_kernel_that_never_ends_is_stopped():
    device = simwarp.Device(instruction_budget=1000)
    kernel = device.load(HEADER + LOOP).kernel("forever")
    with pytest.raises(RunawayKernel) as error:
        kernel(ONE, (32, 1, 1))
    assert "more than 1000 instructions" in message(error)
    assert "instruction_budget=" in message(error)
    assert error.value.place.kernel == "forever"


def test_the_instruction_budget_is_per_launch():
    device = simwarp.Device(instruction_budget=100)
    kernel = device.load(HEADER + LOOP).kernel("nothing")
    for _ in range(200):
        kernel(ONE, ONE)


def test_a_device_has_a_name_and_a_repr():
    device = simwarp.Device((8, 6), multiprocessors=84)
    assert (device.compute_capability, device.multiprocessors) == ((8, 6), 84)
    assert "sm_86" in device.name


@pytest.mark.parametrize("collected", [True, False])
def test_loading_collects_no_garbage_and_leaves_the_collector_as_it_was(collected):
    """Nearly all objects of a module stay: visiting them again and again took half of the time."""
    adds = "".join(f"add.u32 %r{i}, %r{i}, {i};\n" for i in range(900))
    ptx = (
        ".version 8.8\n.target sm_90\n.address_size 64\n"
        f".visible .entry k() {{ .reg .b32 %r<900>; {adds} ret; }} // {collected}"
    )
    simwarp.Device().load(ptx.replace("k()", "first()"))  # what is made once in a process
    ended: list[str] = []

    def note(phase, _):
        if phase == "stop":
            ended.append(phase)

    state = gc.isenabled()
    (gc.enable if collected else gc.disable)()
    gc.callbacks.append(note)
    try:
        module = simwarp.Device().load(ptx)
        assert len(ended) <= collected  # one that was put off
        assert gc.isenabled() == collected
        with pytest.raises(UnsupportedInstruction):
            simwarp.Device().load(ptx.replace("add.u32", "no_such.u32"))
        assert gc.isenabled() == collected
        assert module.kernel("k") is not None
    finally:
        gc.callbacks.remove(note)
        (gc.enable if state else gc.disable)()
