"""Reads of textures, and reads and writes of surfaces, by the executing lanes.

A texel is read as any other memory: freed and unwritten ones are faults, and so are races with stores. What a
read makes of its texels is in `simwarp.textures`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from simwarp.engine.memory.accesses import Place as At
from simwarp.engine.memory.accesses import executing, gather, vector_of, write_memory
from simwarp.faults import Misaligned, OutOfBounds, TextureFault
from simwarp.ptx.instructions.textures import geometry_of
from simwarp.ptx.kinds import SURFACE_LOAD, SURFACE_QUERY, SURFACE_STORE, TEXTURE_GATHER, TEXTURE_QUERY
from simwarp.ptx.rows import DTYPES
from simwarp.textures import Surface, Texels, Texture
from simwarp.textures.sampling import CHANNELS, component, fetched, footprint, gathered, values

if TYPE_CHECKING:
    from simwarp.engine.state import Chunk, Mask
    from simwarp.program.program import Step
    from simwarp.textures.positions import Tap

Array: TypeAlias = npt.NDArray[Any]

_QUERIES, _OF_SURFACES = (TEXTURE_QUERY, SURFACE_QUERY), (SURFACE_LOAD, SURFACE_STORE, SURFACE_QUERY)
_FLOAT_OF = {True: "floats", False: "integers"}


def read_texture(chunk: Chunk, step: Step) -> None:
    """Execute ``tex`` or ``tld4``: four words for each executing lane."""
    results = [np.zeros(chunk.mask.shape, np.uint32) for _ in range(CHANNELS)]
    coordinates = [read(chunk) for read in step.coordinates]
    for resource in _named(chunk, step):
        texture = cast("Texture", resource)
        given = [executing(chunk, value) for value in coordinates]
        for result, words in zip(results, _read(chunk, step, texture, given), strict=True):
            result[chunk.mask] = words
    dtype = DTYPES[step.form.T]
    first, *resident = step.destinations
    if first is not None:
        first(chunk, [result.view(dtype) for result in results])
    for write in resident:
        if write is not None:
            write(chunk, np.True_)


def _read(chunk: Chunk, step: Step, texture: Texture, given: list[Array]) -> list[Array]:
    """The four components (r, g, b, a) that each executing lane reads from a texture, one array each."""
    layer = given.pop(0) if geometry_of(step.form).startswith("a") else None
    places = given[: 3 if "cube" in texture.texels.geometry else _dimensions(texture.texels)]
    if step.kind is TEXTURE_GATHER:
        taps = gathered(texture, places, layer)
        texels = [_texels(chunk, step, texture.texels, tap) for tap in taps]
        return component(texture, "rgba".index(step.form.modifiers[0]), taps, texels)
    by_number = step.form.U == "s32"
    taps = (fetched if by_number else footprint)(texture, places, layer)
    texels = [_texels(chunk, step, texture.texels, tap) for tap in taps]
    filtered = texture.sampler.filter_mode == "linear" and not by_number
    return values(texture, taps, texels, filtered=filtered)


def _dimensions(texels: Texels) -> int:
    """The number of coordinates of a texel within its layer."""
    return 1 if texels.geometry == "linear" else int(texels.geometry.removeprefix("a")[0])


def _texels(chunk: Chunk, step: Step, texels: Texels, tap: Tap) -> Array:
    """(channels, n): the texels of a tap for the executing lanes; 0 in lanes that read no texel."""
    result = np.zeros((texels.channels, chunk.count), texels.dtype)
    reads = tap.read & tap.inside
    if not reads.any():
        return result
    address = np.full(chunk.mask.shape, texels.address, np.uint64)
    address[chunk.mask] = texels.addresses(*tap.place)
    mask, alone, needed = chunk.mask, chunk.alone, chunk.needed
    if not reads.all():
        part = mask.copy()
        part[mask] = reads
        chunk.enter(part, alone=False)
    place = At("global", chunk.launch.memory, address, address)
    elements = gather(chunk, step, place, texels.dtype, texels.channels)
    result[:, reads] = [executing(chunk, element) for element in elements]
    if chunk.mask is not mask:
        chunk.enter(mask, alone, needed)
    return result


# ---- surfaces ------------------------------------------------------------------------------------


def read_surface(chunk: Chunk, step: Step) -> None:
    """Execute ``suld``: bits for each executing lane, 0 outside."""
    dtype, count = DTYPES[step.form.T], step.form.vector
    results = [np.zeros(chunk.mask.shape, dtype) for _ in range(count)]
    coordinates = [read(chunk) for read in step.coordinates]
    for resource in _named(chunk, step):
        for place in _inside(chunk, step, resource.texels, coordinates):
            loaded = gather(chunk, step, place, dtype, count)
            for result, element in zip(results, loaded, strict=True):
                np.copyto(result, element, where=chunk.mask)
    write = step.destinations[0]
    if write is not None:
        write(chunk, results if count > 1 else results[0])


def write_surface(chunk: Chunk, step: Step) -> None:
    """Execute ``sust``: bits of each executing lane, none outside."""
    dtype, count = DTYPES[step.form.T], step.form.vector
    value = step.sources[0](chunk)
    elements = [np.broadcast_to(v, chunk.mask.shape) for v in (value if count > 1 else [value])]
    data = elements[0] if count == 1 else np.stack(elements, axis=-1).view(vector_of(dtype, count))[..., 0]
    coordinates = [read(chunk) for read in step.coordinates]
    for resource in _named(chunk, step):
        for place in _inside(chunk, step, resource.texels, coordinates):
            write_memory(chunk, step, data, place.address)


def _inside(chunk: Chunk, step: Step, texels: Texels, coordinates: Sequence[Any]) -> Iterator[At]:
    """Yield the addresses of the executing lanes; report and leave out lanes outside the texture."""
    width = DTYPES[step.form.T].itemsize * step.form.vector
    x, y, z = _numbers(chunk, step, texels, coordinates)
    mask, alone, needed = chunk.mask, chunk.alone, chunk.needed
    crooked = x % width != 0
    if (crooked & mask).any():
        what = f"misaligned access of {width} bytes to surface {texels.name}"
        lane = int((crooked & mask).argmax())
        values = f"x is byte {int(x.flat[lane])}"
        fault = Misaligned(what, values, "x counts bytes: multiply it by the size of what is accessed")
        fault.width, fault.space, fault.allocation = width, "global", texels.name
        chunk.found(fault, crooked & mask)
    row = texels.width * texels.unit
    if step.form.has("clamp"):
        x, y, z = (
            np.clip(x, 0, row // width * width - width),
            np.clip(y, 0, texels.height - 1),
            _clamped(step, z, texels),
        )
    inside = (x >= 0) & (x + width <= row) & (y >= 0) & (y < texels.height) & (z >= 0) & (z < texels.depth)
    if step.form.has("trap") and (outside := mask & ~inside).any():
        _report_outside(chunk, texels, outside, (x, y, z), width)
    part = mask & inside & ~crooked
    if part.any():
        if not np.array_equal(part, mask):
            chunk.enter(part, alone=False)
        address = np.where(part, texels.addresses(x, y, z, 1), np.uint64(texels.address))
        yield At("global", chunk.launch.memory, address, address)
    if chunk.mask is not mask:
        chunk.enter(mask, alone, needed)


def _numbers(
    chunk: Chunk, step: Step, texels: Texels, coordinates: Sequence[Any]
) -> tuple[Array, Array, Array]:
    """The coordinates x in bytes, y and z of each lane; z is the layer, too."""
    given = [np.broadcast_to(value, chunk.mask.shape).astype(np.int64) for value in coordinates]
    zero = np.zeros(chunk.mask.shape, np.int64)
    geometry = geometry_of(step.form)
    if geometry.startswith("a"):
        layer, *given = given
        return (given[0], given[1] if geometry == "a2d" else zero, layer)
    return given[0], given[1] if geometry != "1d" else zero, given[2] if geometry == "3d" else zero


def _clamped(step: Step, z: Array, texels: Texels) -> Array:
    """Slice numbers clamped to the texture; layers are unsigned, so that -1 means the last one."""
    last = texels.depth - 1
    return np.where(z < 0, last if geometry_of(step.form).startswith("a") else 0, np.minimum(z, last))


def _report_outside(
    chunk: Chunk, texels: Texels, outside: Mask, place: tuple[Array, Array, Array], width: int
) -> None:
    """Report lanes whose surface access is outside the surface."""
    lane = int(outside.argmax())
    x, y, z = (int(np.broadcast_to(part, outside.shape).flat[lane]) for part in place)
    sizes = f"{texels.width * texels.unit} bytes x {texels.height} x {texels.depth}"
    fault = OutOfBounds(
        f"access of {width} byte{'s' * (width > 1)} outside surface {texels.name}",
        f"x = {x} (in bytes), y = {y}, z or layer = {z}; the surface has {sizes}",
        "check the place against the surface's size, or choose another boundary mode",
    )
    fault.width, fault.space, fault.allocation = width, "global", texels.name
    chunk.found(fault, outside)


# ---- sizes and handles ---------------------------------------------------------------------------


def query(chunk: Chunk, step: Step) -> None:
    """Execute ``txq`` or ``suq``: return a size in texels, 0 for a dimension that the texture lacks."""
    results = np.zeros(chunk.mask.shape, np.uint32)
    for resource in _named(chunk, step):
        texels = resource.texels
        flat, slices = (
            texels.geometry.removeprefix("a") in ("1d", "linear"),
            texels.geometry in ("1d", "2d", "linear"),
        )
        sizes = {
            "width": texels.width,
            "height": 0 if flat else texels.height,
            "depth": 0 if slices else texels.depth,
        }
        results[chunk.mask] = sizes[step.form.modifiers[0]]
    write = step.destinations[0]
    if write is not None:
        write(chunk, results)


def _named(chunk: Chunk, step: Step) -> Iterator[Texture | Surface]:
    """Yield each texture or surface that lanes name, while the chunk's mask holds only these lanes."""
    if step.handle is None:
        raise TypeError(f"{step.instruction.text} has no handle")
    mask, alone, needed = chunk.mask, chunk.alone, chunk.needed
    handles = np.broadcast_to(step.handle(chunk), mask.shape)
    numbers = np.unique(handles[mask]).tolist()
    for number in numbers:
        if len(numbers) > 1:
            chunk.enter(mask & (handles == number), alone=False)
        resource = chunk.launch.textures.get(number)
        problem = _problem(step, number, resource)
        if problem is not None:
            chunk.found(TextureFault(*problem), chunk.mask)
        if resource is not None and (problem is None or _goes_on(step, resource)):
            yield resource
    if chunk.mask is not mask:
        chunk.enter(mask, alone, needed)


def _goes_on(step: Step, resource: Texture | Surface) -> bool:
    """Whether a texture fetch continues after a fault of its types, reading the words unchanged."""
    return step.kind.cache == "texture" and isinstance(resource, Texture) and _fits(step, resource.texels)


def _problem(step: Step, number: int, resource: Texture | Surface | None) -> tuple[str, str, str] | None:
    """The lines of a fault if a step cannot use a handle's texture or surface; None if it can."""
    base, takes = step.row.base, "surface" if step.kind in _OF_SURFACES else "texture"
    if resource is None:
        return (
            f"{base} of {number:#x}, which is not the handle of a {takes}",
            "it was never made, or is destroyed",
            f"make the {takes} object before the launch, and keep it until the kernel has ended",
        )
    texels, has = resource.texels, "texture" if isinstance(resource, Texture) else "surface"
    if step.kind in _QUERIES:
        return None
    if takes != has:
        what, advice = f"{base} of {texels.name} through the handle of a {has}", f"pass that of a {takes}"
        return what, f"the instruction takes a {takes}", advice
    if not _fits(step, texels):
        by = {"f32": " at float coordinates", "s32": " at integer coordinates"}.get(step.form.U, "")
        sizes = " x ".join(map(str, texels.sizes))
        return (
            f"{base}.{geometry_of(step.form)}{by} of {has} {texels.name}, which is {texels.geometry}",
            f"the {has} has {sizes} texels",
            "call the function of its geometry: tex1Dfetch for linear memory, tex2DLayered for layers …",
        )
    if isinstance(resource, Texture) and resource.is_float != (step.form.T == "f32"):
        wanted, gives = _FLOAT_OF[step.form.T == "f32"], _FLOAT_OF[resource.is_float]
        return (
            f"{base} of {wanted} from texture {texels.name}, which gives {gives}",
            f"texels of {texels.dtype}, read mode {resource.sampler.read_mode}",
            "read the type that the texture has, or integers of 8 and 16 bits as normalised floats",
        )
    return None


def _fits(step: Step, texels: Texels) -> bool:
    """Whether a texture or surface has the geometry that the instruction names."""
    geometry = geometry_of(step.form)
    if step.kind.cache == "texture":
        return texels.geometry == ("linear" if geometry == "1d" and step.form.U == "s32" else geometry)
    return texels.geometry == geometry or (geometry == "a2d" and "cube" in texels.geometry)
