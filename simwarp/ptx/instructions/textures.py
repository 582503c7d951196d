"""PTX ISA 9.7.10 and 9.7.11: reads of textures, reads and writes of surfaces, and their sizes.

`simwarp.engine.memory.textures` executes them. A texture or surface is named by its 64-bit handle, as CUDA's
``cudaTextureObject_t`` and ``cudaSurfaceObject_t``; variables of type ``.texref`` are not supported.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from simwarp.ptx import kinds
from simwarp.ptx.instructions.table import nothing, row
from simwarp.ptx.rows import Form

_BOUNDARIES = "<.trap|.clamp|.zero>"
_TYPES = "u32 s32 f32"
_BITS = "b8 b16 b32 b64"
GEOMETRIES = ("1d", "2d", "3d", "a1d", "a2d", "cube", "acube")
_ANY = f"<{'|'.join(f'.{name}' for name in GEOMETRIES)}>"
_PLANES = "<.1d|.2d|.3d|.a1d|.a2d>"


def geometry_of(form: Form) -> str:
    """The geometry that an opcode names, such as "a2d"."""
    return next(word for word in form.modifiers if word in GEOMETRIES)


def _cube_of_integers(words: Sequence[str], _: str, coordinates: str) -> bool:
    """Whether an opcode reads a cube map at integer coordinates, which PTX forbids."""
    return coordinates == "s32" and not {"cube", "acube"}.isdisjoint(words)


def _wide(words: Sequence[str], kind: str, _: str) -> bool:
    """Whether a vector operand is wider than 128 bits."""
    return "v4" in words and kind == "b64"


_texture = partial(row, kind=kinds.TEXTURE, section="9.7.10.3", T=_TYPES, lacks=_cube_of_integers)
_texture(
    f"tex{{.base}}{_ANY}<.v4>.T.U",
    "d:T|p:pred = [t:texture]",
    U="f32 s32",
    name="tex",
    summary="the value of a texture at coordinates; the predicate is true",
)(nothing)
_texture(
    f"tex<.level>{_ANY}<.v4>.T.f32",
    "d:T|p:pred = [t:texture], level:b32",
    name="tex.level",
    summary="the value of a texture in a mipmap level; textures here have one",
)(nothing)
_texture(
    f"tex<.grad>{_ANY}<.v4>.T.f32",
    "d:T|p:pred = [t:texture], dx:gradient, dy:gradient",
    name="tex.grad",
    summary="the value of a texture in the mipmap level of a gradient; textures here have one",
)(nothing)
_texture(
    "tld4<.r|.g|.b|.a><.2d|.a2d|.cube|.acube><.v4>.T.f32",
    "d:T|p:pred = [t:texture]",
    kind=kinds.TEXTURE_GATHER,
    section="9.7.10.4",
    name="tld4",
    summary="one channel of the four texels that a linear filter would mix",
)(nothing)

_surface = partial(row, T=_BITS, wider=True, lacks=_wide)
_surface(
    f"suld.b{_PLANES}{{.ca|.cg|.cs|.cv}}{{.v2|.v4}}.T{_BOUNDARIES}",
    "d:T = [s:surface]",
    kind=kinds.SURFACE_LOAD,
    section="9.7.11.1",
    name="suld.b",
    summary="the bits of a surface; x counts bytes",
)(nothing)
_surface(
    f"sust.b{_PLANES}{{.wb|.cg|.cs|.wt}}{{.v2|.v4}}.T{_BOUNDARIES}",
    "[s:surface], b:T",
    kind=kinds.SURFACE_STORE,
    section="9.7.11.2",
    name="sust.b",
    summary="write bits to a surface; x counts bytes",
)(nothing)

row(
    "txq<.width|.height|.depth>.b32",
    "d:b32 = [t:handle]",
    kind=kinds.TEXTURE_QUERY,
    section="9.7.10.5",
    name="txq",
    summary="a size of a texture in texels, or its layers",
)(nothing)
row(
    "suq<.width|.height|.depth>.b32",
    "d:b32 = [s:handle]",
    kind=kinds.SURFACE_QUERY,
    section="9.7.11.4",
    name="suq",
    summary="a size of a surface in texels, or its layers",
)(nothing)
