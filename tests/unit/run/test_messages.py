"""Messages of faults: one of each kind against its recorded text, and where carets stand."""

import inspect
import json
import re

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from messages.found import FOLDER, recorded
from simwarp import faults
from simwarp.elements import Shape, declared_shape, name_element
from simwarp.messages import message, plain

BASES = {"KernelFault", "MemoryFault", "Trap"}


@pytest.fixture(scope="module")
def texts():
    return recorded()


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain.txt", "terminal.txt", "fields.json"])
def test_each_kind_has_its_recorded_message(texts, name):
    assert texts[name] == (FOLDER / name).read_text()


def test_every_kind_is_recorded():
    kinds = {
        name
        for name, kind in inspect.getmembers(faults, inspect.isclass)
        if issubclass(kind, faults.KernelFault) and kind.__module__ == faults.__name__
    }
    fields = json.loads((FOLDER / "fields.json").read_text())
    assert {fault["class"] for fault in fields.values()} | BASES == kinds


# ---- the places of compiled kernels -----------------------------------------------------------------------


def found_in(text, blocks=1, **how):
    """The fault of a kernel k with one array of 4 integers."""
    device = simwarp.Device()
    kernel = device.load(compile(text, "k.cu")).kernel("k")
    with pytest.raises(faults.KernelFault) as raised:
        kernel(blocks, 1, device.upload(np.zeros(4, np.int32)), **how)
    return raised.value


@pytest.mark.parametrize("directive", ['#line 7 "k.cu"', "# 7", "#line 7"])
def test_a_line_directive_numbers_the_lines_that_are_quoted(directive):
    kernel = 'extern "C" __global__ void k(int* x)\n{ x[9] = 1; }'
    place = found_in(f"__device__ int pad;\n{directive}\n{kernel}").place
    assert (place.source_line, place.source_text) == (8, "{ x[9] = 1; }")


def test_a_trap_that_the_compiler_put_is_not_the_kernels_own():
    write = '__constant__ int c[4]; extern "C" __global__ void k(int* x) { c[threadIdx.x] = *x; }'
    assert "__constant__" in found_in(write).advice
    own = 'extern "C" __global__ void k(int* x) { if (*x == 0) __trap(); }'
    assert found_in(own).advice == "the kernel found an error; see its source line"


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.parametrize("left", ["blockIdx.x == 0", "blockIdx.x % 2"])
def test_a_grid_sync_that_a_block_does_not_reach_is_named(left):
    sync = "cooperative_groups::this_grid().sync();"
    text = f'#include <cooperative_groups.h>\nextern "C" __global__ void k(int* x) {{ if ({left}) {sync} }}'
    fault = found_in(text, 4, cooperative=True)
    assert (type(fault), fault.what) == (
        faults.Livelock,
        "a grid sync that not all threads of the grid reach",
    )


def test_one_byte_and_one_lane_are_not_plural():
    one = found_in('extern "C" __global__ void k(int* x) { while (atomicAdd(x, 0) == 0) {} }')
    assert one.values.startswith("1 lane is in loops")
    local = 'extern "C" __global__ void k(char* x) { volatile char y[4]; y[x[0] + 9] = 1; x[1] = y[0]; }'
    assert "access of 1 byte outside" in found_in(local).what


# ---- the line and its caret --------------------------------------------------------------------------------


def lines_of(text, column, element="", what="read of 4 bytes", **place):
    fault = faults.OutOfBounds(what)
    fault.element = element
    fault.at(source_file="k.cu", source_line=7, source_column=column, source_text=text, **place)
    return str(fault).splitlines()


@pytest.mark.parametrize(
    ("text", "column", "element", "what", "marked"),
    [
        ("  y[i] = x[i + 1];", 3, "x[8]", "read of x[8]", "x[i + 1]"),
        ("  y[i] = x[i + 1];", 3, "y[8]", "write of y[8]", "y[i]"),
        ("  t[i] = t[n - t[i]];", 3, "t[8]", "write of t[8]", "t[i]"),
        ("  t[i] = t[127 - i];", 3, "t[8]", "read of t[8]", "t[127 - i]"),
        ("  t[i] += 2;", 3, "t[8]", "update of t[8]", "t[i]"),
        ("  y[i] = t[i] + t[j];", 3, "t[8]", "read of t[8]", "y"),
        ("  tile[r][c] = at[r][c];", 3, "at[1][2]", "read of at[1][2]", "at[r][c]"),
        ("  if (t[i] == 3) return;", 3, "t[8]", "read of t[8]", "t[i]"),
        ("  f(x);", 3, "", "read of 4 bytes", "f"),
        ("  f(xt[3], t);", 3, "t[8]", "read of t[8]", "f"),
        ("  t[i", 3, "t[8]", "read of t[8]", "t[i"),
    ],
)
def test_the_caret_marks_the_element_if_one_can_be_meant(text, column, element, what, marked):
    _, quoted, caret, *_ = lines_of(text, column, element, what)
    assert quoted == f"    7 | {text}"
    assert quoted[caret.index("^") : len(caret)] == marked


def test_tabs_are_shown_as_spaces():
    _, quoted, caret = lines_of("\t\ty[i] = 0;\t// set", 3, "y[8]", "write of y[8]")
    assert quoted == "    7 |         y[i] = 0;   // set"
    assert quoted[caret.index("^") : len(caret)] == "y[i]"


@pytest.mark.parametrize("column", [0, None, 80])
def test_a_column_outside_the_line_gets_no_caret(column):
    assert lines_of("  y[i] = 0;", column) == [
        "k.cu:7: out of bounds: read of 4 bytes",
        "    7 |   y[i] = 0;",
    ]


def test_a_door_can_show_other_paths():
    fault = faults.Race("read of 4 bytes").at(source_file="k.cu", source_line=7)
    fault.note("written here by", faults.Place(source_file="h.cuh", source_line=2, thread=(1, 0, 0), lane=1))
    first, note = ("".join(text for text, _ in line) for line in message(fault, {"k.cu": "src/k.cu"}))
    assert first.startswith("src/k.cu:7: race: ")
    assert note == "h.cuh:2: written here by thread (1, 0, 0), lane 1"


def test_a_place_without_source_shows_the_ptx():
    fault = faults.Misaligned("misaligned read").at(line=12, text="ld.global.u32 %r1, [%rd1];")
    assert plain(fault).splitlines() == ["PTX line 12: misaligned read", "   12 | ld.global.u32 %r1, [%rd1];"]


# ---- names of elements -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declaration", "size", "shape"),
    [
        ("__shared__ float t[128];", 512, Shape(4, (128,))),
        ("extern __shared__ double t[];", 512, Shape(8, (64,))),
        ("__shared__ u8 t[16][32];", 512, Shape(1, (16, 32))),
        ("#define N 8\n__shared__ int t[2 * N][N];", 512, Shape(4, (16, 8))),
        ("constexpr int N = 4, M = N * 2;\n__shared__ long long t[M][(N + 4)];", 512, Shape(8, (8, 8))),
        ("template <typename T> … __shared__ T t[64];", 512, Shape(8, (64,))),
        ("__shared__ P t[4];", 512, Shape(128, (4,))),
        ("template <int N> … __shared__ float t[N];", 512, Shape(4, (128,))),
        ("__shared__ T t[N];", 512, None),
        ("__shared__ float t[N][M];", 512, None),
        ("__shared__ float t[100];", 512, None),
        ("__shared__ T t[64]; … __shared__ float t[128];", 512, Shape(4, (128,))),
        ("__shared__ int t[128]; … __shared__ short t[256];", 512, None),
        ("__shared__ float at[128];", 512, None),
        ("return t[128];", 512, None),
        ("#define N N\n__shared__ float t[N + 0];", 512, Shape(4, (128,))),
        ("__shared__ float t[1 << 7];", 512, Shape(4, (128,))),
    ],
)
def test_the_shape_of_an_array_is_read_from_its_declaration(declaration, size, shape):
    assert declared_shape("t", size, {"k.cu": declaration}) == shape


@pytest.mark.parametrize("axes", [(7,), (3, 5), (2, 3, 4)])
def test_each_element_has_the_name_of_its_indices(axes):
    names = set()
    for index in range(24 if len(axes) == 3 else 7):
        name = name_element("t", Shape(4, axes), 4 * index, 4)
        indices = [int(number) for number in re.findall(r"\[(\d+)\]", name)]
        flat = 0
        for number, extent in zip(indices, axes, strict=True):
            flat = flat * extent + number
        assert flat == index
        names.add(name)
    assert len(names) == (24 if len(axes) == 3 else 7)


@pytest.mark.parametrize(
    ("offset", "width", "name"), [(-4, 4, "t[-1]"), (40, 4, "t[10]"), (6, 2, "t[1], its bytes 2 to 3"),
                                  (8, 8, "t[2..3]"), (10, 4, "t[2], its bytes 2 to 5")],
)  # fmt: skip
def test_elements_outside_and_parts_of_elements_have_names(offset, width, name):
    assert name_element("t", Shape(4, (8,)), offset, width) == name
