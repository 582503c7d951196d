"""The ±1 convolution on a device (BSTC, section 5.2; BTC, section 5.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from gpu.bconv.direct import Sum
from gpu.bconv.geometry import ConvShape, Pool, conv_shape
from gpu.bconv.groups import joined, parts_of_output, split
from gpu.bconv.prepared import MOST_ADDENDS, PreparedTensor, choose_scheme, operand, placed
from gpu.bconv.schemes import EVERY_SCHEME, AnyScheme
from gpu.bconv.warpgroups import WarpgroupScheme
from gpu.bmm.threshold import rule_on_device
from gpu.device import Device, LaunchPlan, planned
from gpu.host import (
    adopted,
    choose_device,
    downloaded,
    in_stream,
    key_of_memory,
    on_device,
    refuse_nan,
    unknown,
)
from gpu.recording import Call, call_of, made_or_recorded, play
from reference.errors import DtypeError, SchemeError, ShapeError
from reference.types import PackedTensor
from reference.types.arguments import dtype_of


def bconv2d(
    x: Any,
    w: Any,
    *,
    stride: Any = 1,
    padding: Any = "SAME",
    dilation: Any = 1,
    groups: int = 1,
    scheme: str = "auto",
    thresholds: Any = None,
    flip: Any = None,
    pool: str | None = None,
    dtype: Any = None,
    device: Device | None = None,
    stream: Any = None,
) -> Any:
    """The convolution of the signs of images with the signs of filters, on a device.

    Taps outside the image are excluded: they contribute nothing. Answers the same as `reference.bconv2d`,
    and with thresholds as `reference.threshold_tensor` of it.

    Parameters
    ----------
    x : (N, H, W, C)
    w : (R, S, C, O)
        Real tensors (float64, float32, float16, bfloat16, int8) on the host or on a device, or
        `PackedTensor` with ``first="lsb"`` in a layout of the scheme's: every scheme takes NHWC and HWOI. Or
        a result of `gpu.prepare`, which is not packed, arranged or counted again.
    stride, dilation : int or (int, int)
        Down and across.
    padding : {"SAME", "VALID"}, int, (vertical, horizontal) or ((top, bottom), (left, right))
        Names as in TensorFlow, in capitals or small letters; numbers as in PyTorch.
    groups : int
        Filter o reads the channels of group ``o // (O / groups)`` only: w has C / groups channels, and C and
        O are multiples. Each group is a convolution of its own, so operands are not prepared.
    scheme : str
        "bconv32", "bconv64", "btc1", "btc2", "wgmma" (on the warpgroups of Hopper, sm_90a), or "auto": that
        of a prepared operand, else the choice of `gpu.bconv.plan`, the fastest for chip, geometry and format.
    thresholds : (O,) integers or floats, optional
        Turn the output into bits: 1 where the dot product is at least its channel's threshold.
    flip : (O,) bool, optional
        True for channels whose bits are inverted: those with a negative γ.
    pool : "or" or "and", optional
        Pool the bits over windows of 2 x 2; a last odd row or column is dropped.
    dtype : dtype, optional
        Of the dot products: int32, and with "wgmma" int16, for windows of up to 32,767 elements.
    device : Device, optional
        Default: the operands' own, or the first CUDA device.
    stream : optional
        Where the call is queued with all that it packs and copies: a stream of the device, of torch or CuPy,
        an object with ``__cuda_stream__``, or an address. Default: torch's current stream if an operand is a
        torch tensor, else the device's default one. A torch or CuPy operand, and a result that is used in
        another stream, must be kept until the work is done; see docs/gpu.md.

    Returns
    -------
    (N, P, Q, O) of dtype, or PackedTensor
        On the host; on the device if an operand lies there. Bits are packed NHWC in words of 32 with
        ``first="lsb"``, ready to be the next convolution's x.

    Raises
    ------
    ShapeError, DtypeError, FormatError, SchemeError, NoGpuError
    NotANumberError
        At once for host arrays; for device arrays at the device's next synchronisation.

    Notes
    -----
    Source: BSTC (SC'19), section 5.2 and listing 6; BTC (TPDS'20), section 5.3 and listing 6.

    Examples
    --------
    >>> import simwarp
    >>> ones = np.ones((1, 3, 3, 1), np.int8)
    >>> bconv2d(ones, np.ones((3, 3, 1, 1), np.int8), device=simwarp.Device())[0, :, :, 0]
    array([[4, 6, 4],
           [6, 9, 6],
           [4, 6, 4]], dtype=int32)
    """
    plain = thresholds is None and flip is None and pool is None and dtype is None and groups == 1
    if plain and type(x) is PreparedTensor and type(w) is PreparedTensor:
        y = _on_their_device(x, w, (stride, padding, dilation, groups), scheme, device, stream)
        if y is not None:
            return y
    options, rule = (stride, padding, dilation, groups), (thresholds, flip)
    call, calls = _call(x, w, options, (scheme, pool, dtype), rule, device, stream)
    known = play(call, calls)
    if known is not None:
        return known
    device, stream, (x, w, *placed_rule) = adopted(device, stream, x, w, *rule)
    x, w, rule = operand(x, "x"), operand(w, "w"), (placed_rule[0], placed_rule[1])
    finish = partial(_answer, w.shape[3], thresholds is not None)
    if call is not None:
        make = partial(_made, x, w, options, scheme, pool, rule, None)
        if calls is call.device.plans:
            return made_or_recorded(calls, call, make, finish)
        return made_or_recorded(calls, call, make, finish, w.constants, MOST_ADDENDS)
    _pooling(pool, thresholds, _shape_of(x, w, *options))
    device = in_stream(choose_device(device, x, w, *rule), stream, x, w, *rule)
    y = _made(x, w, options, scheme, pool, rule, dtype, device)
    result = y if on_device(x) or on_device(w) else downloaded(y, x=x, w=w)
    return finish(result)


def _made(
    x: Any,
    w: Any,
    options: tuple[Any, ...],
    scheme: Any,
    pool: Any,
    rule: tuple[Any, Any],
    dtype: Any,
    device: Device,
) -> Any:
    """The output of a call with checked operands, as an array of the device."""
    shape, groups, bits = _shape_of(x, w, *options), options[3], rule[0] is not None
    pooling = _pooling(pool, rule[0], shape)
    chosen = choose_scheme(scheme, x, w, device, lambda: shape, bits=bits and groups == 1)
    if on_device(x) != on_device(w):  # the result is not downloaded, so the host operand is checked here
        refuse_nan(x=x, w=w)
    placed_rule = rule_on_device(*rule, w.shape[3], device)
    output = _output(dtype, chosen, shape, bits=bits)
    if groups == 1:
        images, filters = placed(x, "x", chosen, device), placed(w, "w", chosen, device)
        return _convolved(chosen, shape, pooling, output, images, filters, placed_rule, device)
    parts = filters_of_groups(w, groups, chosen, device)
    return convolved_in_groups(x, parts, shape, pooling, output, placed_rule, device)


def _answer(filters: int, bits: bool, y: Any) -> Any:
    """Dot products as they are; words of bits as a `PackedTensor`."""
    return PackedTensor(y, (*y.shape[:3], filters), "NHWC", 32, "lsb") if bits else y


def _call(
    x: Any,
    w: Any,
    options: tuple[Any, ...],
    named: tuple[Any, Any, Any],
    rule: tuple[Any, Any],
    device: Device | None,
    stream: Any,
) -> tuple[Call | None, dict[Any, Any]]:
    """A call that may be recorded, and where: with its prepared filters, or with the device's plans."""
    scheme, pool, dtype = named
    stride, padding, dilation, groups = options
    if dtype is not None or groups.__class__ is not int or groups != 1 or scheme.__class__ is not str:
        return None, {}
    usual = stride.__class__ is dilation.__class__ is int and padding.__class__ in (str, int)
    if not (usual or _is_plain(options)) or not (pool is None or pool.__class__ is str):
        return None, {}
    key = "bconv2d", *options, scheme, pool
    if w.__class__ is not PreparedTensor:
        call = call_of(key, (x, w, *rule), device, stream)
        return call, {} if call is None else call.device.plans
    if w.role != "w" or (device is not None and key_of_memory(device) != key_of_memory(w.device)):
        return None, {}
    return call_of(key, (x, *rule), device or w.device, stream), w.calls


def _convolved(
    scheme: AnyScheme,
    shape: ConvShape,
    pool: Pool,
    output: Output,
    images: PreparedTensor,
    filters: PreparedTensor,
    rule: tuple[Any, ...],
    device: Device,
) -> Any:
    """Launch the convolution of placed operands; returns the output on the device."""
    launch = _launch(scheme, shape, pool, output, device)
    y = launch.output_on(device)
    launch(device, images, filters, y, rule)
    return y


def filters_of_groups(w: Any, groups: int, scheme: AnyScheme, device: Device) -> tuple[PreparedTensor, ...]:
    """The filters of each group, arranged for a scheme."""
    return tuple(placed(part, "w", scheme, device) for part in split(w, "w", groups, scheme.word, device))


def convolved_in_groups(
    x: Any,
    filters: Sequence[PreparedTensor],
    shape: ConvShape,
    pool: Pool,
    output: Output,
    rule: tuple[Any, ...],
    device: Device,
) -> Any:
    """Convolve the channels of each group with its filters in turn; ``shape`` is the geometry of one group.

    Thresholds and pools are those of the launch that joins the groups.
    """
    scheme = EVERY_SCHEME[filters[0].scheme]
    launch = _launch(scheme, shape, "none", "int" if output == "bits" else output, device)
    whole, parts = parts_of_output(launch.size, launch.dtype, len(filters), device)
    images = split(x, "x", len(filters), scheme.word, device)
    for part, of_group, y in zip(images, filters, parts, strict=True):
        launch(device, placed(part, "x", scheme, device), of_group, y)
    return joined(whole, launch.size, rule, pool, device)


def _launch(scheme: AnyScheme, shape: ConvShape, pool: Pool, output: Output, device: Device) -> Launch:
    """The launch of a convolution, made once for a device."""
    key = "bconv2d", scheme.name, shape, pool, output
    return planned(device.plans, key, lambda: Launch(scheme, shape, pool, output, *_chip(device)))


Output: TypeAlias = Literal["int", "int16", "bits"] | Sum
"""int32, int16, bits against thresholds, or int16 to which another array is added."""

_DTYPES = {"int": np.dtype(np.int32), "int16": np.dtype(np.int16), "bits": np.dtype(np.uint32)}


@dataclass(frozen=True, eq=False)
class Launch:
    """The launch of a convolution, which depends on its geometry and not on its operands."""

    scheme: AnyScheme
    shape: ConvShape
    pool: Pool
    output: Output
    arch: tuple[int, int]
    multiprocessors: int
    early: bool = False
    """Whether filters and rule were made long before, and are read before earlier launches end."""

    @cached_property
    def size(self) -> tuple[int, int, int, int]:
        """The shape of the output's array: after pooling, and with bits in words of 32."""
        pooled = self.output.pooled if isinstance(self.output, Sum) else self.pool != "none"
        shape, half = self.shape, 1 + pooled
        last = -(-shape.filters // 32) if self.output == "bits" else shape.filters
        return shape.batch, shape.out_height // half, shape.out_width // half, last

    def output_on(self, device: Device) -> Any:
        """Allocate the output; the launch overwrites all of it."""
        return device.allocate(self.size, self.dtype, "y")

    @property
    def dtype(self) -> np.dtype[Any]:
        """The output's dtype."""
        return np.dtype(np.int16) if isinstance(self.output, Sum) else _DTYPES[self.output]

    def __call__(
        self,
        device: Device,
        images: PreparedTensor,
        filters: PreparedTensor,
        y: Any,
        rule: tuple[Any, ...] = (),
    ) -> None:
        """Launch the kernel; ``rule`` is () or (thresholds, flips) on the device.

        For sums it begins with what is added, and with bits of sums then has their array.
        """
        operands = self.scheme.operands(images, filters, self.one_image, device, self._plan.name)
        device.launch(self._plan, (*operands, y, *rule))

    @cached_property
    def _plan(self) -> LaunchPlan:
        output, chip = self.output, (self.arch, self.multiprocessors)
        if isinstance(self.scheme, WarpgroupScheme):
            return self.scheme.plan(self.shape, output, self.pool, *chip, early=self.early)
        assert not isinstance(output, Sum)
        return self.scheme.plan(self.shape, output, self.pool, *chip)

    @cached_property
    def one_image(self) -> ConvShape:
        """The geometry for a batch of 1, the key under which filters keep their addends."""
        return replace(self.shape, batch=1)


def _chip(device: Device) -> tuple[tuple[int, int], int]:
    """The compute capability and the number of multiprocessors of a device."""
    return device.compute_capability, device.multiprocessors


def _on_their_device(
    x: PreparedTensor,
    w: PreparedTensor,
    options: tuple[Any, ...],
    scheme: Any,
    device: Device | None,
    stream: Any,
) -> Any:
    """The int32 convolution of prepared operands, without checks; None if an argument needs one."""
    home = x.device
    if (
        w.device is not home
        or (device is not None and device is not home)
        or not _is_plain((options, scheme))
    ):
        return None
    key = "bconv2d", x.kind, w.kind, options, scheme
    launch: Launch | None = home.plans.get(key)
    if launch is None:
        if (x.role, w.role, x.scheme) != ("x", "w", w.scheme) or scheme not in ("auto", x.scheme):
            return None
        shape = _new_shape(conv_shape, x.shape, w.shape, *options)
        chosen = choose_scheme(scheme, x, w, home, lambda: shape)
        made = Launch(chosen, shape, "none", "int", *_chip(home))
        launch = planned(home.plans, key, lambda: made)
    there = in_stream(home, stream)
    y = launch.output_on(there)
    launch(there, x, w, y)
    return y


def _output(dtype: Any, scheme: AnyScheme, shape: ConvShape, *, bits: bool) -> Output:
    """The kind of output for the arguments; refuse a dtype that cannot be."""
    if bits and dtype is not None:
        raise SchemeError("thresholds and dtype are given\nthe output is bits\nleave one out")
    if bits:
        return "bits"
    name = "int32" if dtype is None else dtype_of("dtype", dtype).name
    if name == "int32":
        return "int"
    if name != "int16":
        raise unknown("dtype", name, ("int32", "int16"))
    if not isinstance(scheme, WarpgroupScheme):
        raise SchemeError(
            f"dtype=int16 with scheme={scheme.name!r}\nit gives int32 and bits only\n"
            "choose scheme='wgmma', on sm_90"
        )
    if shape.dot_length > np.iinfo(np.int16).max:
        raise DtypeError(
            f"windows have {shape.dot_length} elements, dtype int16\n"
            "a dot product may be as large as their number\nchoose int32"
        )
    return "int16"


def _shape_of(x: Any, w: Any, *options: Any) -> ConvShape:
    """The checked geometry of a convolution; repeated arguments are looked up."""
    given = (tuple(x.shape), tuple(w.shape), *options)
    if _is_plain(given):
        return _known_shape(conv_shape, *given)
    return _new_shape(conv_shape, *given)


def _is_plain(given: tuple[Any, ...]) -> bool:
    """Whether all numbers are of type int, so that a lookup cannot confuse 1 with 1.0 or True."""
    for value in given:
        if isinstance(value, tuple):
            if not _is_plain(cast("tuple[Any, ...]", value)):
                return False
        elif type(value) is not int and type(value) is not str:
            return False
    return True


def _new_shape(
    make: Callable[..., ConvShape], x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: Any
) -> ConvShape:
    """Build the `ConvShape` of a convolution by ``make``, which is `conv_shape`."""
    return make(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)


_known_shape = lru_cache(maxsize=1024)(_new_shape)


def _pooling(pool: str | None, thresholds: Any, shape: ConvShape) -> Pool:
    """Check `bconv2d`'s argument ``pool`` against its thresholds and its output shape; return it."""
    if pool is None:
        return "none"
    if pool not in ("or", "and"):
        raise unknown("pool", pool, ("'or'", "'and'", None))
    if thresholds is None:
        raise SchemeError(f"pool={pool!r} is given without thresholds\nonly bits are pooled\ngive thresholds")
    if shape.windows == 0:
        raise ShapeError(
            f"pool={pool!r}: the convolution has {shape.out_height} x {shape.out_width} pixels\n"
            "no window of 2 x 2 fits, and the output would be empty\nleave out pool="
        )
    return "or" if pool == "or" else "and"
