"""Operands of `gpu.bconv2d` on a device, packed and arranged for the kernel of a scheme."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any, Literal, TypeAlias

from gpu.bconv.btc import is_paired, ones_of, unpaired_lines, whole_units
from gpu.bconv.geometry import ConvShape, conv_shape
from gpu.bconv.packing import MEANINGS, check_packed, pack_on_device, regrouped, tensor
from gpu.bconv.schemes import EVERY_SCHEME, AnyScheme, plan_shape
from gpu.bconv.warpgroups import WarpgroupScheme
from gpu.bmm.warpgroups import check_chip
from gpu.chips import chip_of
from gpu.device import Array, Device, planned
from gpu.host import (
    Prepared,
    check_role,
    choose_device,
    in_stream,
    prepared_for,
    refuse_nan,
    unknown,
    words_to_device,
)
from reference.errors import FormatError, SchemeError
from reference.types import PackedTensor, Word

Role: TypeAlias = Literal["x", "w"]

MOST_ADDENDS = 16
"""The most geometries of images for which filters keep their addends."""


@dataclass(eq=False)
class Addends:
    """Addends of filters, ones of images or units, and the device whose stream makes them, or None."""

    array: Array
    maker: Device | None

    def on(self, device: Device) -> Array:
        """The addends for a device; the first call in another stream waits for them."""
        if self.maker is not None and self.maker.queue != device.queue:
            self.maker.wait()
            self.maker = None
        return self.array


@dataclass(eq=False)
class PreparedTensor(Prepared):
    """An operand of `gpu.bconv2d` on a device, packed and arranged for the kernel of a scheme.

    Attributes
    ----------
    words : device array
        Packed words, units of 128 channels, units of two pixels or taps, or FSB tiles.
    shape : (int, int, int, int)
        The shape of the original tensor, without padding.
    role : "x" or "w"
        Images or filters.
    scheme : str
        The scheme that it was prepared for.
    kept : dict
        Addends of filters by geometry of the convolution, ones of images, and units of what shares them, made
        when a call needs them.
    calls : dict
        Recorded calls with these filters, whose launches take what is kept.
    device : Device
    kind : tuple
        The operand's part of the key under which launches are kept.
    """

    words: Any
    shape: tuple[int, int, int, int]
    role: Role
    scheme: str
    kept: dict[Any, Addends] = field(default_factory=dict[Any, "Addends"])
    calls: dict[Any, Any] = field(default_factory=dict[Any, Any], init=False)
    device: Device = field(init=False)
    kind: tuple[Any, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.device, self.kind = self.words.device, (self.role, self.scheme, self.shape)

    def constants(self) -> list[Any]:
        """The arrays of the operand: its words, and what it keeps."""
        return [self.words, *(each.array for each in self.kept.values())]

    def addends(self, shape: ConvShape, device: Device) -> Array:
        """The addends of these filters for a geometry with a batch of 1, as the batch does not matter."""
        return self._once(
            shape, partial(EVERY_SCHEME[self.scheme].addends, self.words, shape, device), device
        )

    def ones(self, device: Device) -> Array:
        """The 1 bits of each pixel of these images."""
        pixels = prod(self.shape[:3])
        return self._once("ones", lambda: ones_of(self.units(device), pixels, device), device)

    def units(self, device: Device) -> Array:
        """The words for kernels of warpgroups that take whole units of each pixel or tap."""
        if self.role == "x":
            paired, make = is_paired(self.shape[3], self.shape[2]), partial(whole_units, self.words, device)
        else:
            height, width, channels, _ = self.shape
            paired, make = is_paired(channels), partial(unpaired_lines, self.words, height * width, device)
        return self._once("units", make, device) if paired else self.words

    def _once(self, what: Any, make: Callable[[], Array], device: Device) -> Array:
        found = self.kept.get(what)
        if found is None:
            if device.capturing:  # its launches are not made now, so no other call may rely on them
                return make()
            found = planned(self.kept, what, lambda: Addends(make(), device), MOST_ADDENDS)
        return found.on(device)

    def __repr__(self) -> str:
        return f"PreparedTensor({self.role} of shape {self.shape} for {self.scheme})"


def prepare_tensor(
    x: Any, role: Role, *, scheme: str = "auto", device: Device | None = None
) -> PreparedTensor:
    """Check, pack and arrange an operand of `gpu.bconv2d`; see `gpu.prepare`."""
    x = operand(x, role)
    device = in_stream(choose_device(device, x), None, x)
    chosen = choose_scheme(scheme, x, x, device, lambda: _alone(x, role, device))
    refuse_nan(**{role: x})
    return placed(x, role, chosen, device)


def operand(x: Any, name: Role) -> Any:
    """Check an operand: a real tensor, `PackedTensor` or a `PreparedTensor`."""
    if isinstance(x, Prepared):
        check_role(x, name, PreparedTensor, "bconv2d takes images as x and filters as w")
        return x
    if not isinstance(x, PackedTensor):
        return tensor(x, name, MEANINGS[name])
    check_packed(x, name)
    return x


def choose_scheme(name: Any, x: Any, w: Any, device: Device, shape: Any, *, bits: bool = False) -> AnyScheme:
    """The scheme of that name; for "auto" that of a prepared operand, else the plan's for ``shape()``."""
    if isinstance(name, str) and name in EVERY_SCHEME:
        check_chip(EVERY_SCHEME[name], device.compute_capability, "btc1")
        return EVERY_SCHEME[name]
    if not isinstance(name, str) or name != "auto":
        raise unknown("scheme", name, (*EVERY_SCHEME, "auto"))
    for prepared in (x, w):
        if isinstance(prepared, PreparedTensor):
            return EVERY_SCHEME[prepared.scheme]
    packed = [one for one in (x, w) if isinstance(one, PackedTensor)]
    word: Word = 64 if any(one.word == 64 for one in packed) else 32
    layouts = tuple(one.layout for one in packed)
    return plan_shape(shape(), layouts, word, device.compute_capability, bits=bits).scheme


def placed(x: Any, name: Role, scheme: AnyScheme, device: Device) -> PreparedTensor:
    """Pack and arrange a checked operand on the device, for the kernel of a scheme."""
    if isinstance(x, PreparedTensor):
        if x.scheme != scheme.name:
            raise prepared_for(x, name, scheme.name)
        return x
    is_real = not isinstance(x, PackedTensor) and not (name == "x" and is_paired(x.shape[3], x.shape[2]))
    if name == "x" and is_real and isinstance(scheme, WarpgroupScheme):
        shape, words, ones = scheme.packed_images(x, device)
        return PreparedTensor(words, shape, name, scheme.name, {"ones": Addends(ones, device)})
    packed = _packed(x, name, scheme, device)
    return PreparedTensor(scheme.arranged(packed, device), packed.shape, name, scheme.name)


def _alone(x: Any, role: Role, device: Device) -> ConvShape:
    """A geometry for choosing the scheme of one operand when the other operand is irrelevant."""
    if role == "w":
        return conv_shape((1, *x.shape[:3]), x.shape)
    if "bconv64" in chip_of(device.compute_capability).convolutions and x.shape[3] > 32:
        raise SchemeError(
            "scheme='auto' for x depends on w on this device\n"
            "bconv32 is for up to 32 filters, bconv64 for more\n"
            "give one of them as scheme="
        )
    return conv_shape(x.shape, (1, 1, x.shape[3], 1))


def _packed(x: Any, name: Role, scheme: AnyScheme, device: Device) -> PackedTensor:
    """Pack a checked operand on the device, along its channels; refuse packed words of another layout."""
    layouts = scheme.images if name == "x" else scheme.filters
    if not isinstance(x, PackedTensor):
        return pack_on_device(x, name, layouts[0], scheme.word, device)
    if x.layout not in layouts or x.first != "lsb":
        raise FormatError(
            f"{name} of {MEANINGS[name]} = {x.shape} is packed with layout={x.layout!r}, first={x.first!r}\n"
            f"{scheme.name} takes layout={' or '.join(map(repr, layouts))} with first='lsb'\n"
            "repack it with that layout and order, or choose another scheme"
        )
    return words_to_device(regrouped(x, name, scheme.word), name, device)
