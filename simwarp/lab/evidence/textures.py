"""Probes of textures and surfaces: each thread reads at coordinates computed from its operands.

What they read is drawn from its form; a store goes to a texel of the thread's own, and is read back.
"""

from __future__ import annotations

from simwarp.lab.evidence.probe import Picture, Probe, Writer
from simwarp.ptx.instructions.textures import geometry_of
from simwarp.ptx.rows import Form, Row

_SIZES = {"1d": (256,), "2d": (16, 16), "3d": (4, 8, 8), "a1d": (4, 64), "a2d": (4, 8, 8)}
"""Geometry → the shape of 256 texels."""
_TEXTURES = {**_SIZES, "linear": (10,), "1d": (8,), "2d": (7, 9), "cube": (6, 8, 8), "acube": (12, 8, 8)}
"""Geometry → the shape of a texture."""
_TEXELS = {"f32": "float32", "u32": "uint16", "s32": "int8"}
"""Type of a result → that of the texels."""
_COUNT = 256


def read(row: Row, form: Form) -> Probe:
    """Probe a texture: the four words at coordinates within 16 texels of the thread's own."""
    writer, geometry = Writer(form.opcode), geometry_of(form)
    integers = form.U == "s32"
    names = _coordinates(writer, form, integers)
    filtered = form.T == "f32" and not integers
    which = "linear" if geometry == "1d" and integers else geometry
    words = [writer.register(f"d{k}", form.T) for k in range(4)]
    more = ""
    if form.has("level"):
        more = f", {_number(writer, 'level', integers=False)}"
    if form.has("grad"):
        one = ", ".join([_number(writer, "slope", integers=False)] * _width(geometry))
        more = f", {{{one}}}, {{{one}}}"
    writer.declare("b64 t")
    writer.line(
        "ld.param.u64 %t, [picture];",
        f"{form.opcode} {{{', '.join(words)}}}, [%t, {{{', '.join(names)}}}]{more};",
    )
    writer.give(form.T, *(f"d{k}" for k in range(4)))
    picture = Picture(
        which, _TEXTURES[which], _TEXELS[form.T], 4 if filtered else 2, "linear" if filtered else "point"
    )
    return writer.probe(picture=picture, count=_COUNT)


def _width(geometry: str) -> int:
    """The number of elements in the vector of a gradient: 1, 2 or 4."""
    dimensions = 3 if "cube" in geometry else int(geometry[-2])
    return 4 if dimensions == 3 else dimensions


def _coordinates(writer: Writer, form: Form, integers: bool) -> list[str]:
    """The registers of the coordinates, layer first, padded as PTX requires."""
    geometry = geometry_of(form)
    layered, dimensions = geometry.startswith("a"), 3 if "cube" in geometry else int(geometry[-2])
    names = [_number(writer, "layer", integers=True)] if layered else []
    names += [_number(writer, axis, integers) for axis in "xyz"[:dimensions]]
    return [*names, names[-1]] if len(names) == 3 else names


def _number(writer: Writer, name: str, integers: bool) -> str:
    """A register with an integer from -4 to 11, or such a float in steps of 1/4096."""
    writer.take(name, "b32")
    target = writer.register(f"{name}_", "b32")
    if integers:
        writer.line(f"and.b32 {target}, %{name}, 15; add.s32 {target}, {target}, -4;")
        return target
    writer.line(
        f"and.b32 {target}, %{name}, 65535; cvt.rn.f32.u32 {target}, {target};",
        f"fma.rn.f32 {target}, {target}, 0f39800000, 0fC0800000;",
    )
    return target


def load(row: Row, form: Form) -> Probe:
    """The bits of a surface at the texel that the operand numbers."""
    writer = Writer(form.opcode)
    place = _texel(writer, form, writer.take("a", "b32"))
    names = [writer.register(f"d{k}", form.T) for k in range(form.vector)]
    writer.line(f"{form.opcode} {{{', '.join(names)}}}, {place};")
    writer.give(form.T, *(f"d{k}" for k in range(form.vector)))
    return writer.probe(picture=_surface(geometry_of(form)), count=_COUNT)


def store(row: Row, form: Form) -> Probe:
    """The bits of the thread's own texel, after a store."""
    writer = Writer(form.opcode)
    values = [writer.take(f"b{k}", form.T) for k in range(form.vector)]
    place = _texel(writer, form, "%i")
    writer.line(f"{form.opcode} {place}, {{{', '.join(values)}}};")
    names = [writer.register(f"d{k}", "b32") for k in range(4)]
    back = f"suld.b.{geometry_of(form)}.v4.b32.trap"
    writer.line(f"{back} {{{', '.join(names)}}}, {place};")
    writer.give("b32", *(f"d{k}" for k in range(4)))
    return writer.probe(picture=_surface(geometry_of(form)), count=_COUNT)


def _surface(geometry: str) -> Picture:
    """A surface of a geometry whose texels have 16 bytes."""
    return Picture(geometry, _SIZES[geometry], "uint32", 4, "")


def _texel(writer: Writer, form: Form, left: str) -> str:
    """The address of the texel with the number in a register."""
    geometry = geometry_of(form)
    writer.declare("b64 t, b32 x y z")
    writer.line("ld.param.u64 %t, [picture];")
    sizes = _SIZES[geometry]
    names: list[str] = []
    for name, size in zip("xyz", reversed(sizes), strict=False):
        writer.line(f"and.b32 %{name}, {left}, {size - 1};")
        if len(names) + 1 < len(sizes):
            writer.register("left", "b32")
            writer.line(f"shr.u32 %left, {left}, {size.bit_length() - 1};")
            left = "%left"
        names.append(f"%{name}")
    writer.line("shl.b32 %x, %x, 4;")
    if geometry.startswith("a"):
        names = [names[-1], *names[:-1]]
    names = [*names, names[-1]] if len(names) == 3 else names
    return f"[%t, {{{', '.join(names)}}}]"


def query(row: Row, form: Form) -> Probe:
    """A probe of ``txq`` or ``suq``: a size or attribute of a texture or surface."""
    writer = Writer(form.opcode)
    writer.take("a", "b32")
    writer.declare("b64 t, b32 d")
    writer.line("ld.param.u64 %t, [picture];", f"{form.opcode} %d, [%t];")
    writer.give("b32", "d", "a")
    picture = Picture("3d", _SIZES["3d"], "float32", 1, "point" if row.base == "txq" else "")
    return writer.probe(picture=picture, count=_COUNT)
