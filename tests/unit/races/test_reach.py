"""An access is checked against the arrays whose pointers its address was computed from."""

import numpy as np
import pytest

import simwarp
from simwarp.faults import OutOfBounds
from simwarp.ptx.mangled_names import plain_variable

HEAD = """.version 9.0
.target sm_90
.address_size 64
.global .align 4 .b8 table[64];
.visible .entry k(.param .u64 x, .param .u64 y, .param .u64 n, .param .u64 z) {
.reg .pred %p<4>; .reg .b32 %lane, %r<9>; .reg .b64 %x, %y, %n, %z, %i, %a<9>;
ld.param.u64 %x, [x]; ld.param.u64 %y, [y]; ld.param.u64 %n, [n]; ld.param.u64 %z, [z];
mov.u32 %lane, %laneid; mul.wide.u32 %i, %lane, 4; setp.lt.u32 %p0, %lane, 16; mov.u32 %r1, 5;
"""
SIZE = 32 * 4


class Arrays:
    """Adjacent arrays x, y and z of 32 words, and a launcher for kernels on them and a byte count."""

    def __init__(self, **options):
        self.device = simwarp.Device(**options)
        self.x, self.y, self.z = (self.device.upload(np.arange(32, dtype=np.uint32), n) for n in "xyz")
        self.y_from_x = self.y.pointer - self.x.pointer

    def run(self, body, n=0, x=None, y=None, z=None):
        arguments = [
            given if given is not None else np.uint64(own.pointer)
            for given, own in ((x, self.x), (y, self.y), (z, self.z))
        ]
        kernel = self.device.load(HEAD + body + "\nret; }").kernel("k")
        kernel((1, 1, 1), (32, 1, 1), *arguments[:2], np.uint64(n), arguments[2])

    def fault(self, body, **given):
        with pytest.raises(OutOfBounds) as caught:
            self.run(body, **given)
        return caught.value


FAR = "add.u64 %a1, %x, %i; add.u64 %a1, %a1, %n;"
ACCESSES = {
    "read": "ld.global.u32 %r2, [%a1];",
    "write": "st.global.u32 [%a1], %r1;",
    "update": "atom.global.add.u32 %r2, [%a1], %r1;",
    "generic": "st.u32 [%a1], %r1;",
}


@pytest.mark.parametrize("verb", ACCESSES)
def test_an_access_landing_in_another_array_names_its_own_array(verb):
    arrays = Arrays()
    arrays.run(FAR + ACCESSES[verb])
    fault = arrays.fault(FAR + ACCESSES[verb], n=arrays.y_from_x - 64)
    assert fault.what == f"{verb.replace('generic', 'write')} of 4 bytes outside every allocation"
    assert (fault.allocation, fault.offset, fault.place.lane) == ("x", arrays.y_from_x - 64, 0)
    fault = arrays.fault(FAR + ACCESSES[verb], n=arrays.y_from_x)
    assert fault.what == f"{verb.replace('generic', 'write')} of 4 bytes outside x, in y"
    assert (fault.allocation, fault.count) == ("x", 32)
    assert f"{arrays.y_from_x - SIZE} bytes past the end of x" in fault.values


def test_only_lanes_outside_their_array_are_reported():
    arrays = Arrays(checks="report")
    body = "@!%p0 add.u64 %x, %x, %n; add.u64 %a1, %x, %i; ld.global.u32 %r2, [%a1]; st.global.u32 [%a1], 7;"
    body += "add.u64 %a2, %z, %i; st.global.u32 [%a2], %r2;"
    arrays.run(body, n=arrays.y_from_x)
    assert arrays.x.download().tolist() == [7] * 16 + list(range(16, 32))
    assert arrays.y.download().tolist() == list(range(32))
    assert arrays.z.download().tolist() == [*range(16), *[0xA5A5A5A5] * 16]
    assert [(f.what.split()[0], f.allocation, f.count) for f in arrays.device.faults] == [
        ("read", "x", 16),
        ("write", "x", 16),
    ]
    off = Arrays(checks={"bounds": "off"})
    off.run(body, n=off.y_from_x)
    assert off.y.download().tolist() == [*range(16), *[7] * 16]


@pytest.mark.parametrize(
    "body",
    [
        "sub.u64 %a1, %x, 4; add.u64 %a1, %a1, %i; ld.global.u32 %r2, [%a1+4];",
        "add.u64 %a1, %x, 131072; sub.u64 %a1, %a1, 131072; add.u64 %a1, %a1, %i; ld.global.u32 %r2, [%a1];",
        "sub.u64 %a1, %y, %x; add.u64 %a1, %a1, %x; add.u64 %a1, %a1, %i; ld.global.u32 %r2, [%a1];",
        "selp.u64 %a1, %x, %y, %p0; add.u64 %a1, %a1, %i; st.global.u32 [%a1], %r1;",
        "mov.u64 %a1, table; cvta.global.u64 %a1, %a1; and.b64 %a2, %i, 60; add.u64 %a1, %a1, %a2;"
        "atom.global.add.u32 %r2, [%a1], 1;",
        "st.global.u64 [%x], %y; ld.global.u64 %a1, [%x]; add.u64 %a1, %a1, %i; st.global.u32 [%a1], 5;",
        "mov.b64 {%r2, %r3}, %y; shfl.sync.idx.b32 %r2, %r2, 0, 31, -1;"
        "shfl.sync.idx.b32 %r3, %r3, 0, 31, -1;"
        "mov.b64 %a1, {%r2, %r3}; add.u64 %a1, %a1, %i; ld.global.u32 %r2, [%a1];",
    ],
)
def test_pointers_computed_in_valid_ways_are_not_reported(body):
    Arrays(checks={"races": "off"}).run(body)


def test_pointers_computed_by_the_host_are_not_reported():
    arrays = Arrays()
    backwards = "sub.u64 %a1, %x, %i; ld.global.u32 %r2, [%a1-4];"
    arrays.run(backwards, x=np.uint64(arrays.x.pointer + SIZE))  # after its last element
    arrays.run(FAR + ACCESSES["read"], x=np.uint64(arrays.x.pointer - 64), n=64)
    arrays.run("sub.u64 %a1, %x, %i; ld.global.u32 %r2, [%a1];", x=np.uint64(arrays.x.pointer + SIZE - 4))


def test_an_address_from_two_arrays_may_reach_either_and_no_third():
    arrays = Arrays()
    body = "selp.u64 %a1, %x, %y, %p0; add.u64 %a1, %a1, %n; ld.global.u32 %r2, [%a1];"
    arrays.run(body)
    fault = arrays.fault(body, n=arrays.y_from_x)  # the upper lanes reach z
    assert (fault.what, fault.place.lane, fault.count) == ("read of 4 bytes outside y, in z", 16, 16)


def test_an_access_outside_a_module_variable_is_reported():
    arrays = Arrays()
    fault = arrays.fault("mov.u64 %a1, table; add.u64 %a1, %a1, %i; ld.global.u32 %r2, [%a1];")
    assert (fault.allocation, fault.offset, fault.place.lane) == ("variable table", 64, 16)
    arrays.run("mov.u64 %a1, table; and.b64 %i, %i, 63; add.u64 %a1, %a1, %i; ld.global.u32 %r2, [%a1];")


@pytest.mark.parametrize(
    ("body", "lane"),
    [("add.u64 %a1, %x, %i;", 0), ("selp.u64 %a1, %y, %x, %p0; add.u64 %a1, %a1, %i;", 16)],
)
def test_an_access_through_a_null_pointer_is_named_as_such(body, lane):
    arrays = Arrays()
    arrays.run(body + ACCESSES["write"])
    fault = arrays.fault(body + ACCESSES["write"], x=np.uint64(0))
    assert fault.values == f"address {lane * 4:#x}: a null pointer"
    assert (fault.allocation, fault.place.lane) == ("", lane)
    assert "test the pointer" in str(fault)


def test_a_malloc_pointer_is_judged_by_its_address():
    arrays = Arrays()
    body = """{ .param .b64 a; .param .b64 b; mov.u64 %a2, 64; st.param.b64 [a], %a2;
        call (b), malloc, (a); ld.param.b64 %a1, [b]; }"""
    before = ".extern .func (.param .b64 p) malloc(.param .b64 size);\n"
    text = HEAD.replace(".global", before + ".global") + body + "st.u32 [%a1], %r1; add.u64 %a1, %a1, %n;"
    kernel = arrays.device.load(text + "st.u32 [%a1], %r1; ret; }").kernel("k")
    given = [np.uint64(array.pointer) for array in (arrays.x, arrays.y)]
    kernel((1, 1, 1), (2, 1, 1), *given, np.uint64(60), given[0])
    with pytest.raises(OutOfBounds) as caught:
        kernel((1, 1, 1), (2, 1, 1), *given, np.uint64(64), given[0])
    assert caught.value.allocation == "malloc(64)"


FUNCTIONS = """.func (.param .b64 at) second(.param .b64 p, .param .b64 n) {
    .reg .b64 %x, %n; ld.param.u64 %x, [p]; ld.param.u64 %n, [n];
    add.u64 %x, %x, %n; st.param.b64 [at], %x; ret; }
.func (.reg .b32 %v) take(.reg .b64 %x) { ld.u32 %v, [%x]; ret; }
"""
CALLS = """{ .param .b64 p; .param .b64 n; .param .b64 at; st.param.b64 [p], %x; st.param.b64 [n], %n;
    call (at), second, (p, n); ld.param.b64 %a1, [at]; }
"""


def test_pointers_passed_to_functions_are_not_judged():
    """Registers of the same name in several functions are different."""
    arrays = Arrays()

    def launch(body, n=0):
        text = HEAD.replace(".visible", FUNCTIONS + ".visible") + body + "\nret; }"
        given = [np.uint64(array.pointer) for array in (arrays.x, arrays.y, arrays.z)]
        arrays.device.load(text).kernel("k")((1, 1, 1), (2, 1, 1), *given[:2], np.uint64(n), given[2])

    launch(CALLS + ACCESSES["write"], n=arrays.y_from_x)
    assert arrays.y.download()[0] == 5
    launch("add.u64 %a1, %x, %n; call (%r2), take, (%y);", n=64)
    with pytest.raises(OutOfBounds) as caught:
        launch(CALLS + "add.u64 %a2, %x, %n; st.global.u32 [%a2], %r1;", n=arrays.y_from_x)
    assert caught.value.what == "write of 4 bytes outside x, in y"


def test_a_mangled_variable_is_shown_with_its_cuda_name():
    assert (plain_variable("_ZZ4tilePfE5cells"), plain_variable("cells")) == ("cells", "cells")
