"""Images and filters as the kernels of a scheme take them: checked, packed and arranged once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from gpu.bconv.geometry import ConvShape, conv_shape
from gpu.bconv.packing import MEANINGS, check_packed, pack_on_device, regrouped, tensor
from gpu.bconv.schemes import SCHEMES, Scheme, plan_shape
from gpu.device import Array, Device
from gpu.host import Prepared, choose_device, prepared_for, refuse_nan, unknown, words_to_device
from reference.errors import FormatError, SchemeError
from reference.types import PackedTensor, Word

Role: TypeAlias = Literal["x", "w"]

MOST_ADDENDS = 16
"""Geometries for which filters keep their addends."""


@dataclass(eq=False)
class PreparedTensor(Prepared):
    """An operand of `gpu.bconv2d` on a device, as a scheme's kernel takes it.

    Attributes
    ----------
    words : device array
        Packed words, units of 128 channels, or FSB tiles.
    shape : (int, int, int, int)
        Of the tensor that was given, without padding.
    role : "x" or "w"
        Which operand it is.
    scheme : str
        The scheme it was prepared for.
    kept : dict
        The addends of filters by geometry of the images, made at the first call.
    device : Device
    kind : tuple
        Part of a call's key: calls with equal keys do the same.
    """

    words: Any
    shape: tuple[int, int, int, int]
    role: Role
    scheme: str
    kept: dict[Any, Array] = field(default_factory=dict[Any, Array])
    device: Device = field(init=False)
    kind: tuple[Any, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.device, self.kind = self.words.device, (self.role, self.scheme, self.shape)

    def addends(self, shape: ConvShape, device: Device) -> Array:
        """The addends of these filters, for a batch of 1: they do not depend on the batch."""
        found = self.kept.get(shape)
        if found is None:
            if len(self.kept) >= MOST_ADDENDS:
                self.kept.clear()
            found = self.kept[shape] = SCHEMES[self.scheme].addends(self.words, shape, device)
        return found

    def __repr__(self) -> str:
        return f"PreparedTensor({self.role} of shape {self.shape} for {self.scheme})"


def prepare_tensor(
    x: Any, role: Role, *, scheme: str = "auto", device: Device | None = None
) -> PreparedTensor:
    """An operand of `gpu.bconv2d`, made ready; see `gpu.prepare`."""
    x = operand(x, role)
    device = choose_device(device, x)
    chosen = choose_scheme(scheme, x, x, device, lambda: _alone(x, role, device))
    refuse_nan(**{role: x})
    return placed(x, role, chosen, device)


def operand(x: Any, name: Role) -> Any:
    """An operand, checked: a real tensor, `PackedTensor` or a `PreparedTensor`."""
    if isinstance(x, PreparedTensor):
        if x.role != name:
            raise FormatError(
                f"{name} was prepared as {x.role!r}\nx are images, w are filters\n"
                f"prepare it with role={name!r}"
            )
        return x
    if isinstance(x, Prepared):
        raise FormatError(
            f"{name} is a {type(x).__name__}\nbconv2d takes images and filters\nprepare it with role={name!r}"
        )
    if not isinstance(x, PackedTensor):
        return tensor(x, name, MEANINGS[name])
    check_packed(x, name)
    return x


def choose_scheme(name: Any, x: Any, w: Any, device: Device, shape: Any) -> Scheme:
    """The scheme of that name; for "auto" that of a prepared operand, else of the plan for ``shape()``."""
    if isinstance(name, str) and name in SCHEMES:
        return SCHEMES[name]
    if not isinstance(name, str) or name != "auto":
        raise unknown("scheme", name, (*SCHEMES, "auto"))
    for prepared in (x, w):
        if isinstance(prepared, PreparedTensor):
            return SCHEMES[prepared.scheme]
    packed = [one for one in (x, w) if isinstance(one, PackedTensor)]
    word: Word = 64 if any(one.word == 64 for one in packed) else 32
    layouts = tuple(one.layout for one in packed)
    return plan_shape(shape(), layouts, word, device.compute_capability).scheme


def placed(x: Any, name: Role, scheme: Scheme, device: Device) -> PreparedTensor:
    """A checked operand as the scheme's kernel takes it, on the device."""
    if isinstance(x, PreparedTensor):
        if x.scheme != scheme.name:
            raise prepared_for(x, name, scheme.name)
        return x
    packed = _packed(x, name, scheme, device)
    return PreparedTensor(scheme.arranged(packed, device), packed.shape, name, scheme.name)


def _alone(x: Any, role: Role, device: Device) -> ConvShape:
    """A geometry for the plan of one operand alone, where the other one does not matter."""
    if role == "w":
        return conv_shape((1, *x.shape[:3]), x.shape)
    if device.compute_capability < (7, 5) and x.shape[3] > 32:
        raise SchemeError(
            "scheme='auto' for x depends on w on this device\n"
            "bconv32 is for up to 32 filters, bconv64 for more\n"
            "give one of them as scheme="
        )
    return conv_shape(x.shape, (1, 1, x.shape[3], 1))


def _packed(x: Any, name: Role, scheme: Scheme, device: Device) -> PackedTensor:
    """The operand with its channels packed, on the device."""
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
