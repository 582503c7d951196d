"""Packed images and filters of the ±1 convolution: packed on a device, or checked."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gpu.bconv.geometry import check_sizes
from gpu.compile import Ptx, compile_file
from gpu.device import Device, LaunchPlan, is_array, launch
from gpu.host import (
    ELEMENTS,
    adopted,
    check_words,
    choose_device,
    downloaded,
    element_of,
    in_stream,
    nan_flag,
    on_device,
    signs,
    to_device,
)
from gpu.recording import Call, call_of, made_or_recorded, play
from reference.errors import FormatError, SchemeError
from reference.types import First, PackedTensor, TensorLayout, Word
from reference.types.packed import (
    FILTER_LAYOUTS,
    FIRSTS,
    IMAGE_LAYOUTS,
    LAYOUTS,
    WORD_DTYPES,
    WORDS,
    parts_of,
    words_shape,
)

MEANINGS = {"x": LAYOUTS["NHWC"].axes, "w": LAYOUTS["HWOI"].axes}


def pack_tensor(
    x: Any,
    *,
    layout: TensorLayout,
    word: Word = 32,
    first: First = "lsb",
    device: Device | None = None,
) -> PackedTensor:
    """Binarize images or filters and pack them along their channels, on a device.

    Answers the same as `reference.pack_tensor`.

    Parameters
    ----------
    x : (N, H, W, C) images or (R, S, C, O) filters, of float64, float32, float16, bfloat16 or int8
        A host array, or a device array (this device's, or any with a CUDA array interface or DLPack).
    layout : "NHWC" for images, "HWOI" for filters
    word : a word size of `reference.types.PackedTensor`
    first : "lsb"
    device : Device, optional
        Default: the operand's own, or the first CUDA device.

    Returns
    -------
    PackedTensor
        With words on the host for a host array, on the device for a device array.

    Raises
    ------
    ShapeError, DtypeError, SchemeError, NoGpuError
    NotANumberError
        At once for a host array; for a device array at the device's next synchronisation.

    Notes
    -----
    Source: BSTC (SC'19), section 5.2.

    Examples
    --------
    >>> import simwarp
    >>> images = np.array([1.0, -1.0, -0.0]).reshape(1, 1, 1, 3)
    >>> pack_tensor(images, layout="NHWC", device=simwarp.Device()).words
    array([[[[5]]]], dtype=uint32)
    """
    call: Call | None = None
    if layout.__class__ is first.__class__ is str and word.__class__ is int:
        call = call_of(("pack_tensor", layout, word, first), (x,), device, None)
        packed = play(call)
        if packed is not None:
            return packed
    for option, given, known in (
        ("layout", layout, ("NHWC", "HWOI")),
        ("word", word, WORDS),
        ("first", first, ("lsb",)),
    ):
        if given not in known:
            raise SchemeError(
                f"{option}={given!r} is not packed on a device\n{' and '.join(map(repr, known))} can be\n"
                "choose one, or use reference.pack_tensor"
            )
    device, _, (x,) = adopted(device, None, x)
    if call is not None:

        def make(device: Device) -> Any:
            return pack_on_device(tensor(x, "x", LAYOUTS[layout].axes), "x", layout, word, device).words

        shape = cast("tuple[int, int, int, int]", tuple(x.shape))
        finish = partial(PackedTensor, shape=shape, layout=layout, word=word, first="lsb")
        return made_or_recorded(call.device.plans, call, make, finish)
    x = tensor(x, "x", LAYOUTS[layout].axes)
    device = in_stream(choose_device(device, x), None, x)
    packed = pack_on_device(x, "x", layout, word, device)
    return packed if on_device(x) else replace(packed, words=downloaded(packed.words, x=x))


def tensor(x: Any, name: str, meaning: str) -> Any:
    """Check a real tensor; a host array gets the native byte order, a device array stays as it is."""
    return signs(x, name, meaning, partial(check_sizes, meaning=meaning))


def pack_on_device(x: Any, name: str, layout: TensorLayout, word: Word, device: Device) -> PackedTensor:
    """Pack checked images ("NHWC") or filters ("HWOI"); the words stay on the device."""
    source = to_device(x, name, device)
    shape = cast("tuple[int, int, int, int]", tuple(source.shape))
    words = device.allocate(words_shape(layout, word, shape), WORD_DTYPES[word], f"words of {name}")
    channels = shape[LAYOUTS[layout].along]
    pieces = -(-channels // word) * (word // 32)
    if layout == "NHWC":
        kernel, sizes = "pack_images", (shape[0] * shape[1] * shape[2], channels, pieces)
    else:
        kernel, sizes = "pack_filters", (shape[0] * shape[1], channels, shape[3], pieces)

    def plan() -> LaunchPlan:
        ptx = packing_ptx(element_of(source), device.compute_capability).text
        grid = (-(-(math.prod(sizes) // channels) // 128), 1, 1)  # a thread packs a piece of 32 channels
        return LaunchPlan(ptx, kernel, grid, (128, 1, 1), (None, None, *sizes, None))

    launch(device, (kernel, source.dtype, sizes), plan, source, words, nan_flag(device))
    return PackedTensor(words, shape, layout, word, "lsb")


def packing_ptx(element: str, arch: tuple[int, int]) -> Ptx:
    """The packing kernels for one element type, compiled."""
    return compile_file("bconv/pack_tensor.cu", {f"ELEMENT_{ELEMENTS[element]}": ""}, arch)


def check_packed(x: PackedTensor, name: str) -> None:
    """Refuse a packed tensor whose words do not fit its shape, layout and word size."""
    check_sizes(x.shape, name, MEANINGS[name])
    _check_format(x, name)
    check_words(x, name, words_shape(x.layout, x.word, x.shape), _described(x, name))
    if not is_array(x.words):
        _refuse_padding(x, name)
    elif x.words.pointer % 16:
        raise FormatError(
            f"the words of {name} begin at address {x.words.pointer:#x} of the device\n"
            "kernels load 16 bytes at once, from multiples of 16\ncopy them to an array of their own"
        )


def _described(x: PackedTensor, name: str) -> str:
    """Shape, layout and word size of a packed tensor, for messages."""
    return f"{MEANINGS[name]} = {tuple(x.shape)} packed {x.layout} in words of {x.word} bits"


def _check_format(x: PackedTensor, name: str) -> None:
    """Refuse a layout, word size or bit order that this operand cannot have."""
    layouts = IMAGE_LAYOUTS if name == "x" else FILTER_LAYOUTS
    words = LAYOUTS[x.layout].words if x.layout in layouts else WORDS
    for option, given, known in (
        ("layout", x.layout, layouts),
        ("word", x.word, words),
        ("first", x.first, FIRSTS),
    ):
        if given not in known:
            raise FormatError(
                f"{name} of {MEANINGS[name]} = {tuple(x.shape)} is packed with {option}={given!r}\n"
                f"{', '.join(map(repr, known))} are known\nrepack it with one of them"
            )


def _refuse_padding(x: PackedTensor, name: str) -> None:
    """Refuse 1 bits past the last channel, image or filter, which kernels would count like any other."""
    lines = lines_of(x)
    n, channels = (x.shape[0], x.shape[3]) if name == "x" else (x.shape[3], x.shape[2])
    width = 8 * lines.dtype.itemsize
    full, rest = divmod(channels, width)
    past = ((1 << width) - 1) >> rest << rest if x.first == "lsb" else ((1 << width) - 1) >> rest
    one: Any = lines.dtype.type
    partial = rest and (lines[..., full] & one(past)).any()
    if partial or lines[..., full + bool(rest) :].any() or (x.layout != "NHWC" and lines[..., n:, :].any()):
        raise FormatError(
            f"{name} has bits past its edge that are not 0\n"
            f"{_described(x, name)} ends at channel {channels}\nclear them"
        )


def lines_of(x: PackedTensor) -> npt.NDArray[Any]:
    """View host words of any layout as (…, images, filters or pixels, numbers in the order of channels)."""
    words: npt.NDArray[Any] = np.asarray(x.words)
    if LAYOUTS[x.layout].tile:
        h, w, eights, units = words.shape[:4]
        return words.transpose(0, 1, 2, 4, 3, 5).reshape(h, w, 8 * eights, 4 * units)
    lines = words.swapaxes(2, 3) if x.layout == "HWIO" else words
    if not parts_of(x.word):
        return lines
    return lines[..., :: -1 if x.first == "msb" else 1].reshape(*lines.shape[:-2], -1)


def regrouped(x: PackedTensor, name: str, word: Word) -> PackedTensor:
    """The same bits in words of another size, for layouts with the channels last.

    On a device other words are a view of the memory, which must have their size; on the host zeros are added.
    """
    if x.word == word:
        return x
    channels = x.shape[3 if name == "x" else 2]
    expected = words_shape(x.layout, word, x.shape)
    pieces = -(-channels // 32)
    if is_array(x.words):
        if math.prod(expected) * (word // 8) != x.words.nbytes:
            raise FormatError(
                f"{name} is on the device, {_described(x, name)}\n"
                f"the scheme takes words of {word}, which are {'more' if word > x.word else 'fewer'} bytes\n"
                f"repack it with word={word}" + f", or choose a scheme for {x.word}" * (not parts_of(x.word))
            )
        words = x.words.view(expected, np.dtype(f"u{word // 8}"))
        return PackedTensor(words, x.shape, x.layout, word, x.first)
    halved = np.ascontiguousarray(x.words, WORD_DTYPES[x.word].newbyteorder("<")).view("<u4")
    padded = np.zeros((*expected[:-1], expected[-1] * (word // 32)), "<u4")
    padded[..., :pieces] = halved.reshape(*expected[:-1], -1)[..., :pieces]
    return PackedTensor(padded.view(f"u{word // 8}"), x.shape, x.layout, word, x.first)
