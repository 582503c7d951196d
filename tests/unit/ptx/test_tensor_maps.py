"""Tensor maps as values: the driver's refusals, their bytes, and where a copy reads and writes."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.devices.tensor_map import DATA_TYPES, Im2col, TensorMap, data_type_of, extent_of
from reference.errors import DtypeError, FormatError, SchemeError, ShapeError
from simwarp import tensormaps
from simwarp.fragments.swizzles import swizzled
from support.offenders import every_case

MATRIX = TensorMap("float16", 4096, (100, 60), (208,), (64, 16), (1, 1), swizzle=128)
IMAGES = TensorMap(
    *("float16", 4096, (16, 9, 7, 3), (32, 288, 2048), (), (1, 1, 1, 1)),
    im2col=Im2col((-1, -1), (-1, -1), 8, 20),
)
VOLUMES = TensorMap(
    *("float32", 4096, (8, 5, 4, 3, 2), (32, 160, 640, 1920), (), (1,) * 5),
    im2col=Im2col((-1, 0, -1), (-1, 0, 1), 4, 33),
)
SLICES = TensorMap("float16", 4096, (3, 10, 8, 2), (1280, 160, 3840), (2, 4, 3, 1), (1,) * 4, interleave=16)


# ------------------------------------------------------------------------------------------- refusals

REFUSED = {
    "unknown data type": (MATRIX, {"data_type": "complex64"}, DtypeError, "complex64"),
    "data type of sm_100": (MATRIX, {"data_type": "16U4_ALIGN8B"}, DtypeError, "needs sm_100"),
    "unknown interleave": (MATRIX, {"interleave": 8}, SchemeError, "interleave is 8"),
    "swizzle of sm_103": (MATRIX, {"swizzle": 96}, SchemeError, "need sm_100"),
    "unknown promotion": (MATRIX, {"l2_promotion": 32}, SchemeError, "l2_promotion is 32"),
    "unknown fill": (MATRIX, {"fill": "ones"}, SchemeError, "fill is 'ones'"),
    "NaN of integers": (replace(MATRIX, data_type="uint16"), {"fill": "nan"}, DtypeError, "fill is 'nan'"),
    "no dimension": (MATRIX, {"shape": ()}, ShapeError, "0 dimensions"),
    "six dimensions": (MATRIX, {"shape": (1,) * 6}, ShapeError, "6 dimensions"),
    "interleave of two": (MATRIX, {"interleave": 16}, ShapeError, "16 bytes with 2 dimensions"),
    "im2col of two": (MATRIX, {"im2col": Im2col((), (), 8, 8)}, ShapeError, "im2col with 2 dimensions"),
    "strides": (MATRIX, {"strides": (208, 416)}, ShapeError, "2 strides, 2 dimensions"),
    "element strides": (MATRIX, {"element_strides": (1,)}, ShapeError, "1 element strides"),
    "address": (MATRIX, {"address": 4104}, ShapeError, "must be a multiple of 16"),
    "address of slices": (
        SLICES,
        {"address": 4112, "interleave": 32, "swizzle": 32},
        ShapeError,
        "must be a multiple of 32",
    ),
    "empty dimension": (MATRIX, {"shape": (100, 0)}, ShapeError, "has 0 elements"),
    "long dimension": (MATRIX, {"shape": (2**32 + 1, 1)}, ShapeError, "4294967297 elements"),
    "stride of 8": (MATRIX, {"strides": (200,)}, ShapeError, "a stride of 200 bytes"),
    "stride of slices": (
        SLICES,
        {"interleave": 32, "swizzle": 32, "strides": (1280, 176, 3840)},
        ShapeError,
        "a stride of 176 bytes",
    ),
    "stride of 2^40": (MATRIX, {"strides": (2**40,)}, ShapeError, "below 2\\^40"),
    "box of one dimension": (MATRIX, {"box": (64,)}, ShapeError, "a box of 1 dimensions"),
    "empty box": (MATRIX, {"box": (64, 0)}, ShapeError, "a box of 0 elements"),
    "box of 257": (MATRIX, {"box": (64, 257)}, ShapeError, "a box of 257 elements"),
    "inner box": (MATRIX, {"box": (63, 16)}, ShapeError, "126 bytes in the innermost"),
    "inner box and swizzle": (MATRIX, {"swizzle": 64}, ShapeError, "128 bytes .* the swizzle 64"),
    "step of 0": (MATRIX, {"element_strides": (1, 0)}, ShapeError, "element stride of 0"),
    "step of 9": (MATRIX, {"element_strides": (1, 9)}, ShapeError, "element stride of 9"),
    "first step of slices": (SLICES, {"element_strides": (9, 1, 1, 1)}, ShapeError, "element stride of 9"),
    "interleave and swizzle": (SLICES, {"interleave": 32}, SchemeError, "pass swizzle=32"),
    "one corner": (IMAGES, {"im2col": Im2col((0,), (0, 0), 8, 8)}, ShapeError, "the lower corner"),
    "upper corner of four": (IMAGES, {"im2col": Im2col((0, 0), (0, 128), 8, 8)}, ShapeError, "the upper"),
    "lower corner of five": (VOLUMES, {"im2col": Im2col((0, 0, -17), (0,) * 3, 4, 8)}, ShapeError, "-16, 15"),
    "no pixel": (IMAGES, {"im2col": Im2col((5, 0), (-5, 0), 8, 8)}, ShapeError, "leave no pixel"),
    "channels": (IMAGES, {"im2col": Im2col((0, 0), (0, 0), 257, 8)}, ShapeError, "257 channels"),
    "no pixels": (IMAGES, {"im2col": Im2col((0, 0), (0, 0), 8, 0)}, ShapeError, "0 pixels"),
    "1025 pixels": (IMAGES, {"im2col": Im2col((0, 0), (0, 0), 8, 1025)}, ShapeError, "1025 pixels"),
    "inner channels": (IMAGES, {"im2col": Im2col((0, 0), (0, 0), 7, 8)}, ShapeError, "make it 8 elements"),
}


@every_case("name", REFUSED)
def test_what_the_driver_refuses_is_refused(name):
    tensor, change, kind, words = REFUSED[name]
    with pytest.raises(kind, match=words) as caught:
        replace(tensor, **change).check()
    assert 2 <= len(str(caught.value).splitlines()) <= 3


@pytest.mark.parametrize("tensor", [MATRIX, IMAGES, VOLUMES, SLICES])
def test_what_the_driver_takes_is_taken(tensor):
    tensor.check()
    replace(tensor, element_strides=tuple(8 if i else 1 for i in range(tensor.rank))).check()
    replace(tensor, shape=tuple(2**32 for _ in tensor.shape)).check()
    replace(tensor, strides=tuple(2**40 - 16 for _ in tensor.strides), fill="nan").check()


def test_the_first_element_stride_counts_with_an_interleave_only():
    replace(MATRIX, element_strides=(99, 1)).check()


def test_numpy_types_have_data_types():
    assert [data_type_of(t) for t in ("bool", "int8", "int16", "float64")] == [
        *("uint8", "uint8", "uint16", "float64")
    ]
    with pytest.raises(DtypeError, match="elements of complex64"):
        data_type_of("complex64")


def test_the_extent_of_a_tensor_ends_with_its_last_element():
    assert extent_of(MATRIX) == 59 * 208 + 200
    assert extent_of(SLICES) == 3840 + 2 * 1280 + 7 * 160 + 9 * 16 + 16


# ---------------------------------------------------------------------------------------------- bytes


@pytest.mark.parametrize("tensor", [MATRIX, IMAGES, VOLUMES, SLICES])
def test_a_map_comes_back_from_its_bytes(tensor):
    data = tensormaps.encode(tensor)
    assert len(data) == tensormaps.SIZE == 128
    assert tensormaps.decode(data) == tensor
    large = replace(tensor, address=2**64 - 64, shape=(2**32,) * tensor.rank, fill="nan", l2_promotion=256)
    for kind in DATA_TYPES:
        assert tensormaps.decode(tensormaps.encode(replace(large, data_type=kind))) == replace(
            large, data_type=kind
        )


def test_foreign_bytes_are_refused():
    for data in (bytes(128), bytes(range(128)), b"", tensormaps.encode(MATRIX)[:64]):
        with pytest.raises(FormatError, match="not a tensor map of this simulator"):
            tensormaps.decode(data)


@pytest.mark.parametrize("at", [7, 8, 40, 99, 120, 127])
def test_an_overwritten_map_is_refused(at):
    data = bytearray(tensormaps.encode(MATRIX))
    data[at] ^= 1
    with pytest.raises(FormatError, match="overwritten"):
        tensormaps.decode(bytes(data))


def test_fields_are_replaced():
    changes = [
        ("global_address", 8192, 0, {"address": 8192}),
        ("box_dim", 8, 1, {"box": (64, 8)}),
        ("global_dim", 7, 0, {"shape": (7, 60)}),
        ("global_dim", 0, 1, {"shape": (100, 2**32)}),
        ("global_stride", 512, 0, {"strides": (512,)}),
        ("element_stride", 2, 1, {"element_strides": (1, 2)}),
        ("elemtype", 10, 0, {"data_type": "bfloat16"}),
        ("elemtype", 8, 0, {"data_type": "float32_ftz"}),
        ("interleave_layout", 1, 0, {"interleave": 16}),
        ("swizzle_mode", 2, 0, {"swizzle": 64}),
        ("fill_mode", 1, 0, {"fill": "nan"}),
        ("rank", 0, 0, {"shape": (100,), "strides": (), "box": (64,), "element_strides": (1,)}),
    ]
    for field, value, ordinal, wanted in changes:
        assert tensormaps.replaced(MATRIX, field, value, ordinal) == replace(MATRIX, **wanted), field
    assert tensormaps.replaced(MATRIX, "rank", 3).shape == (100, 60, 1, 1)
    for field, value, ordinal in (
        ("elemtype", 13, 0),
        ("swizzle_mode", 4, 0),
        ("box_dim", 1, 2),
        ("rank", 5, 0),
    ):
        with pytest.raises(FormatError, match="expected 0 to"):
            tensormaps.replaced(MATRIX, field, value, ordinal)


# ------------------------------------------------------------------------------------ where a copy goes


def bytes_of(tensor, coordinates, offsets=(), start=0, width=0):
    """Byte of the tile in shared memory → its global address, or None outside the tensor."""
    units = tensormaps.units_of(tensor, coordinates, offsets, width)
    assert units.width & (units.width - 1) == 0
    assert not (units.addresses[units.inside] % np.uint64(units.width)).any()
    at = swizzled(np.uint64(start) + units.offsets, tensor.swizzle)
    found = {}
    for unit, address, inside in zip(
        at.tolist(), units.addresses.tolist(), units.inside.tolist(), strict=True
    ):
        for byte in range(units.width):
            assert unit + byte not in found
            found[unit + byte] = address + byte if inside else None
    return found


def moved(address, span):
    """A byte's address after the swizzle, by the tables of the PTX ISA: chunk c of row r goes to c xor r."""
    rows = {0: 1, 32: 2, 64: 4, 128: 8}[span]
    row, chunk, byte = address // 128, address % 128 // 16, address % 16
    return row * 128 + (chunk ^ (row % rows)) * 16 + byte


def by_loops(tensor, rows, start):
    """The same from each row's coordinates, outermost dimension of the tile first."""
    width = tensor.interleave or tensor.inner * tensor.itemsize
    pitch = tensor.interleave or max(width, tensor.swizzle)
    found = {}
    for i, at in enumerate(rows):
        for byte in range(width):
            first = at[0] if tensor.interleave else at[0] + byte // tensor.itemsize
            inside = all(0 <= x < n for x, n in zip((first, *at[1:]), tensor.shape, strict=True))
            if tensor.interleave:
                address = first * tensor.strides[0] + at[1] * tensor.interleave + byte
                address += sum(x * s for x, s in zip(at[2:], tensor.strides[1:], strict=True))
            else:
                address = first * tensor.itemsize + byte % tensor.itemsize
                address += sum(x * s for x, s in zip(at[1:], tensor.strides, strict=True))
            found[moved(start + i * pitch + byte, tensor.swizzle)] = (
                tensor.address + address if inside else None
            )
    return found


def boxed(tensor, coordinates):
    """The coordinates of each row of a tiled box, in the tile's order."""
    axes = [
        range(c, c + n, s) for c, n, s in zip(coordinates, tensor.box, tensor.element_strides, strict=True)
    ]
    order = (
        (tensor.rank - 1, 0, *range(tensor.rank - 2, 0, -1))
        if tensor.interleave
        else range(tensor.rank - 1, 0, -1)
    )
    for chosen in itertools.product(*(axes[k] for k in order)):
        at = dict(zip(order, chosen, strict=True))
        yield tuple(at.get(k, coordinates[0]) for k in range(tensor.rank))


@st.composite
def tiled(draw):
    """A map of small extents, with coordinates inside, at the edges and far outside."""
    rank = draw(st.integers(1, 5))
    kind = draw(st.sampled_from(["uint8", "float16", "int32", "float64"]))
    size = DATA_TYPES[kind][0]
    interleave = draw(st.sampled_from([0, 0, 16, 32])) if rank > 2 else 0
    swizzle = 32 if interleave == 32 else draw(st.sampled_from([0, 32, 64, 128]))
    chunks = draw(st.integers(1, (swizzle or 64) // 16))
    inner = draw(st.integers(1, 3)) if interleave else chunks * 16 // size
    tensor = TensorMap(
        kind,
        32 * draw(st.integers(0, 9)),
        tuple(draw(st.integers(1, 40 if not i else 9)) for i in range(rank)),
        tuple(32 * draw(st.integers(0, 40)) for _ in range(rank - 1)),
        (inner, *(draw(st.integers(1, 4)) for _ in range(rank - 1))),
        tuple(draw(st.integers(1, 3)) if i or interleave else 1 for i in range(rank)),
        *(interleave, swizzle),
    )
    return tensor, tuple(draw(st.integers(-6, n + 4)) for n in tensor.shape)


@settings(max_examples=60)
@given(tiled(), st.integers(0, 9))
def test_a_tiled_copy_goes_where_loops_over_its_coordinates_do(drawn, tile):
    tensor, coordinates = drawn
    tensor.check()
    found = bytes_of(tensor, coordinates, start=128 * tile)
    assert found == by_loops(tensor, boxed(tensor, coordinates), 128 * tile)
    copied, span = tensormaps.tile_bytes(tensor)
    assert copied == len(found)
    rows = {
        at - 128 * tile
        for at in bytes_of(replace(tensor, swizzle=32 if tensor.interleave == 32 else 0), coordinates)
    }
    assert span >= copied
    assert tensor.swizzle or span == len(rows)


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_short_rows_of_a_swizzled_tile_lie_a_span_apart(swizzle):
    tensor = replace(MATRIX, box=(8, 3), swizzle=swizzle)
    assert tensormaps.tile_bytes(tensor) == (48, 2 * swizzle + 16)
    rows = [moved(i * swizzle, swizzle) for i in range(3)]
    assert sorted(bytes_of(tensor, (0, 0))) == sorted(row + byte for row in rows for byte in range(16))


def test_units_are_as_wide_as_edges_allow():
    def width(inner, at):
        tensor = TensorMap("float32", 4096, (inner, 8), (256,), (32, 2), (1, 1))
        return tensormaps.units_of(tensor, (at, 0)).width

    assert [width(64, 0), width(64, 48), width(62, 48), width(61, 48), width(64, 3), width(61, 0)] == [
        *(16, 16, 8, 4, 4, 16)
    ]
    assert tensormaps.units_of(replace(MATRIX, box=(64, 1)), (0, 0), width=2).addresses.size == 64


def visited(tensor, coordinates, offsets):
    """The pixels of an im2col copy, by stepping W, then H and D, then the image."""
    box = tensor.im2col
    at = list(coordinates)
    for _ in range(box.pixels):
        yield (at[0], *(x + o for x, o in zip(at[1:-1], offsets, strict=True)), at[-1])
        for i in range(1, tensor.rank):
            if i == tensor.rank - 1:
                at[i] += 1
                break
            at[i] += tensor.element_strides[i]
            if at[i] <= tensor.shape[i] - 1 + box.upper[i - 1]:
                break
            at[i] = box.lower[i - 1]


@st.composite
def im2col(draw):
    rank = draw(st.integers(3, 5))
    extents = [draw(st.integers(1, 6)) for _ in range(rank - 2)]
    lower = tuple(draw(st.integers(-2, 0)) for _ in extents)
    upper = tuple(draw(st.integers(low - n + 1, 2)) for n, low in zip(extents, lower, strict=True))
    tensor = TensorMap(
        *("float16", 4096, (draw(st.integers(4, 20)), *extents, 3)),
        tuple(16 * draw(st.integers(1, 50)) for _ in range(rank - 1)),
        (),
        (1, *(draw(st.integers(1, 3)) for _ in extents), 1),
        swizzle=draw(st.sampled_from([0, 64])),
        im2col=Im2col(lower, upper, 8 * draw(st.integers(1, 2)), draw(st.integers(1, 60))),
    )
    where = [draw(st.integers(low, n - 1 + up)) for n, low, up in zip(extents, lower, upper, strict=True)]
    coordinates = (8 * draw(st.integers(-1, 2)), *where, draw(st.integers(0, 3)))
    return tensor, coordinates, tuple(draw(st.integers(0, 3)) for _ in extents)


@settings(max_examples=60)
@given(im2col())
def test_an_im2col_copy_goes_where_steps_through_its_box_do(drawn):
    tensor, coordinates, offsets = drawn
    tensor.check()
    tensormaps.check_coordinates(tensor, coordinates, offsets)
    found = bytes_of(tensor, coordinates, offsets)
    assert found == by_loops(tensor, visited(tensor, coordinates, offsets), 0)


@pytest.mark.parametrize("stride", [1, 2])
def test_an_im2col_copy_unfolds_images_for_a_convolution(stride):
    """All positions of a 3 × 3 filter with padding 1 on 2 images of 5 × 6, by an unfold of padded images."""
    images = np.arange(1, 2 * 5 * 6 * 8 + 1, dtype=np.uint16).reshape(2, 5, 6, 8)
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    high, wide = (len(range(0, n, stride)) for n in (5, 6))
    box = Im2col((-1, -1), (-1, -1), 8, 2 * high * wide)
    tensor = TensorMap("uint16", 0, (8, 6, 5, 2), (16, 96, 480), (), (1, stride, stride, 1), im2col=box)
    for r, s in itertools.product(range(3), range(3)):
        found = bytes_of(tensor, (0, -1, -1, 0), (s, r))
        flat = np.append(images.reshape(-1).view(np.uint8), np.uint8(0))
        tile = flat[[-1 if found[at] is None else found[at] for at in sorted(found)]].view(np.uint16)
        wanted = padded[:, r : r + 5 : stride, s : s + 6 : stride]
        assert tile.tolist() == wanted.reshape(-1).tolist()


WRONG = {
    "too few coordinates": (MATRIX, (1,), (), False, "1 coordinates, a tensor map of 2"),
    "inside of 16 bytes": (MATRIX, (2, 0), (), False, "must lie at a multiple of 16 bytes"),
    "negative store": (MATRIX, (0, -1), (), True, "must not be negative"),
    "im2col offset": (IMAGES, (0, 0, 0, 0), (0, 256), False, "expected 0 to 255"),
    "before the box": (IMAGES, (0, -2, 0, 0), (0, 0), False, "outside the box"),
    "behind the box": (IMAGES, (0, 0, 6, 0), (0, 0), False, "outside the box"),
    "store beyond images": (IMAGES, (0, 0, 0, 0), (), True, "must stay within the image"),
    "im2col of slices": (replace(IMAGES, interleave=16), (0, 0, 0, 0), (0, 0), False, "not simulated"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_coordinates_are_refused(name):
    tensor, coordinates, offsets, stores, words = WRONG[name]
    with pytest.raises(ShapeError, match=words):
        tensormaps.check_coordinates(tensor, coordinates, offsets, stores)


def test_coordinates_at_the_edges_are_taken():
    tensormaps.check_coordinates(MATRIX, (-8, 10**6))
    tensormaps.check_coordinates(IMAGES, (0, -1, -1, 0), (255, 255))
    tensormaps.check_coordinates(IMAGES, (0, 7, 5, 2), (0, 0))
    inner = replace(IMAGES, im2col=Im2col((1, 0), (0, -1), 8, 4))
    tensormaps.check_coordinates(inner, (0, 1, 0, 0), (), stores=True)
