"""Textures and surfaces on the simulator: values, places that are refused, and faults."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simwarp
from gpu.compile import compile as compile_text
from oracles import scalar_textures as oracle
from reference.errors import SimwarpError
from simwarp import faults
from simwarp.run import Out, Surface, Texture, run
from support.offenders import every_case


@pytest.fixture
def rng():
    return np.random.default_rng(7)


MODES = ("clamp", "border", "wrap", "mirror")
HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"
KERNEL = (
    HEAD
    + """.visible .entry k(.param .u64 t, .param .u64 in, .param .u64 out) {{
.reg .b64 %t, %in, %out; .reg .b32 %i, %d<4>, %w<4>; .reg .f32 %c<4>; .reg .pred %p; .reg .b64 %l<4>;
.reg .b16 %h<4>;
ld.param.u64 %t, [t]; ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %i, %tid.x;
mad.wide.u32 %in, %i, 16, %in; mad.wide.u32 %out, %i, 16, %out;
ld.global.v4.b32 {{%w0, %w1, %w2, %w3}}, [%in]; ld.global.v4.f32 {{%c0, %c1, %c2, %c3}}, [%in];
mov.b32 %d0, 0; mov.b32 %d1, 0; mov.b32 %d2, 0; mov.b32 %d3, 0;
{}
st.global.v4.b32 [%out], {{%d0, %d1, %d2, %d3}};
ret; }}
"""
)
D4 = "{%d0, %d1, %d2, %d3}"


def execute(body, make, words, dtype=np.uint32, **device):
    """Run a body in one thread for each row of words; ``make(device)`` gives the texture or surface."""
    chip = simwarp.Device(**device)
    words = np.asarray(words)
    words = words.astype(np.float32) if words.dtype.kind == "f" else words
    handle = make(chip)
    rows = np.zeros((len(words), 4), words.dtype)
    rows[:, : words.shape[1]] = words
    out = chip.allocate((len(words), 4), np.uint32)
    chip.load(KERNEL.format(body)).kernel("k")(1, len(words), handle, chip.upload(rows), out)
    return out.download().view(dtype), chip, handle


def texture(texels, channels=1, layered=False, cubemap=False, **options):
    def make(chip):
        image = chip.upload_image(texels, "image", channels=channels, layered=layered, cubemap=cubemap)
        return chip.texture(image, **options)

    return make


def surface(texels, **form):
    return lambda chip: chip.surface(chip.upload_image(texels, "image", **form))


def read(geometry, coordinates, result="f32"):
    return f"tex.{geometry}.v4.{result}.f32 {D4}, [%t, {{{coordinates}}}];"


ONE, TWO, THREE = read("1d", "%c0"), read("2d", "%c0, %c1"), read("3d", "%c0, %c1, %c2, %c2")

# ---- values against exact arithmetic -----------------------------------------------------------------------


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(1,), (5,), (4, 7), (1, 8), (3, 4, 5)])
def test_reads_equal_exact_arithmetic(shape, mode, normalized, rng):
    """At sixteenths of a texel the weights are exact; sizes are powers of two where they are normalised."""
    if normalized:
        shape = tuple(1 << n.bit_length() - 1 for n in shape)
    texels = rng.integers(-50, 50, shape).astype(np.float32)
    sizes, body = shape[::-1], {1: ONE, 2: TWO, 3: THREE}[len(shape)]
    places = np.array([rng.integers(-32 * n, 48 * n, 200) / 16 for n in sizes]).T
    places = (places / sizes if normalized else places).astype(np.float32)
    modes = (mode, *[mode] * (len(shape) - 1), *["clamp"] * (3 - len(shape)))
    options = {"address_mode": modes, "normalized": normalized, "border": 3.0}
    for filter_mode, exact in (("point", oracle.point), ("linear", oracle.linear)):
        found, _, _ = execute(body, texture(texels, filter_mode=filter_mode, **options), places, np.float32)
        for at, got in zip(places, found[:, 0], strict=True):
            right = exact(texels, sizes, at, modes[: len(sizes)], normalized, 3)
            bound = Fraction(0) if len(shape) < 3 or filter_mode == "point" else Fraction(3 * 100, 256)
            bound = Fraction(2 * 100, 256) if len(shape) == 2 and filter_mode == "linear" else bound
            assert abs(Fraction(float(got)) - right) <= bound, (at, got, float(right))


@pytest.mark.slow
@given(st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=32), st.sampled_from(MODES), st.booleans())
def test_a_linear_read_is_near_the_exact_mean(places, mode, normalized):
    """The weight is rounded to 1/256, and a normalised coordinate to 2^-21."""
    texels = np.array([3, -7, 20, 0, 11, 5], np.float32)
    options = {
        "address_mode": (mode, "clamp"),
        "filter_mode": "linear",
        "normalized": normalized,
        "border": -4.0,
    }
    words = np.array(places, np.float32)[:, None]
    found, _, _ = execute(ONE, texture(texels, **options), words, np.float32)
    for at, got in zip(words[:, 0], found[:, 0], strict=True):
        right = oracle.linear(texels, (6,), (at,), (mode,), normalized, -4)
        assert abs(float(got) - float(right)) <= 30 * (1 / 512 + 6 * 2.0**-20)


def test_integers_become_floats():
    for dtype, numbers, right in (
        (np.uint8, [0, 51, 255], [0, 0.2, 1]),
        (np.int8, [-128, -127, 127], [-1, -1, 1]),
        (np.uint16, [0, 13107, 65535], [0, 0.2, 1]),
        (np.int16, [-32768, -32767, 32767], [-1, -1, 1]),
    ):
        texels = np.array(numbers, dtype)
        for filter_mode in ("point", "linear"):
            make = texture(texels, read_mode="normalized", filter_mode=filter_mode)
            found, _, _ = execute(ONE, make, [[0.5], [1.5], [2.5]], np.float32)
            assert np.allclose(found[:, 0], right, atol=1e-7)


@pytest.mark.parametrize("channels", [1, 2, 4])
@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float32"]
)
def test_elements_and_missing_channels(dtype, channels):
    texels = (np.arange(4 * channels).reshape(4, -1) * 3 - (0 if dtype[0] == "u" else 5)).astype(dtype)
    texels = texels[:, 0] if channels == 1 else texels
    result = "f32" if dtype[0] == "f" else f"{dtype[0].replace('i', 's')}32"
    words = np.arange(4, dtype=np.float32)[:, None] + np.float32(0.5)
    make = texture(texels, channels=channels)
    kind = {"f": np.float32, "u": np.uint32, "i": np.int32}[dtype[0]]
    found, _, _ = execute(read("1d", "%c0", result), make, words, kind)
    assert (found[:, :channels] == texels.reshape(4, -1)).all()
    assert (found[:, channels:] == 0).all()


def test_layers_cubes_and_gathers():
    layers = np.arange(3 * 4 * 5, dtype=np.float32).reshape(3, 4, 5)
    words = np.array([[0, 2.5, 1.5], [2, 0.5, 3.5]], np.float32)
    body = "cvt.rzi.u32.f32 %w0, %c0;" + read("a2d", "%w0, %c1, %c2, %c2")
    found, _, _ = execute(body, texture(layers, layered=True), words, np.float32)
    assert found[:, 0].tolist() == [layers[0, 1, 2], layers[2, 3, 0]]
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    body = "mov.b32 %w0, -1;" + read("a1d", "%w0, %c1")
    assert (
        execute(body, texture(rows, layered=True), words, np.float32)[0][0, 0] == rows[1, 2]
    )  # the last layer
    faces = np.arange(6 * 4, dtype=np.float32).reshape(6, 2, 2)
    axes = np.array(
        [(1, 0.5, 0.5), (-1, 0.5, 0.5), (0.5, 1, 0.5), (0.5, -1, 0.5), (0.5, 0.5, 1), (0.5, 0.5, -1)]
    )
    found, _, _ = execute(
        read("cube", "%c0, %c1, %c2, %c2"), texture(faces, cubemap=True), axes.astype("f4"), "f4"
    )
    assert (found[:, 0] // 4).tolist() == [0, 1, 2, 3, 4, 5]
    both = np.concatenate([faces, faces + 100])
    body = "mov.b32 %w3, 1;" + read("acube", "%w3, %c0, %c1, %c2")
    again, _, _ = execute(body, texture(both, cubemap=True, layered=True), axes.astype("f4"), "f4")
    assert (again[:, 0] == found[:, 0] + 100).all()
    plane = np.arange(12, dtype=np.float32).reshape(3, 4)
    body = f"tld4.r.2d.v4.f32.f32 {D4}, [%t, {{%c0, %c1}}];"
    found, _, _ = execute(body, texture(plane), np.array([[2.0, 2.0]], np.float32), np.float32)
    assert found[0].tolist() == [plane[2, 1], plane[2, 2], plane[1, 2], plane[1, 1]]


def test_integer_coordinates_give_zero_outside():
    texels = np.arange(1, 11, dtype=np.float32).reshape(2, 5)
    body = f"tex.2d.v4.f32.s32 {D4}, [%t, {{%w0, %w1}}];"
    words = np.array([[4, 1], [5, 1], [-1, 0], [0, 2]], np.int32)
    found, _, _ = execute(body, texture(texels, filter_mode="linear"), words, np.float32)
    assert found[:, 0].tolist() == [10, 0, 0, 0]
    body = f"tex.1d.v4.f32.s32 {D4}, [%t, {{%w0}}];"
    linear = lambda chip: chip.texture(chip.upload(texels.reshape(-1)))  # noqa: E731
    assert execute(body, linear, words, np.float32)[0][:, 0].tolist() == [5, 6, 0, 1]


def test_linear_memory_in_two_dimensions(rng):
    texels = rng.random((6, 16), dtype=np.float32)
    words = rng.uniform(-2, 18, (64, 2)).astype(np.float32)
    plane = execute(TWO, texture(texels, filter_mode="linear"), words)[0]
    rows = execute(TWO, lambda chip: chip.texture(chip.upload(texels), filter_mode="linear"), words)[0]
    assert (plane == rows).all()


def test_forms_of_mipmapped_reads_use_the_only_level():
    texels = np.arange(20, dtype=np.float32).reshape(4, 5)
    words = np.array([[1.5, 2.5, 0.7]], np.float32)
    for body in (
        f"tex.level.2d.v4.f32.f32 {D4}, [%t, {{%c0, %c1}}], %c2;",
        f"tex.grad.2d.v4.f32.f32 {D4}, [%t, {{%c0, %c1}}], {{%c2, %c2}}, {{%c2, %c2}};",
        f"tex.base.2d.v4.f32.f32 {D4}, [%t, {{%c0, %c1}}];",
    ):
        assert execute(body, texture(texels), words, np.float32)[0][0, 0] == texels[2, 1]


def test_the_predicate_of_a_read_is_true():
    body = f"tex.1d.v4.f32.f32 {D4}|%p, [%t, {{%c0}}]; selp.b32 %d3, 7, 8, %p;"
    found, _, _ = execute(body, texture(np.ones(4, np.float32)), np.zeros((2, 1), np.float32))
    assert found[:, 3].tolist() == [7, 7]


def test_sizes():
    form = np.zeros((2, 3, 5), np.float32)
    for base, make in (("txq", texture(form)), ("suq", surface(form, layered=True))):
        body = "".join(
            f"{base}.{name}.b32 %d{i}, [%t];" for i, name in enumerate(("width", "height", "depth"))
        )
        assert execute(body, make, np.zeros((1, 1), np.float32))[0][0, :3].tolist() == [5, 3, 2]


# ---- surfaces ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "count"), [(8, 1), (16, 2), (32, 1), (32, 4), (64, 1), (64, 2)])
def test_surface_bytes_come_back(bits, count, rng):
    texels = rng.integers(0, 1 << 32, (4, 8), np.uint32)
    registers = {8: "%h", 16: "%h", 32: "%w", 64: "%l"}[bits]
    part = ", ".join(f"{registers}{i}" for i in range(count))
    form, width = f"2d{f'.v{count}' * (count > 1)}.b{bits}.trap", bits * count // 8
    body = (
        f"mul.lo.u32 %d0, %i, {width}; mov.u32 %d1, 1; mov.u32 %d2, 3;"
        f"suld.b.{form} {{{part}}}, [%t, {{%d0, %d1}}]; sust.b.{form} [%t, {{%d0, %d2}}], {{{part}}};"
    )
    _, _, handle = execute(body, surface(texels), np.zeros((2, 1), np.uint32))
    after = handle.download().view(np.uint8)
    assert (after[3, : 2 * width] == texels.view(np.uint8)[1, : 2 * width]).all()
    assert (after[3, 2 * width :] == texels.view(np.uint8)[3, 2 * width :]).all()


def test_boundaries_of_a_surface():
    texels = np.arange(1, 13, dtype=np.uint32).reshape(3, 4)
    words = np.array([[-4, 0], [16, 1], [0, 5], [12, 2]], np.int32)
    body = "suld.b.2d.b32.{} {{%d0}}, [%t, {{%w0, %w1}}];"
    found, _, _ = execute(body.format("zero"), surface(texels), words)
    assert found[:, 0].tolist() == [0, 0, 0, 12]
    found, _, _ = execute(body.format("clamp"), surface(texels), words)
    assert found[:, 0].tolist() == [1, 8, 9, 12]
    _, _, handle = execute(
        "mov.b32 %d0, 99; sust.b.2d.b32.zero [%t, {%w0, %w1}], {%d0};", surface(texels), words
    )
    assert handle.download().tolist() == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 99]]
    with pytest.raises(faults.OutOfBounds, match=r"outside surface image") as caught:
        execute(body.format("trap"), surface(texels), words)
    assert caught.value.count == 3
    assert "x = -4 (in bytes), y = 0" in str(caught.value)
    with pytest.raises(faults.Misaligned, match="misaligned access of 4 bytes to surface image"):
        execute(body.format("zero"), surface(texels), [[2, 0]])


def test_layers_and_slices_of_a_surface():
    texels = np.arange(24, dtype=np.uint32).reshape(2, 3, 4)
    words = np.array([[1, 8, 2], [0, 4, 1]], np.int32)
    three = "suld.b.3d.b32.trap {%d0}, [%t, {%w1, %w2, %w0, %w0}];"
    layers = "suld.b.a2d.b32.trap {%d0}, [%t, {%w0, %w1, %w2, %w2}];"
    for body, form in ((three, {}), (layers, {"layered": True})):
        assert execute(body, surface(texels, **form), words)[0][:, 0].tolist() == [22, 5]
    clamp = "suld.b.a1d.b32.clamp {%d0}, [%t, {%w0, %w1}];"
    rows = texels[0]
    found, _, _ = execute(clamp, surface(rows, layered=True), np.array([[-1, 0], [9, 4]], np.int32))
    assert found[:, 0].tolist() == [rows[2, 0], rows[2, 1]]  # a layer has no sign


# ---- faults ------------------------------------------------------------------------------------------------

TEXELS = np.arange(20, dtype=np.float32).reshape(4, 5)
WRONG = {
    "never made": (TWO, lambda chip: 77, "tex of 0x4d, which is not the handle of a texture"),
    "destroyed": (TWO, lambda chip: int(texture(TEXELS)(chip)), "not the handle of a texture"),
    "a surface": (TWO, surface(TEXELS), "through the handle of a surface"),
    "a texture": (
        f"suld.b.2d.v4.b32.zero {D4}, [%t, {{%w0, %w1}}];",
        texture(TEXELS),
        "the handle of a texture",
    ),
    "geometry": (THREE, texture(TEXELS), "tex.3d at float coordinates of texture image, which is 2d"),
    "layers": (TWO, texture(TEXELS, layered=True), "which is a1d"),
    "numbers": (f"tex.1d.v4.f32.s32 {D4}, [%t, {{%w0}}];", texture(TEXELS[0]), "which is 1d"),
    "floats": (read("2d", "%c0, %c1", "u32"), texture(TEXELS), "tex of integers from texture image"),
    "integers": (TWO, texture(TEXELS.astype(np.uint8)), "tex of floats from texture image"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_handle_that_does_not_fit(name):
    body, make, words = WRONG[name]
    with pytest.raises(faults.TextureFault) as caught:
        execute(body, make, np.ones((32, 3), np.float32))
    assert words in str(caught.value)
    assert caught.value.count == 32
    _, chip, _ = execute(body, make, np.ones((32, 3), np.float32), checks="report")
    assert [type(fault) for fault in chip.faults] == [faults.TextureFault]
    execute(body, make, np.ones((32, 3), np.float32), checks={"textures": "off"})


def test_unwritten_and_freed_texels():
    empty = lambda chip: chip.texture(chip.allocate_image((4, 5), np.float32, "empty"))  # noqa: E731
    with pytest.raises(faults.UninitialisedRead, match=r"read of empty\[6\]"):
        execute(TWO, empty, np.ones((4, 2), np.float32))

    def freed(chip):
        array = chip.upload(np.zeros((4, 8), np.float32), "rows")
        handle = chip.texture(array)
        array.free()
        return handle

    with pytest.raises(faults.UseAfterFree, match="rows"):
        execute(TWO, freed, np.ones((4, 2), np.float32))


def test_a_texel_outside_with_the_border_reads_no_memory():
    empty = lambda chip: chip.texture(  # noqa: E731
        chip.allocate_image((4, 5), np.float32), address_mode="border", border=2.5
    )
    found, _, _ = execute(TWO, empty, np.full((4, 2), -3, np.float32), np.float32)
    assert (found[:, 0] == 2.5).all()


def test_races_between_stores_and_reads():
    body = "mov.b32 %d0, 0; sust.b.1d.b32.trap [%t, {%d0}], {%i};"
    with pytest.raises(faults.Race, match="image"):
        execute(body, surface(np.zeros(4, np.uint32)), np.zeros((64, 1), np.uint32))
    source = """__global__ void k(cudaTextureObject_t t, float* out) {
        out[threadIdx.x] = 1;
        out[threadIdx.x + 64] = tex1Dfetch<float>(t, 63 - threadIdx.x);
    }"""
    chip = simwarp.Device()
    array = chip.upload(np.zeros(128, np.float32), "array")
    with pytest.raises(faults.StaleRead, match=r"texture fetch of array\[") as caught:
        chip.load(compile_text(source, "k.cu")).kernel("k")(1, 64, chip.texture(array), array)
    assert (caught.value.place.source_line, caught.value.other.source_line) == (3, 2)


def test_lanes_name_different_textures(rng):
    source = """__global__ void k(const cudaTextureObject_t* t, float* out) {
        int i = blockIdx.x * 64 + threadIdx.x;
        if (i % 5) out[i] = tex2D<float>(t[i % 3], i * 0.3f, i * 0.1f);
    }"""
    planes = [rng.random((8, 9), dtype=np.float32) for _ in range(3)]
    results = []
    for workers, schedule in ((1, "lowest pc"), (2, "lowest pc"), (1, "random"), (1, "stack")):
        chip = simwarp.Device(workers=workers, schedule=schedule, chunk_lanes=64)
        handles = [chip.texture(chip.upload_image(plane), filter_mode="linear") for plane in planes]
        numbers = chip.upload(np.array([int(handle) for handle in handles], np.uint64))
        out = chip.upload(np.zeros(256, np.float32))
        chip.load(compile_text(source, "k.cu")).kernel("k")(4, 64, numbers, out)
        results.append(out.download())
    for i, found in enumerate(results[0]):
        if i % 5:
            place = np.float32(i * np.float32(0.3)), np.float32(i * np.float32(0.1))
            right = oracle.linear(planes[i % 3], (9, 8), place, ("clamp",) * 2, False)
            assert abs(found - float(right)) < 1 / 128
    assert all((found == results[0]).all() for found in results)


# ---- arguments ---------------------------------------------------------------------------------------------


def test_run_takes_textures_and_surfaces(rng):
    source = """__global__ void blur(cudaTextureObject_t in, cudaSurfaceObject_t out, int n) {
        int x = threadIdx.x, y = threadIdx.y;
        float4 a = tex2D<float4>(in, x + 0.5f, y + 0.5f);
        surf2Dwrite(make_uchar4(a.x * 255, a.y * 255, a.z * 255, n), out, x * 4, y);
    }"""
    image = rng.integers(0, 256, (8, 16, 4)).astype(np.uint8)
    picture = Texture(image, read_mode="normalized", channels=4)
    result = run(
        source=source, grid=1, block=(16, 8), args=[picture, Surface(Out("uint8", (8, 16, 4)), channels=4), 9]
    )
    found = result.outputs[1]
    assert (np.abs(found[..., :3].astype(int) - image[..., :3]) <= 1).all()
    assert (found[..., 3] == 9).all()
    changed = run(source=source, grid=1, block=(16, 8), args=[picture, Surface(image, channels=4), 9])
    assert (changed.outputs[1] == found).all()
    with pytest.raises(faults.TextureFault, match="through the handle of a texture"):
        run(source=source, grid=1, block=(16, 8), args=[picture, picture, 9])


REFUSED = {
    "sizes": lambda chip: chip.allocate_image((0, 3), np.float32),
    "four dimensions": lambda chip: chip.allocate_image((2, 2, 2, 2), np.float32),
    "too long": lambda chip: chip.allocate_image((1 << 18,), np.float32),
    "layers of one number": lambda chip: chip.allocate_image((3,), np.float32, layered=True),
    "channels": lambda chip: chip.allocate_image((4, 3), np.float32, channels=3),
    "channels elsewhere": lambda chip: chip.allocate_image((4, 3), np.float32, channels=4),
    "five faces": lambda chip: chip.allocate_image((5, 4, 4), np.float32, cubemap=True),
    "oblong faces": lambda chip: chip.allocate_image((6, 4, 5), np.float32, cubemap=True),
    "twelve faces": lambda chip: chip.allocate_image((12, 4, 4), np.float32, cubemap=True),
    "layers": lambda chip: chip.allocate_image((3000, 4, 4), np.float32, layered=True),
    "dtype": lambda chip: chip.allocate_image((4, 4), np.float64),
    "mode": lambda chip: chip.texture(chip.upload_image(TEXELS), address_mode="repeat"),
    "modes": lambda chip: chip.texture(chip.upload_image(TEXELS), address_mode=["wrap"] * 4),
    "filter": lambda chip: chip.texture(chip.upload_image(TEXELS), filter_mode="cubic"),
    "read": lambda chip: chip.texture(chip.upload_image(TEXELS), read_mode="bits"),
    "normalised floats": lambda chip: chip.texture(chip.upload_image(TEXELS), read_mode="normalized"),
    "filtered integers": lambda chip: chip.texture(
        chip.upload_image(TEXELS.astype("i4")), filter_mode="linear"
    ),
    "filtered memory": lambda chip: chip.texture(chip.upload(TEXELS[0]), filter_mode="linear"),
    "crooked rows": lambda chip: chip.texture(chip.upload(TEXELS)),
    "memory of three dimensions": lambda chip: chip.texture(chip.upload(np.zeros((2, 2, 8), np.float32))),
    "a host array": lambda chip: chip.texture(TEXELS),
    "surface of an array": lambda chip: chip.surface(chip.upload(TEXELS)),
    "surface of a long row": lambda chip: chip.surface(chip.upload_image(np.zeros(40000, np.uint8))),
    "another device": lambda chip: chip.texture(simwarp.Device().upload_image(TEXELS)),
    "upload": lambda chip: chip.upload_image(TEXELS).upload(TEXELS.T),
}


@every_case("name", REFUSED)
def test_what_cuda_does_not_have_is_refused(name):
    with pytest.raises(SimwarpError) as caught:
        REFUSED[name](simwarp.Device())
    assert len(str(caught.value).splitlines()) >= 2


def test_every_geometry_has_its_shape():
    chip = simwarp.Device()
    for shape, form, geometry in (
        ((7,), {}, "1d"),
        ((4, 7), {}, "2d"),
        ((2, 4, 7), {}, "3d"),
        ((3, 7), {"layered": True}, "a1d"),
        ((3, 4, 7), {"layered": True}, "a2d"),
        ((6, 4, 4), {"cubemap": True}, "cube"),
        ((12, 4, 4), {"cubemap": True, "layered": True}, "acube"),
    ):
        for channels in (1, 2, 4):
            whole = shape if channels == 1 else (*shape, channels)
            image = chip.allocate_image(whole, np.uint8, channels=channels, **form)
            assert (image.form.geometry, image.shape) == (geometry, whole)
            assert (
                np.prod(image.form.shape)
                == image.form.width * image.form.height * image.form.depth * channels
            )
    assert list(itertools.islice(chip.textures, 1)) == []


def test_reads_count_for_the_line_that_calls_them():
    source = """__global__ void k(cudaTextureObject_t t, float* out) {
        out[threadIdx.x] = tex1Dfetch<float>(t, threadIdx.x);
    }"""
    picture = Texture(np.ones(32, np.float32), linear=True)
    result = run(source=source, grid=1, block=32, args=[picture, Out("float32", 32)], observe="divergence")
    assert {line.partition(":")[2] for line in result.report.divergence} <= {"1", "2", "3"}
