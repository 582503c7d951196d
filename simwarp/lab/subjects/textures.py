"""Compares random reads of textures on a device with the simulator's, bit for bit.

Each case is a texture, with its own form, texels and sampler, and one launch that reads it at many places.
The simulator executes the same PTX. Tests replay a few cases without a GPU.

>>> from simwarp import Device
>>> case = drawn(0)
>>> answer(Device(), case).shape == (PLACES, 4)
True
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.devices.texture import FORMATS
from simwarp.device.device import Device
from simwarp.lab.crew import Lost, perform
from simwarp.lab.evidence.probe import head
from simwarp.lab.recording import Answers, Asking, Subject

Array: TypeAlias = npt.NDArray[Any]

CASES, PLACES, REPLAYED, TOGETHER = 6000, 2048, 48, 20
"""Textures, places at which each is read, textures that tests replay, and those of one task."""
SEED, SHOWN = 1, 3
SORTS = ("geometries", "texels", "filters", "operations")
_MODES = ("clamp", "border", "wrap", "mirror")
_FLOATS = ("unit", "signed", "wide", "bits", "special")
_SPECIAL = (
    0,
    -0.0,
    1,
    -1,
    np.inf,
    -np.inf,
    np.nan,
    1e-40,
    -1e-40,
    3e38,
    -3e38,
    1e-38,
    1e20,
    2**31,
    2**24 + 2,
)
_DIMENSIONS = {"linear": 1, "1d": 1, "2d": 2, "3d": 3, "a1d": 1, "a2d": 2, "cube": 3, "acube": 3, "rows": 2}
"""Geometry → coordinates without a layer; "rows" is linear memory in two dimensions."""


@dataclass(frozen=True)
class Case:
    """A texture or image, and the coordinates at which one launch reads it."""

    geometry: str  # a name of `_DIMENSIONS`
    operation: str  # "tex", "fetch" (integer coordinates), or "tld4.r" … "tld4.a"
    texels: Array  # the host array that becomes an image, or linear memory
    channels: int
    options: dict[str, Any]  # arguments of `gpu.device.Device.texture`
    places: Array  # (fetches, coordinates), the layer first; floats, or int32 for integer coordinates
    layers: Array  # (fetches,) of int32

    @property
    def opcode(self) -> str:
        """The PTX instruction that reads the texture, such as "tex.2d.v4.f32.f32"."""
        named = {"linear": "1d", "rows": "2d"}.get(self.geometry, self.geometry)
        kind = self.texels.dtype.kind
        is_float = kind == "f" or self.options["read_mode"] == "normalized"
        result = "f32" if is_float else f"{'s' if kind == 'i' else 'u'}32"
        base = "tex" if self.operation in ("tex", "fetch") else self.operation
        return f"{base}.{named}.v4.{result}.{'s32' if self.operation == 'fetch' else 'f32'}"


def drawn(number: int) -> Case:
    """Random case ``number``, always the same: a texture, its modes and the coordinates to read."""
    rng = np.random.default_rng([SEED, number])
    operation = rng.choice(["tex", "tex", "tex", "tex", "fetch", "tld4"])
    operation = operation if operation != "tld4" else f"tld4.{rng.choice([*'rgba'])}"
    known = {"tex": "1d 2d 3d a1d a2d cube acube rows", "fetch": "linear 2d 3d a1d a2d rows"}
    geometry = str(rng.choice(known.get(operation, "2d a2d cube acube rows").split()))
    dtype = np.dtype(str(rng.choice([*FORMATS, "float32"])))
    narrow = dtype.kind != "f" and dtype.itemsize < 4
    read_mode = "normalized" if narrow and rng.random() < 0.7 else "element"
    is_float = dtype.kind == "f" or read_mode == "normalized"
    filtered = is_float and geometry != "linear" and rng.random() < 0.7
    channels = int(rng.choice([1, 2, 4]))
    shape = _shape(rng, geometry, channels * dtype.itemsize)
    texels = _texels(rng, dtype, shape if channels == 1 else (*shape, channels))
    options: dict[str, Any] = {
        "address_mode": tuple(str(mode) for mode in rng.choice(_MODES, 3)),
        "filter_mode": "linear" if filtered else "point",
        "read_mode": read_mode,
        "normalized": bool(rng.random() < 0.5),
        "border": tuple(rng.choice([0, 1, -0.5, 0.25, 0.7, 1e10], 4).tolist()),
    }
    places = _places(rng, geometry, shape, options["normalized"], operation == "fetch")
    layers = rng.integers(-2, shape[0] + 2, PLACES).astype(np.int32)
    return Case(geometry, str(operation), texels, channels, options, places, layers)


def _shape(rng: Any, geometry: str, unit: int) -> tuple[int, ...]:
    """A random shape of a texture's texels, for a geometry and a texel of ``unit`` bytes."""
    if "cube" in geometry:
        side = int(rng.integers(1, 20))
        return (6 * int(rng.integers(1, 4)) if geometry == "acube" else 6, side, side)
    most = {"linear": 3000, "1d": 60000, "a1d": 3000, "3d": 24}.get(geometry, 300)
    sizes = [int(rng.integers(1, 1 + most ** rng.choice([0.3, 1]))) for _ in range(_DIMENSIONS[geometry])]
    if geometry == "rows":
        sizes[-1] = -(-sizes[-1] * unit // 32) * 32 // unit
    layers = [int(rng.integers(1, 6))] if geometry.startswith("a") else []
    return (*layers, *sizes)


def _texels(rng: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Random texels, often special values if they are floats."""
    word = np.dtype(f"u{dtype.itemsize}")
    if dtype.kind != "f":
        return rng.integers(0, np.iinfo(word).max, shape, word, endpoint=True).view(dtype)
    with np.errstate(all="ignore"):
        kind = rng.choice(_FLOATS)
        if kind == "bits":
            return rng.integers(0, np.iinfo(word).max, shape, word, endpoint=True).view(dtype)
        if kind == "special":
            return rng.choice(np.array(_SPECIAL[:12], np.float32), shape).astype(dtype)
        values = rng.standard_normal(shape) * 100 if kind != "unit" else rng.random(shape)
        if kind == "wide":
            span = 30 if dtype == np.float32 else 4
            values = values * 10.0 ** rng.integers(-span, span, shape)
        return values.astype(dtype)


def _places(rng: Any, geometry: str, shape: tuple[int, ...], normalized: bool, integers: bool) -> Array:
    """Coordinates inside and outside a texture, many of them at ties of rounding."""
    if "cube" in geometry:
        directions = rng.standard_normal((PLACES, 3)) * 10.0 ** rng.integers(-3, 4, (PLACES, 1))
        directions[: PLACES // 4] = rng.integers(-4, 5, (PLACES // 4, 3))
        return np.where((directions == 0).all(axis=1, keepdims=True), 1.0, directions).astype(np.float32)
    sizes = np.array(shape[::-1][: _DIMENSIONS[geometry]])
    if integers:
        return (rng.integers(-2, sizes + 3, (PLACES, sizes.size))).astype(np.int32)
    texels: Array = rng.uniform(-1.5 * sizes - 1, 2.5 * sizes + 1, (PLACES, sizes.size))
    grid = rng.integers(-2 * sizes, 3 * sizes, texels.shape) + rng.integers(0, 513, texels.shape) / 512
    texels = np.where(rng.random(texels.shape) < 0.5, texels, np.asarray(grid))
    places: Array = (texels / sizes if normalized else texels).astype(np.float32)
    beside = np.nextafter(places, rng.choice(np.array([-9e9, 9e9], np.float32), places.shape))
    places = np.where(rng.random(places.shape) < 0.2, beside, places)
    special = rng.choice(np.array(_SPECIAL, np.float32), places.shape)
    return np.where(rng.random(places.shape) < 0.01, special, places)


def text(case: Case) -> str:
    """The PTX of the kernel that reads a case's texture at every coordinate."""
    words = [f"%c{i}" for i in range(case.places.shape[1])]
    given = ["%layer"] * case.geometry.startswith("a") + words
    given += given[-1:] * (len(given) == 3)
    kind = "b32" if case.operation == "fetch" else "f32"
    loads = "".join(
        f"ld.global.b32 %layer, [%in+{4 * i}]; mov.b32 {word}, %layer;\n" for i, word in enumerate(words)
    )
    return f"""{head()}.visible .entry read(
.param .u64 t, .param .u64 in, .param .u64 layers, .param .u64 out) {{
.reg .b64 %t, %in, %out, %layers; .reg .b32 %i, %layer, %d<4>; .reg .{kind} %c<4>;
ld.param.u64 %t, [t]; ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; ld.param.u64 %layers, [layers];
mov.u32 %i, %ctaid.x; mad.lo.u32 %i, %i, 128, 0; mov.u32 %layer, %tid.x; add.u32 %i, %i, %layer;
mad.wide.u32 %in, %i, {4 * len(words)}, %in;
mad.wide.u32 %out, %i, 16, %out; mad.wide.u32 %layers, %i, 4, %layers;
{loads}ld.global.b32 %layer, [%layers];
{case.opcode} {{%d0, %d1, %d2, %d3}}, [%t, {{{", ".join(given)}}}];
st.global.v4.b32 [%out], {{%d0, %d1, %d2, %d3}};
ret; }}
"""


def answer(device: Any, case: Case) -> Array:
    """(places, 4) uint32: the components that a device reads at each coordinate of a case."""
    if case.geometry in ("linear", "rows"):
        source = device.upload(case.texels)
        texture = device.texture(source, channels=case.channels, **case.options)
    else:
        layered, cubemap = case.geometry.startswith("a"), "cube" in case.geometry
        image = device.upload_image(case.texels, channels=case.channels, layered=layered, cubemap=cubemap)
        texture = device.texture(image, **case.options)
    places, layers = device.upload(case.places), device.upload(case.layers)
    out = device.allocate((PLACES, 4), np.uint32)
    device.kernel(text(case), "read")(PLACES // 128, 128, texture, places, layers, out)
    return out.download()


def digest_of(answers: Sequence[Array]) -> str:
    """The SHA-256 of the results of several cases, in hexadecimal."""
    return hashlib.sha256(b"".join(hashlib.sha256(found.tobytes()).digest() for found in answers)).hexdigest()


def question() -> str:
    """The SHA-256 of the inputs and kernels of the cases that tests replay."""
    found = hashlib.sha256()
    for number in range(REPLAYED):
        case = drawn(number)
        for part in (case.texels, case.places, case.layers):
            found.update(part.tobytes())
        found.update(f"{text(case)} {case.options} {case.texels.shape}".encode())
    return found.hexdigest()


def again(device: Any) -> str:
    """The digest of a device's results for the cases that tests replay."""
    return digest_of([answer(device, drawn(number)) for number in range(REPLAYED)])


def compare(chip: Any, numbers: Sequence[int]) -> tuple[list[Array], dict[str, Counter[str]], list[str]]:
    """Compare cases on a chip with the simulator: the chip's results, counts, and differences.

    Cubes are counted apart: there a chip divides by an approximate reciprocal.
    """
    sorts = {name: Counter[str]() for name in ("counts", *SORTS)}
    answers, differences = list[Array](), list[str]()
    for number in numbers:
        case = drawn(number)
        theirs, ours = answer(chip, case), answer(Device(), case)
        wrong, of = int((theirs != ours).any(axis=1).sum()), "cube_" * ("cube" in case.geometry)
        sorts["counts"].update({"textures": 1, f"{of}reads": PLACES, f"{of}mismatches": wrong})
        for name, sort in zip(SORTS, _sorts(case), strict=True):
            sorts[name][sort] += 1
        answers.append(theirs)
        if wrong and not of:
            differences.append(_described(number, case, theirs, ours))
    return answers, sorts, differences[:SHOWN]


def _sorts(case: Case) -> tuple[str, ...]:
    """The sorts that a case counts for: geometry, dtype, filter and operation."""
    return case.geometry, str(case.texels.dtype), case.options["filter_mode"], case.operation.split(".")[0]


def _described(number: int, case: Case, found: Array, mine: Array) -> str:
    """A case's first read that differs between a chip and the simulator, as text."""
    wrong = (found != mine).any(axis=1)
    at = int(wrong.argmax())
    return (
        f"case {number}: {case.opcode} of {case.texels.dtype} {case.texels.shape}, {case.options}\n"
        f"{int(wrong.sum())} of {PLACES} reads differ, the first at {case.places[at]}, "
        f"layer {case.layers[at]}:\n{found[at].view(np.float32)}, the simulator {mine[at].view(np.float32)}"
    )


def ask(asking: Asking) -> Answers:
    """Compare all cases on the device and the simulator, in parallel processes."""
    count = asking.number(CASES, REPLAYED)
    parts = [(range(first, min(first + TOGETHER, count)),) for first in range(0, count, TOGETHER)]
    sorts = {name: Counter[str]() for name in ("counts", *SORTS)}
    answers, differences = list[Array](), list[str]()
    found = perform(asking.make, compare, parts, asking.processes)
    for (numbers,), part in zip(asking.each(parts), found, strict=True):
        if isinstance(part, Lost):
            differences.append(f"cases {numbers[0]} to {numbers[-1]}: no answer\n{part.reason}")
            continue
        answers += part[0]
        differences += part[2]
        for name, counter in part[1].items():
            sorts[name].update(counter)
    facts: dict[str, Any] = {"seed": SEED, **sorts["counts"]}
    facts |= {name: dict(sorted(sorts[name].items())) for name in SORTS}
    facts |= {"digest": digest_of(answers), "first": digest_of(answers[:REPLAYED])}
    return Answers(facts, ptx={"cases": question()}, differences=differences)


SUBJECTS = [Subject("textures", "12,288,000 random reads of 6,000 textures, by digest", ask)]
