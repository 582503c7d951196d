"""The ±1 matrix product on a device, and those of bits (BSTC, section 5.1; BTC, sections 5.2 and 8)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from gpu.bmm.kinds import bits_on_device, bits_on_host, check_bits, check_outputs, rule_of_any
from gpu.bmm.lines import clear_plan
from gpu.bmm.output import Output, check_kind, kind_of, scales_on_device
from gpu.bmm.packing import LARGEST
from gpu.bmm.prepared import PreparedMatrix, operand, placed, scheme_for, sizes_of
from gpu.bmm.schemes import AnyScheme, TensorCoreScheme, product_ptx
from gpu.bmm.skinny import SkinnyScheme
from gpu.bmm.stacks import matrices, stack_of
from gpu.bmm.threshold import rule_on_device
from gpu.bmm.warpgroups import WarpgroupScheme, check_chip
from gpu.chips import chip_of
from gpu.device import Device, LaunchChain, LaunchPlan, launch, planned
from gpu.host import (
    adopted,
    choose_device,
    downloaded,
    in_stream,
    on_device,
    refuse_nan,
    to_device,
)
from gpu.recording import Recording, call_of, play
from reference.errors import FormatError, ShapeError
from reference.types import PackedBits
from reference.types.arguments import Kind
from reference.types.packed import First


def bmm(
    a: Any,
    b: Any,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    kind: Kind = "xnor",
    scheme: str = "auto",
    thresholds: Any = None,
    flip: Any = None,
    dtype: Any = None,
    scales: Any = None,
    prepared: bool = False,
    device: Device | None = None,
    stream: Any = None,
) -> Any:
    """The product of the signs of two real matrices, op(A) · op(B), on a device, or of their bits.

    Answers the same as `reference.bmm`, and with thresholds as `reference.threshold` of it. The Boolean
    product is packed.

    Parameters
    ----------
    a : (M, K), or (K, M) with ``transpose_a``
    b : (K, N), or (N, K) with ``transpose_b``
        Either may be a stack of B matrices, with an axis of B in front; both then have the same B.
        Real matrices (float64, float32, float16, bfloat16, int8) on the host or on a device, or
        `PackedBits` of the scheme's word size, on the host also of 128 bits, whose words run along K:
        ``layout="column"`` for A and ``"row"`` for B, the other one where transposed; both with the same
        ``first``. Or a result of `gpu.prepare`, which is not packed or arranged again.
    kind : {"xnor", "and", "or"}
        "xnor": the product of signs. "and": of bits, 1 for what is not 0; c[i, j] is how many are 1 in both.
        Then bool and uint8 are accepted, too, on the host. "or": whether any are, as bits like those of
        thresholds; it has no thresholds, flip, dtype or scales. Every scheme has all three.
    scheme : str
        "auto": the fastest for the chip, the sizes, the output and the operands' format, as
        docs/which-kernel.md lists it. Lines of a prepared operand serve every scheme that takes lines.
        "bmm32", "bmm64", "bmms32" or "bmms64" on CUDA cores. If K exceeds a scheme's counters, another
        scheme with the same words is used; see `gpu.bmm.schemes`.
        "btc1", "btc2" or "btc3" on bit tensor cores: the paper's designs, of which btc3 is the fastest.
        Words of operands and output then have 32 bits and ``first="lsb"``.
        "mma" on bit tensor cores from sm_80, with the same words: asynchronous copies feed them.
        "skinny" on bit tensor cores from sm_80, with the same words, for up to 16 rows or columns of C.
        "wgmma" on the warpgroups of Hopper (sm_90a), with the same words.
    thresholds : (N,) integers or floats, optional
        Turn the output into bits: 1 where the dot product is at least its column's threshold.
    flip : (N,) bool, optional
        True for columns whose bits are inverted: those with a negative γ.
    dtype : dtype, optional
        Of the dot products: int32, and with "wgmma" int16 (K up to 32,767), float32 and float16 (rounded to
        nearest).
    scales : (N,) real numbers, optional
        Factors of the columns, float32, for dtype float32 or float16. The scaled dot product is rounded to
        float32, and then to float16.
    prepared : bool
        Give the bits, with "wgmma" and "skinny", as a prepared A of the next product.
    device : Device, optional
        Default: the operands' own, or the first CUDA device.
    stream : optional
        Where the call is queued with all that it packs and copies: a stream of the device, of torch or CuPy,
        an object with ``__cuda_stream__``, or an address. Default: torch's current stream if an operand is a
        torch tensor, else the device's default one. A torch or CuPy operand, and a result that is used in
        another stream, must be kept until the work is done; see docs/gpu.md.

    Returns
    -------
    (M, N) of dtype, or PackedBits; (B, M, N) if an operand is a stack
        On the host; on the device if an operand lies there. Bits are packed ``layout="column"``, in
        words of the scheme's size, ready to be the next product's A. Those of "auto" have 32 bits and
        ``first="lsb"`` on sm_75 to sm_90, unless an operand has other words; other chips give
        ``first="msb"``. With ``prepared`` they are a `PreparedMatrix`, on the device. For C in columns,
        compute its transpose: the product of B and A, with ``transpose_a`` and ``transpose_b`` turned over.

    Raises
    ------
    ShapeError, DtypeError, FormatError, SchemeError, NoGpuError
    NotANumberError
        At once for host arrays; for device arrays at the device's next synchronisation.

    Notes
    -----
    Source: BSTC (SC'19), equations 2 and 5, section 5.1, listings 4, 5 and 7; BTC (TPDS), section 5.2,
    listings 3, 4 and 5.

    Examples
    --------
    >>> import simwarp
    >>> bmm([[1.0, -2.0, 3.0]], [[1.0], [1.0], [1.0]], device=simwarp.Device())
    array([[1]], dtype=int32)
    >>> bmm([[1.0, 0.0, 3.0]], [[1.0], [1.0], [1.0]], kind="and", device=simwarp.Device())
    array([[2]], dtype=int32)
    """
    transposed, call = (transpose_a, transpose_b), None
    plain = dtype is scales is None and not prepared and scheme.__class__ is kind.__class__ is str
    if plain and transpose_a.__class__ is transpose_b.__class__ is bool:
        options = "bmm", transpose_a, transpose_b, scheme, kind
        call = call_of(options, (a, b, thresholds, flip), device, stream)
        known = play(call)
        if known is not None:
            return known
    check_outputs(kind, thresholds, flip, dtype, scales)
    device, stream, (a, b, thresholds, flip, scales) = adopted(device, stream, a, b, thresholds, flip, scales)
    if kind != "xnor":
        a, b = bits_on_host(a, "a"), bits_on_host(b, "b")
    request = _checked(a, b, transposed, (thresholds, flip), device, stream, kind)
    bits = kind == "or" or thresholds is not None
    plan = _planned(request, scheme, kind_of(dtype, bits=bits, prepared=prepared), scales)
    if call is None or not plan.can_be_recorded:
        return _answer(request, plan, *_run(request, plan, request.device))
    recording = Recording(request.device, call.arrays)
    made, first = _run(request, plan, cast("Device", recording))
    finish = _packed(request, plan, first) if plan.output.is_bits else None
    recording.keep(request.device.plans, call.key, made[0], finish)
    return _answer(request, plan, made, first)


class _Request(NamedTuple):
    """The checked operands of a product, with their device and stream."""

    a: Any
    b: Any
    transposed: tuple[bool, bool]
    sizes: tuple[int, int, int]
    stack: tuple[int, ...]
    rule: tuple[Any, Any]
    device: Device
    kind: Kind


class _Plan(NamedTuple):
    """A call's scheme, output, and rows of a stack of A taken as one matrix (None if not)."""

    scheme: AnyScheme
    output: Output
    rows: Any
    can_be_recorded: bool


def _checked(
    a: Any,
    b: Any,
    transposed: tuple[bool, bool],
    rule: tuple[Any, Any],
    device: Device | None,
    stream: Any,
    kind: Kind,
) -> _Request:
    """The operands as matrices or stacks of them; refuse shapes that do not fit, and devices that differ."""
    check_bits(kind, a=a, b=b)
    a, b = operand(a, "a", transposed=transposed[0]), operand(b, "b", transposed=transposed[1])
    (m, k), (n, k_of_b) = sizes_of(a, "a", transposed[0]), sizes_of(b, "b", transposed[1])
    if k != k_of_b:
        raise ShapeError(
            f"a is {tuple(a.shape)}{' transposed' if transposed[0] else ''} and "
            f"b is {tuple(b.shape)}{' transposed' if transposed[1] else ''}: "
            f"K is {k} in one and {k_of_b} in the other\n"
            "the columns of op(A) must be as many as the rows of op(B)\n"
            "check the shapes, or transpose an operand"
        )
    stack = stack_of(a.shape, b.shape)
    device = in_stream(choose_device(device, a, b, *rule), stream, a, b, *rule)
    return _Request(a, b, transposed, (m, n, k), stack, rule, device, kind)


def _planned(request: _Request, scheme: str, kind: str, scales: Any) -> _Plan:
    """Choose the scheme, and place on the device what the output takes; refuse what no scheme gives."""
    a, b, transposed, (m, n, k), stack, rule, device, of = request
    rows = None if b.shape[:-2] or kind == "words" else _as_rows(a, transposed[0], device)
    sizes = (m if rows is None else m * stack[0]), n, k
    chosen = scheme_for(scheme, device, sizes, kind, a, b)
    check_scheme(chosen, sizes, kind, device.compute_capability)
    if on_device(a) != on_device(b):  # no result comes to the host, so the host operand is checked here
        refuse_nan(a=a, b=b)
    factors = scales_on_device(scales, kind, n, device)
    given = rule_of_any(n, device) if of == "or" else rule_on_device(*rule, n, device)
    output = Output(kind, given or factors, of != "xnor")
    whole = not stack or (rows is None and _is_whole(a, b, chosen))
    return _Plan(chosen, output, rows, whole)


def _run(request: _Request, plan: _Plan, device: Device) -> tuple[tuple[Any, ...], First]:
    """Pack, allocate and launch: the arrays that the kernel writes, and the operands' order of bits."""
    a, b, transposed, (m, n, k), stack, _, _, _ = request
    scheme, output, rows, _ = plan
    a = a if rows is None else rows
    if output.common:
        a, b = bits_on_device(a, "a", device), bits_on_device(b, "b", device)
    left = placed(a, "a", transposed[0], scheme, device)
    right = placed(b, "b", transposed[1], scheme, device)
    if left.first != right.first:
        raise FormatError(
            f"a is packed with first={left.first!r} and b with first={right.first!r}\n"
            "repack one of them with the other's first"
        )
    if rows is None:
        made = output.allocate((m, n, k), scheme, device, stack)
        multiply(left, right, made, scheme, output, device)
        return made, left.first
    made = output.allocate((m * stack[0], n, k), scheme, device, ())
    multiply(left, right, made, scheme, output, device)
    return tuple(x.view((*stack, m, *x.shape[1:])) for x in made), left.first


def _packed(request: _Request, plan: _Plan, first: First) -> Callable[[Any], PackedBits]:
    """A function that wraps the answer's words as `PackedBits`."""
    m, n, _ = request.sizes
    return partial(
        PackedBits, shape=(*request.stack, m, n), layout="column", word=plan.scheme.word, first=first
    )


def _answer(request: _Request, plan: _Plan, made: tuple[Any, ...], first: First) -> Any:
    """The answer, where the operands are: dot products, packed bits, or a prepared operand."""
    a, b, scheme = request.a, request.b, plan.scheme
    if plan.output.kind == "lines":
        words, ones = made if len(made) == 2 else (*made, None)
        shape = *request.stack, *request.sizes[:2]
        return PreparedMatrix(words, ones, shape, "a", False, scheme.name, scheme.form, scheme.first)
    result = made[0] if on_device(a) or on_device(b) else downloaded(made[0], a=a, b=b)
    return _packed(request, plan, first)(result) if plan.output.is_bits else result


def check_scheme(
    scheme: AnyScheme, sizes: tuple[int, int, int], kind: str, capability: tuple[int, int]
) -> None:
    """Refuse a scheme that does not give that kind of output, for those sizes or on that chip."""
    check_kind(kind, scheme, *sizes[1:])
    check_chip(scheme, capability)
    if isinstance(scheme, SkinnyScheme):
        scheme.check(*sizes[:2], capability)
    elif isinstance(scheme, TensorCoreScheme):
        scheme.check(capability)


def multiply(
    a: PreparedMatrix,
    b: PreparedMatrix,
    made: tuple[Any, ...],
    scheme: AnyScheme,
    output: Output,
    device: Device,
    *,
    early: bool = False,
) -> None:
    """Launch the kernel of a scheme, which multiplies two prepared operands.

    Stacks are one launch with "wgmma", else one for each matrix.

    Parameters
    ----------
    a, b : PreparedMatrix
        In the scheme's form.
    made : tuple of device arrays
        What the kernel writes: ``output.allocate(…)``.
    scheme : Scheme, TensorCoreScheme, SkinnyScheme or WarpgroupScheme
    output : Output
    device : Device
    early : bool
        Whether the launch may begin before the one before has ended, on chips that can: nothing that was
        launched since the last synchronisation writes B, nor what the output takes.

    Examples
    --------
    >>> import numpy as np
    >>> import simwarp
    >>> from gpu.bmm.prepared import prepare_matrix
    >>> from gpu.bmm.output import Output
    >>> from gpu.bmm.schemes import choose_scheme
    >>> device = simwarp.Device()
    >>> a = prepare_matrix(np.ones((1, 5)), "a", scheme="btc3", device=device)
    >>> b = prepare_matrix(np.ones((5, 1)), "b", scheme="btc3", device=device)
    >>> scheme, output = choose_scheme("btc3", 5), Output()
    >>> made = output.allocate((1, 1, 5), scheme, device)
    >>> multiply(a, b, made, scheme, output, device)
    >>> made[0].download()
    array([[5]], dtype=int32)
    """
    early = early and chip_of(device.compute_capability).sm_90
    if isinstance(scheme, WarpgroupScheme):
        _launch(a, b, made, scheme, output, device, early)
        return
    stack = stack_of(a.shape, b.shape)
    for left, right, out in zip(a.matrices(stack), b.matrices(stack), matrices(stack, *made), strict=True):
        _launch(left, right, out, scheme, output, device, early)


def _as_rows(given: Any, transposed: bool, device: Device) -> Any:
    """The rows of a stack of A as those of one matrix; None if they cannot be that."""
    if len(given.shape) == 2:
        return None
    if isinstance(given, PreparedMatrix):
        return given.as_rows()
    count, m, k = given.shape
    if isinstance(given, PackedBits) or transposed or count * m > LARGEST:
        return None
    if issubclass(type(given), np.ndarray):
        return given.reshape(count * m, k)
    return to_device(given, "a", device).view((count * m, k))


def _launch(
    a: PreparedMatrix,
    b: PreparedMatrix,
    made: tuple[Any, ...],
    scheme: AnyScheme,
    output: Output,
    device: Device,
    early: bool,
) -> None:
    """Launch the kernel for two matrices; that of warpgroups also for stacks."""
    sizes = m, n, k = a.lines, b.lines, a.bits
    counts = a.count, b.count
    of_a = a.arrays[:1] if isinstance(scheme, SkinnyScheme) else a.arrays
    operands = (*of_a, *b.arrays)

    arrays = (*operands, *made, *output.rule)
    of = output.kind, output.is_scaled, output.common
    key = ("bmm", scheme.name, *of, a.first, a.parts, early, m, n, k, *counts)

    def plan() -> LaunchPlan:
        if isinstance(scheme, WarpgroupScheme):
            return scheme.plan(
                sizes,
                output.kind,
                device.multiprocessors,
                scaled=output.is_scaled,
                parts=a.parts,
                early=early,
                matrices=counts,
                common=output.common,
            )
        kind, arch = "bits" if output.is_bits else "int", device.compute_capability
        if isinstance(scheme, SkinnyScheme):
            some = {"early": early, "common": output.common}
            return scheme.plan(sizes, output.kind, arch, device.multiprocessors, **some)
        args = (*(None for _ in operands), None, m, n, k, *(None for _ in output.rule))
        fitted, shared = scheme, 0
        if isinstance(scheme, TensorCoreScheme):
            fitted = scheme.fitted(m, n, device.multiprocessors)
            shared = fitted.shared
        ptx = product_ptx(fitted, kind, a.first, arch, common=output.common).text
        return LaunchPlan(ptx, fitted.name, *fitted.launch(m, n), args, shared)

    if (
        not isinstance(scheme, WarpgroupScheme)
        or scheme.shares(sizes, output.kind, device.multiprocessors, max(counts)) == 1
    ):
        launch(device, key, plan, *arrays)
        return
    chain = planned(
        device.plans,
        key,
        lambda: LaunchChain((clear_plan(made[0].nbytes // 4, device.compute_capability), plan())),
    )
    device.launch_all(chain, (made, arrays))


def _is_whole(a: Any, b: Any, scheme: AnyScheme) -> bool:
    """True if one launch takes both stacks as given, without preparing single matrices."""
    return type(a) is type(b) is PreparedMatrix and isinstance(scheme, WarpgroupScheme)
