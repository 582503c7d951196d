"""Every way to touch memory, with every mistake that a check of memory looks for."""

import io
from pathlib import Path

import numpy as np
import pytest

import simwarp
from simwarp.checks import KINDS
from simwarp.faults import (
    CopyInFlight,
    DependentAccess,
    KernelFault,
    OutOfBounds,
    Race,
    StaleRead,
    UninitialisedRead,
    UninitialisedRegister,
    UseAfterFree,
)
from support import small_kernels as small
from support import tensor_tiles as tiles
from support import warpgroup_kernels as warpgroups
from support import ways_table
from support.ways import (
    CELLS,
    COMMITTED,
    LOCAL,
    MISTAKES,
    PLAIN,
    TO_GLOBAL,
    WAIT_ALL,
    WAYS,
    Launch,
    by,
    one,
    run,
)

ROOT = Path(__file__).resolve().parents[3]
CASES = [
    pytest.param(check, access, id=f"{check}-{way.replace('`', '')}-{access.space}-{access.kind}")
    for way, accesses in WAYS.items()
    for access in accesses
    for check, (_, _, applies) in MISTAKES.items()
    if applies(access)
]


@pytest.mark.parametrize(("check", "access"), CASES)
def test_the_mistake_is_named_and_the_right_kernel_is_silent(check, access):
    launch, kinds, _ = MISTAKES[check]
    with pytest.raises(KernelFault) as caught:
        launch(access, right=False)
    assert isinstance(caught.value, kinds), str(caught.value)
    launch(access, right=True)


# ---- texels and tiles, which have a handle or a map instead of an address -------------------------------

BEGIN = "mov.u32 %r2, 0; mov.u32 %r3, 0; mov.u32 %r8, 8; mov.u64 %rd1, cells; mov.u64 %rd2, others;\n"
TEXELS = {
    "tex": "tex.1d.v4.u32.s32 {%r2, %r4, %r5, %r6}, [%in, {%r3}];\n",
    "suld": "suld.b.1d.b32.trap {%r2}, [%in, {%r3}];\n",
    "sust": "sust.b.1d.b32.trap [%in, {%r3}], {%r8};\n",
}


class Texels:
    """Linear memory with a texture of it, or an image with a surface of it."""

    def __init__(self, way):
        self.device = simwarp.Device(instruction_budget=100_000)
        self.out = self.device.upload(np.zeros(32, np.uint32), "out")
        words = np.arange(256, dtype=np.uint32)
        if way == "tex":
            self.source = self.device.upload(words, "texels")
            self.handle = self.device.texture(self.source)
        else:
            self.handle = self.device.surface(self.device.upload_image(words, "texels"))
            self.source = self.handle

    def load(self, body):
        return self.device.load(small.text(BEGIN + body + small.STORE, CELLS)).kernel("k")

    def run(self, body):
        self.load(body)(1, 32, self.out, self.handle)


@pytest.mark.parametrize("way", TEXELS)
@pytest.mark.parametrize("unwritten", ["add.u32 %r3, %r3, %r20;\n", "add.u64 %in, %in, %rd8;\n"])
def test_a_coordinate_or_a_handle_in_an_unwritten_register_is_named(way, unwritten):
    with pytest.raises(UninitialisedRegister):
        Texels(way).run(unwritten + by("thread", TEXELS[way]))
    Texels(way).run(by("thread", TEXELS[way]))


@pytest.mark.parametrize("way", TEXELS)
def test_texels_of_the_launch_before_are_touched_behind_the_wait_only(way):
    write = "st.global.u32 [%in], %r8;\n" if way == "tex" else TEXELS["sust"]

    def run(wait):
        texels = Texels(way)
        first = texels.load(by("thread", write) + "griddepcontrol.launch_dependents;\n")
        then = texels.load(wait + by("thread", TEXELS[way]))
        first(1, 32, texels.out, texels.source)
        then(1, 32, texels.out, texels.handle, dependent=True)

    with pytest.raises(DependentAccess):
        run("")
    run("griddepcontrol.wait;\n")


TILE = {
    "load": tiles.INIT + tiles.EXPECT.format(256) + tiles.load((0, 0)) + tiles.WAIT + tiles.dump(256),
    "store": tiles.each_word(256, "@%p3 st.shared.u32 [%r2], 1;")
    + tiles.FENCE
    + tiles.store((0, 0))
    + tiles.DONE,
}


class Tiles:
    """A matrix with a tensor map of it."""

    def __init__(self, filled=True):
        self.device = simwarp.Device(instruction_budget=100_000)
        self.matrix = self.device.allocate((20, 16), np.uint32, "matrix")
        if filled:
            self.matrix.upload(np.zeros((20, 16), np.uint32))
        self.map = self.device.tensor_map(self.matrix, box=(4, 16))
        self.out = self.device.upload(np.zeros(2048, np.uint8), "out")

    def load(self, body):
        return self.device.load(tiles.HEAD + body + "ret; }").kernel("k")

    def run(self, body):
        self.load(body)(1, 128, self.map, self.out, self.out)


@pytest.mark.parametrize("way", TILE)
def test_a_coordinate_of_a_tile_in_an_unwritten_register_is_named(way):
    with pytest.raises(UninitialisedRegister):
        Tiles().run(TILE[way].replace("{0, 0}", "{0, %r29}"))
    Tiles().run(TILE[way])


@pytest.mark.parametrize("way", TILE)
def test_a_tile_of_a_freed_array_is_named(way):
    freed = Tiles()
    freed.matrix.free()
    with pytest.raises(UseAfterFree):
        freed.run(TILE[way])


def test_a_tile_of_an_unwritten_array_is_named_where_it_is_used():
    with pytest.raises(UninitialisedRead):
        Tiles(filled=False).run(TILE["load"])


@pytest.mark.parametrize("way", TILE)
def test_a_tile_of_the_launch_before_is_touched_behind_the_wait_only(way):
    def run(wait):
        two = Tiles()
        first = two.load("@%p1 st.global.u32 [%in], 5;\ngriddepcontrol.launch_dependents;\n")
        then = two.load(wait + TILE[way])
        first(1, 128, two.map, two.out, two.matrix)
        then(1, 128, two.map, two.out, two.matrix, dependent=True)

    with pytest.raises(DependentAccess):
        run("")
    run("griddepcontrol.wait;\n")


def test_a_pointer_of_the_host_that_was_freed_is_not_taken_for_one_beside_its_neighbour():
    launch = Launch()
    gone = launch.device.upload(np.zeros(64, np.uint32), "gone")
    kept = launch.device.upload(np.zeros(64, np.uint32), "kept")
    gone.free()
    with pytest.raises(UseAfterFree) as caught:
        launch.run(one(PLAIN["global", "read"]), np.uint64(gone.pointer))
    assert caught.value.allocation == "gone (freed)"
    launch.run(one(PLAIN["global", "read"]), kept)


# ---- functions of the simulator, mbarriers, descriptors ----------------------------------------------------

EXTERN = """
.extern .func (.param .b32 r) vprintf(.param .b64 format, .param .b64 arguments);
.extern .func (.param .b64 r) malloc(.param .b64 size);
.extern .func free(.param .b64 pointer);
.global .align 1 .b8 form[3] = {37, 115, 0};
"""
PRINT = """{ .param .b64 a; .param .b64 b; .param .b32 c; st.local.u64 [mine], %rd1; mov.u64 %rd2, mine;
cvta.local.u64 %rd2, %rd2; mov.u64 %rd3, form; cvta.global.u64 %rd3, %rd3;
st.param.b64 [a], %rd3; st.param.b64 [b], %rd2; call.uni (c), vprintf, (a, b); }
"""
NEW = """{ .param .b64 a; .param .b64 c; st.param.b64 [a], 64; call.uni (c), malloc, (a);
ld.param.b64 %rd1, [c]; }
"""
FREE = "{ .param .b64 a; st.param.b64 [a], %rd1; call.uni free, (a); }\n"


def call_host(body, freed=False):
    device = simwarp.Device(instruction_budget=100_000, stdout=io.StringIO())
    out, x = (device.upload(np.zeros(64, np.uint32), name) for name in ("out", "in"))
    kernel = device.load(small.text(LOCAL + BEGIN + body + small.STORE, EXTERN + CELLS)).kernel("k")
    if freed:
        x.free()
    kernel(1, 64, out, np.uint64(x.pointer))


@pytest.mark.parametrize("call", [PRINT, NEW + "add.u64 %rd1, %rd1, %rd7;\n" + FREE], ids=["printf", "free"])
def test_an_unwritten_register_passed_to_a_function_of_the_simulator_is_named(call):
    with pytest.raises(UninitialisedRegister):
        call_host(by("thread", "add.u64 %rd1, %in, %rd7;\n" + call))
    call_host(by("thread", "mov.u64 %rd1, %in;\n" + call.replace("%rd7", "0")))


@pytest.mark.parametrize(("offset", "freed", "kind"), [(0, True, UseAfterFree), (4096, False, OutOfBounds)])
def test_a_string_of_printf_outside_its_array_or_freed_is_named(offset, freed, kind):
    with pytest.raises(kind):
        call_host(by("thread", f"add.u64 %rd1, %in, {offset};\n" + PRINT), freed)


ARRIVE = "mbarrier.arrive.shared.b64 %rd8, [%rd1];\n"


@pytest.mark.parametrize(
    ("before", "kind"),
    [("add.u64 %rd1, %rd1, 1048576;\n", OutOfBounds), ("add.u64 %rd1, %rd1, %rd7;\n", UninitialisedRegister)],
)
def test_an_arrival_at_a_wrong_address_is_named(before, kind):
    with pytest.raises(kind):
        run(by("thread", "mov.u64 %rd1, bar;\n" + before + ARRIVE))
    run(by("thread", "mov.u64 %rd1, bar;\n" + ARRIVE))


def test_a_texture_of_memory_that_a_copy_writes_is_named():
    def read(wait):
        texels = Texels("tex")
        fill = "mad.wide.u32 %rd4, %r1, 16, %rd1;\nst.shared.v4.u32 [%rd4], {%r8, %r8, %r8, %r8};\n"
        copy = f"mov.u64 %rd5, {texels.source.pointer}; {TO_GLOBAL} [%rd5], [%rd1], 16;\n{wait}"
        body = by("thread", copy + TEXELS["tex"] + COMMITTED)
        texels.run(fill + "fence.proxy.async; bar.sync 0;\n" + body)

    with pytest.raises((CopyInFlight, StaleRead)):
        read("")


def test_a_descriptor_in_an_unwritten_register_is_named():
    opcode = "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8"
    body = warpgroups.ORDER + f"{opcode} {warpgroups.registers(4, 'd')}, %x, %y, %yes;\n"
    text = warpgroups.kernel(opcode, body + warpgroups.COMMIT + warpgroups.WAIT, 2304, True, 128)
    device = simwarp.Device(instruction_budget=100_000)
    image, d = np.zeros((1, 2304), np.uint8), np.zeros((1, 128, 4), np.uint32)
    with pytest.raises(UninitialisedRegister):
        warpgroups.launch(text, image, d, d, device, 128)


FUNCTION = """.func (.param .b64 r) f(.param .b32 n) { .local .align 4 .b32 v[4]; .reg .b64 a; .reg .b32 m;
ld.param.b32 m, [n]; mov.u64 a, v; st.local.u32 [a], m; st.param.b64 [r], a; ret; }
"""
CALL = """{ .param .b64 r; .param .b32 n; st.param.b32 [n], %i; call.uni (r), f, (n);
ld.param.b64 %rd1, [r]; }
"""


def test_a_variable_of_a_function_that_returned_is_named():
    small.run(CALL + "mov.u32 %r2, 0;\n" + small.STORE, before=FUNCTION)
    with pytest.raises(OutOfBounds, match="function's stack frame"):
        small.run(CALL + "ld.local.u32 %r2, [%rd1];\n" + small.STORE, before=FUNCTION)


@pytest.mark.parametrize("kind", [UseAfterFree, UninitialisedRegister])
def test_a_tensor_map_at_a_wrong_address_is_named(kind):
    def copy(freed, unwritten):
        two = Tiles()
        tensor_map = two.device.upload(np.array(two.map), "map")
        if freed:
            tensor_map.free()
        address = "add.u64 %map, %map, %rd8;\n" if unwritten else "mov.u64 %map, %in;\n"
        two.load(address + TILE["load"])(1, 128, two.map, two.out, np.uint64(tensor_map.pointer))

    copy(False, False)
    with pytest.raises(kind):
        copy(kind is UseAfterFree, kind is UninitialisedRegister)


# ---- the table of the docs ---------------------------------------------------------------------------------


def test_the_table_of_the_docs_is_the_one_of_the_tests():
    page = (ROOT / "docs" / "checks.md").read_text("utf-8")
    assert "\n".join(ways_table.lines()) in page, "run: python -m support.ways_table"


def test_every_cell_names_a_test_or_a_reason():
    texts = {path.name: path.read_text("utf-8") for path in (ROOT / "tests" / "unit").rglob("test_*.py")}
    for way in ways_table.ways():
        for check in ways_table.CHECKS:
            cell = ways_table.cell(way, check)
            file, colons, name = cell.partition("::")
            known = colons and f"def {name}(" in texts[file]
            assert known or cell in ways_table.REASONS, f"{way}, {check}: {cell or 'empty'}"
    used = {ways_table.cell(way, check) for way in ways_table.ways() for check in ways_table.CHECKS}
    assert {cell for cell in used if "::" not in cell} == set(ways_table.REASONS)


def test_every_kind_of_check_has_a_column_or_judges_something_else():
    assert sorted((*ways_table.CHECKS, *ways_table.OF_WORDS, *ways_table.OF_CODE)) == sorted(KINDS)


def heap(body):
    call_host(by("thread", NEW + body))


def test_a_free_is_a_write_of_the_whole_block():

    def free(meet):
        store = by("thread", NEW + "st.global.u32 [%rd1+32], %r2; st.shared.u64 [others], %rd1;\n")
        read = by("thread", "ld.shared.u64 %rd1, [others]; ld.global.u32 %r2, [%rd1+32];\n", 32)
        end = by("thread", "ld.shared.u64 %rd1, [others];\n" + FREE)
        call_host(store + "bar.sync 0;\n" + read + meet + end)

    with pytest.raises((Race, UseAfterFree)):
        free("")
    free("bar.sync 0;\n")


def test_a_free_under_a_copy_is_named():
    def free(wait):
        copy = "st.global.u32 [%rd1], %r2; cp.async.ca.shared.global [others], [%rd1], 4;\n"
        copy += "cp.async.commit_group;\n"
        heap(copy + wait + FREE + WAIT_ALL)

    with pytest.raises(CopyInFlight):
        free("")
    free(WAIT_ALL)


def test_an_arrival_under_a_copy_is_named():
    copy = "mov.u64 %rd1, bar; cp.async.ca.shared.global [%rd1], [%in], 8; cp.async.commit_group;\n"
    with pytest.raises(CopyInFlight):
        run(by("thread", copy + ARRIVE + WAIT_ALL))


def test_a_free_before_the_wait_is_named():
    def launches(wait):
        device = simwarp.Device(instruction_budget=100_000)
        out, x = (device.upload(np.zeros(64, np.uint32), name) for name in ("out", "in"))
        first = by("thread", NEW + "st.global.u32 [%rd1], %r2; st.global.u64 [%in], %rd1;\n")
        then = wait + by("thread", "ld.global.u64 %rd1, [%in];\n" + FREE)
        texts = (first + "griddepcontrol.launch_dependents;\n", then)
        kernels = [device.load(small.text(LOCAL + BEGIN + t + small.STORE, EXTERN + CELLS)) for t in texts]
        for dependent, module in enumerate(kernels):
            module.kernel("k")(1, 64, out, x, dependent=bool(dependent))

    with pytest.raises(DependentAccess):
        launches("")
    launches("griddepcontrol.wait;\n")
