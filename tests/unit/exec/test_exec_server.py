"""The server of `simwarp exec`, asked without a program: modules, launches, memory, errors."""

import os
import struct
from collections.abc import Sequence

import numpy as np
import pytest

from simwarp import Device
from simwarp.exec.device_memory import DeviceMemory
from simwarp.exec.protocol import PAGE, WINDOW, Kind, Message, Reply, Request
from simwarp.exec.report import Report
from simwarp.exec.server import Server
from simwarp.faults import OutOfBounds, UninitialisedRead
from support.fatbins import entry, fatbin

PTX = """
.version 9.0
.target sm_90
.address_size 64
.global .align 4 .u32 total = 40;
.const .align 4 .u32 factor = 3;
.visible .entry scale(.param .u64 x, .param .u32 n) {
    .reg .b64 %a<4>; .reg .b32 %r<6>; .reg .pred %p;
    ld.param.u64 %a1, [x];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    setp.ge.u32 %p, %r2, %r1;
    @%p bra DONE;
    mul.wide.u32 %a2, %r2, 4;
    add.s64 %a3, %a1, %a2;
    ld.global.u32 %r3, [%a3];
    ld.const.u32 %r4, [factor];
    mul.lo.u32 %r5, %r3, %r4;
    st.global.u32 [%a3], %r5;
DONE:
    ret;
}
"""
SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONFIGURATION = 0, 1, 2, 9
INVALID_SYMBOL, INVALID_FUNCTION, NO_IMAGE, ILLEGAL_ADDRESS = 13, 98, 209, 700


class Program:
    """A program's side of the conversation, in this process."""

    def __init__(self, limit: int = 1 << 20) -> None:
        self.report = Report(quiet=True)
        self.server = Server(
            Device(memory=DeviceMemory.new_space(), checks={"uninitialised": "report"}), self.report, limit
        )

    def ask(self, request: Request, *arguments: int, data: bytes = b"", file: int | None = None) -> Reply:
        return self.server.answer(Message(request, [*arguments, *[0] * (6 - len(arguments))], data, file))

    def kernel(self) -> int:
        module = self.ask(Request.LOAD, data=fatbin(entry(PTX.encode()))).values[0]
        return self.ask(Request.FUNCTION, module, data=b"scale").values[0]

    def launch(self, function: int, address: int, count: int, block: int = 32, shared: int = 0) -> Reply:
        head = struct.pack("=3Q10I", function, shared, 0, 1, 1, 1, block, 1, 1, 0, 0, 0, 0)
        return self.ask(Request.LAUNCH, data=head + struct.pack("=QI", address, count))

    def malloc(self, size: int) -> int:
        reply = self.ask(Request.MALLOC, size)
        assert reply.error == SUCCESS
        return reply.values[0]

    def write(self, address: int, numbers: Sequence[int]) -> Reply:
        size = 4 * len(numbers)
        return self.ask(
            Request.WRITE, address, size, size, 1, data=struct.pack(f"={len(numbers)}I", *numbers)
        )

    def read(self, address: int, count: int) -> list[int]:
        return list(
            struct.unpack(f"={count}I", self.ask(Request.READ, address, 4 * count, 4 * count, 1).data)
        )


@pytest.fixture
def program() -> Program:
    return Program()


def test_a_kernel_computes_on_memory_of_the_program(program: Program) -> None:
    x = program.malloc(16)
    assert x >= WINDOW
    assert x % PAGE == 0
    program.write(x, [1, 2, 3, 4])
    assert program.launch(program.kernel(), x, 4).error == SUCCESS
    assert program.read(x, 4) == [3, 6, 9, 12]
    assert dict(program.report.kernels) == {"scale": 1}
    assert program.report.findings == []


def test_variables_are_found_by_name_in_both_spaces(program: Program) -> None:
    module = program.ask(Request.LOAD, data=fatbin(entry(PTX.encode()))).values[0]
    total, factor = (program.ask(Request.VARIABLE, module, data=name) for name in (b"total", b"factor"))
    assert [reply.values[1] for reply in (total, factor)] == [4, 4]
    assert program.read(total.values[0], 1) == [40]
    assert program.read(factor.values[0], 1) == [3]
    assert program.ask(Request.VARIABLE, module, data=b"none").error == INVALID_SYMBOL
    assert program.ask(Request.FUNCTION, module, data=b"none").error == INVALID_FUNCTION


def test_a_fault_ends_the_launch_with_the_error_of_cuda(program: Program) -> None:
    x = program.malloc(16)
    program.write(x, [1, 2, 3, 4])
    assert program.launch(program.kernel(), x, 5).error == ILLEGAL_ADDRESS
    (found,) = program.report.findings
    assert isinstance(found, OutOfBounds)
    assert found.offset == 16


def test_a_collected_fault_lets_the_launch_end(program: Program) -> None:
    x = program.malloc(16)
    program.write(x, [1, 2, 3])
    assert program.launch(program.kernel(), x, 4).error == SUCCESS
    (found,) = program.report.findings
    assert isinstance(found, UninitialisedRead)
    assert program.read(x, 3) == [3, 6, 9]


def test_findings_of_one_line_in_several_arrays_are_one_with_a_count(program: Program) -> None:
    kernel = program.kernel()
    for count in (1, 2, 2):
        program.launch(kernel, program.malloc(8), count)
    (found,) = program.report.findings
    assert program.report.count_of(found) == 5
    assert program.report.to_json()["findings"][0]["count"] == 5
    assert len(program.server.device.faults) == 1  # their name is that of the parameter


def test_rows_with_a_pitch_are_copied_and_filled(program: Program) -> None:
    x, y = program.malloc(64), program.malloc(64)
    program.ask(Request.FILL, x, 16, 8, 4, 0x01020304, 4)
    assert program.ask(Request.WRITE, x + 16, 16, 4, 2, data=b"abcdefgh").error == SUCCESS
    program.ask(Request.COPY, y, 8, x, 16, 8, 4)
    rows = program.ask(Request.READ, y, 8, 8, 4).data
    assert rows == b"\4\3\2\1\4\3\2\1abcd\4\3\2\1efgh\4\3\2\1\4\3\2\1\4\3\2\1"


def test_a_copy_of_unwritten_bytes_is_unwritten(program: Program) -> None:
    x, y = program.malloc(16), program.malloc(16)
    program.write(x, [1, 2])
    program.write(y, [5, 5, 5, 5])
    program.ask(Request.COPY, y, 16, x, 16, 16, 1)
    program.launch(program.kernel(), y, 4)
    assert [type(fault) for fault in program.report.findings] == [UninitialisedRead]
    assert program.report.findings[0].count == 2


@pytest.mark.parametrize(
    ("request_", "arguments"),
    [
        (Request.WRITE, (8, 12, 12, 1)),
        (Request.READ, (-4, 8, 8, 1)),
        (Request.READ, (1 << 20, 8, 8, 1)),
        (Request.FILL, (0, 12, 8, 2, 0, 1)),
        (Request.FREE, (4,)),
    ],
)
def test_calls_beside_an_allocation_are_findings_with_invalid_value(
    program: Program, request_: Request, arguments: tuple[int, ...]
) -> None:
    x = program.malloc(16)
    reply = program.ask(request_, x + arguments[0], *arguments[1:], data=bytes(12))
    assert reply.error == INVALID_VALUE
    assert isinstance(program.report.findings[0], OutOfBounds)


def test_memory_that_was_freed_is_named_as_freed(program: Program) -> None:
    x = program.malloc(16)
    assert program.ask(Request.FREE, x).error == SUCCESS
    assert program.ask(Request.FREE, x).error == INVALID_VALUE
    assert "which was freed" in str(program.report.findings[0])
    assert program.launch(program.kernel(), x, 1).error == ILLEGAL_ADDRESS


def test_memory_is_limited() -> None:
    program = Program(limit=1000)
    x = program.malloc(600)
    assert program.ask(Request.MALLOC, 600).error == OUT_OF_MEMORY
    assert program.ask(Request.MEMORY).values[:2] == [400, 1000]
    program.ask(Request.FREE, x)
    assert program.malloc(1000)


def test_shared_pages_are_the_hosts_and_untouched_ones_unwritten(program: Program) -> None:
    file = os.memfd_create("test")
    os.ftruncate(file, 4 * PAGE)
    x = program.ask(Request.SHARE, 4 * PAGE, Kind.MANAGED, 0, file=os.dup(file)).values[0]
    os.pwrite(file, struct.pack("=2I", 7, 8), 2 * PAGE)
    kernel = program.kernel()
    assert program.launch(kernel, x + 2 * PAGE, 2).error == SUCCESS
    assert program.report.findings == []
    assert struct.unpack("=2I", os.pread(file, 8, 2 * PAGE)) == (21, 24)
    program.launch(kernel, x + PAGE, 1)
    assert [type(fault) for fault in program.report.findings] == [UninitialisedRead]
    assert list(program.ask(Request.FIND, x + 5).values) == [x, 4 * PAGE, Kind.MANAGED]
    assert program.ask(Request.FREE, x).error == SUCCESS
    os.close(file)


def test_registered_memory_keeps_its_host_address(program: Program) -> None:
    file, host = os.memfd_create("test"), 0x7000_0000_0000 + 48
    os.ftruncate(file, PAGE)
    os.pwrite(file, struct.pack("=I", 5), 48)
    program.malloc(16)
    assert program.ask(Request.SHARE, 4, Kind.REGISTERED, host, file=os.dup(file)).values[0] == host
    kernel = program.kernel()
    assert program.launch(kernel, host, 1).error == SUCCESS
    assert os.pread(file, 4, 48) == struct.pack("=I", 15)
    assert program.launch(kernel, host, 2).error == ILLEGAL_ADDRESS
    os.close(file)


def test_a_launch_that_the_chip_refuses_is_explained(program: Program) -> None:
    x, kernel = program.malloc(4), program.kernel()
    assert program.launch(kernel, x, 1, block=2048).error == INVALID_CONFIGURATION
    assert program.launch(kernel, x, 1, shared=50 << 10).error == INVALID_VALUE
    assert "2048 threads" in program.report.notes[0]
    assert "cudaFuncSetAttribute" in program.report.notes[1]
    assert not program.report.kernels
    assert program.ask(Request.DYNAMIC_SHARED, kernel, 50 << 10).error == SUCCESS
    assert program.ask(Request.DYNAMIC_SHARED, kernel, 500 << 10).error == INVALID_VALUE
    program.write(x, [1])
    assert program.launch(kernel, x, 1, shared=50 << 10).error == SUCCESS


def test_facts_of_a_kernel_and_its_occupancy_are_those_of_the_chip(program: Program) -> None:
    kernel = program.kernel()
    registers, *sizes = program.ask(Request.ATTRIBUTES, kernel).values
    assert 0 < registers < 16
    shared, local, threads, constant = 0, 0, 1024, 4
    assert sizes == [shared, local, threads, constant]
    for block, dynamic, blocks in ((1024, 0, 2), (64, 0, 32), (64, 100 << 10, 2), (2048, 0, 0)):
        assert program.ask(Request.OCCUPANCY, kernel, block, dynamic, 1).values[0] == blocks


def test_limits_of_the_program_are_those_of_the_device(program: Program) -> None:
    program.ask(Request.LIMIT, 0, 1 << 20)
    program.ask(Request.LIMIT, 2, 1 << 25)
    assert program.server.device.stack == 1 << 20
    assert program.server.device.heap.limit == 1 << 25


def test_code_that_the_device_cannot_run_is_explained(program: Program) -> None:
    assert program.ask(Request.LOAD, data=fatbin()).error == NO_IMAGE
    assert program.ask(Request.LOAD, data=b"not a fatbin, not at all").error == NO_IMAGE
    assert len(program.report.notes) == 2


CALLER = """.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope);
.extern .func (.param .b32 result) cudaCGSynchronize(.param .b64 handle, .param .b32 flags);
.extern .func (.param .b32 result) number();
.visible .entry exchange(.param .u64 x)
{
    .reg .b32 %i, %other, %v;
    .reg .b64 %handle, %x, %at;
    .param .b32 scope;
    .param .b64 handle;
    .param .b32 flags;
    .param .b32 result;
    ld.param.u64 %x, [x];
    mov.u32 %i, %ctaid.x;
    call (result), number, ();
    ld.param.b32 %v, [result];
    add.u32 %v, %v, %i;
    mad.wide.u32 %at, %i, 4, %x;
    st.global.u32 [%at], %v;
    st.param.b32 [scope], 2;
    call (handle), cudaCGGetIntrinsicHandle, (scope);
    st.param.b32 [flags], 0;
    call (result), cudaCGSynchronize, (handle, flags);
    sub.u32 %other, 3, %i;
    mad.wide.u32 %at, %other, 4, %x;
    ld.global.u32 %v, [%at];
    call (result), cudaCGSynchronize, (handle, flags);
    mad.wide.u32 %at, %i, 4, %x;
    st.global.u32 [%at], %v;
    ret;
}
"""
CALLED = """.version 8.0
.target sm_80
.address_size 64
.visible .func (.param .b32 result) number()
{
    st.param.b32 [result], 7;
    ret;
}
"""


def test_linked_texts_have_the_barrier_of_the_grid(program: Program) -> None:
    parts = [text.encode() + b"\0" for text in (CALLER, CALLED)]
    linked = program.ask(Request.LINK, data=b"".join(struct.pack("=Q", len(p)) + p for p in parts))
    module = program.ask(Request.LOAD, data=bytes(linked.data)).values[0]
    found = program.ask(Request.FUNCTION, module, data=b"exchange")
    assert struct.unpack("=2I", found.data) == (8, 0)
    x = program.server.device.allocate((4,), np.int32)
    launch = struct.pack("=3Q10I", found.values[0], 0, 0, 4, 1, 1, 1, 1, 1, 0, 0, 0, 1)
    assert program.ask(Request.LAUNCH, data=launch + struct.pack("=Q", x.pointer)).error == 0
    assert x.download().tolist() == [10, 9, 8, 7]
    assert not program.report.findings
    assert program.ask(Request.LINK, data=struct.pack("=Q", 8) + b"\x7fELF\2\1\1\0").error == 200


def test_the_linker_bounds_the_registers_of_kernels_that_do_not(program: Program) -> None:
    image = PTX.encode() + b"\0"
    for most, expected in ((0, program.ask(Request.ATTRIBUTES, program.kernel()).values[0]), (3, 3)):
        linked = program.ask(Request.LINK, most, data=struct.pack("=Q", len(image)) + image)
        module = program.ask(Request.LOAD, data=bytes(linked.data)).values[0]
        kernel = program.ask(Request.FUNCTION, module, data=b"scale").values[0]
        assert program.ask(Request.ATTRIBUTES, kernel).values[0] == expected


def test_a_tiled_map_is_that_of_the_device_and_a_wrong_one_is_explained(program: Program) -> None:
    device = program.server.device
    array = device.allocate((16, 64), np.float32)
    numbers = struct.pack("=10Q", array.pointer, 64, 16, 0, 0, 0, 256, 0, 0, 0)
    modes = [7, 2, 32, 8, 0, 0, 0, 1, 1, 1, 1, 1, 0, 3, 2, 0]
    reply = program.ask(Request.TENSOR_MAP, data=numbers + struct.pack("=16I", *modes))
    assert reply.data == device.tensor_map(array, (8, 32), swizzle=128, l2_promotion=128)
    modes[2] = 33
    reply = program.ask(Request.TENSOR_MAP, data=numbers + struct.pack("=16I", *modes))
    assert reply.error == INVALID_VALUE
    assert "multiple of 16" in program.report.notes[0]


def test_the_report_counts_what_the_program_called_in_vain(program: Program) -> None:
    for _ in range(2):
        program.ask(Request.MISSING, data=b"cudaMallocMipmappedArray")
        program.ask(Request.FAILED, data=b"cudaSetDevice cudaErrorInvalidDevice")
    program.report.connected, program.report.returncode = True, -11
    assert program.report.exit_code == 139
    lines = program.report.summary.splitlines()
    assert "cudaMallocMipmappedArray is not in this runtime" in lines[0]
    assert lines[1] == "cudaSetDevice returned cudaErrorInvalidDevice (2 times)"
    assert "signal 11" in lines[2]
    assert program.report.to_json()["missing"] == {"cudaMallocMipmappedArray": 2}
