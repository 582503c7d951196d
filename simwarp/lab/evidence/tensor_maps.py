"""Probes of copies through tensor maps: the first thread of a block moves 8 bytes of each thread.

The operands, or what is in the threads' memory, are a tensor of `_SHAPES`. A load begins one pixel, or two
words, behind the block's, so that the last ones are filled with zeros.
"""

from __future__ import annotations

from math import prod
from typing import Any

from reference.devices.tensor_map import Im2col
from simwarp.lab.evidence.probe import BLOCK, Probe, Tensor, Writer
from simwarp.ptx.rows import Form, Row

_SHAPES = {1: (256,), 2: (128, 2), 3: (16, 8, 2), 4: (4, 4, 8, 2), 5: (2, 2, 4, 8, 2)}
"""Rank → shape of a tensor of 256 words of 64 bits, which two blocks copy."""
_TYPES = {"min": "int64", "max": "int64", "inc": "uint32", "dec": "uint32"}
"""Reduction → the data type that it is probed with; "uint64" for the others."""
_BYTES, _REGION = 8 * BLOCK, 4096
"""Bytes of a block's tile, and of its region of the threads' memory."""
_LOAD = "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes"
_CHANGES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "global_address": ({"memory": True}, ("global_address %base",)),
    "rank": ({"shape": (1, 128, 2), "box": (1, 64, 2)}, ("rank 1",)),
    "box_dim": ({"box": (32, 2)}, ("box_dim 1, 64",)),
    "global_dim": ({"shape": (64, 2)}, ("global_dim 1, 128",)),
    "global_stride": (
        {"memory": True, "options": (("strides", (32,)),)},
        ("global_stride 0, 16", "global_address %base"),
    ),
    "element_stride": ({"options": (("element_strides", (2, 1)),)}, ("element_stride 1, 1",)),
    "elemtype": (
        {"data_type": "uint32", "shape": (128, 4), "box": (64, 4)},
        ("elemtype 4", "box_dim 0, 2", "global_dim 0, 2"),
    ),
    "interleave_layout": ({}, ("interleave_layout 0",)),
    "swizzle_mode": ({"options": (("swizzle", 32),)}, ("swizzle_mode 0",)),
    "fill_mode": ({"data_type": "float64", "options": (("fill", "nan"),)}, ("fill_mode 0",)),
}
"""Field of a map → how the probe's map differs from the one that loads operands, and the changes to it."""


def copy(row: Row, form: Form) -> Probe:
    """A copy to shared memory, or from it to global memory."""
    return _store(form, reduces=False) if "bulk_group" in form.opcode.split(".") else _load(form)


def reduction(row: Row, form: Form) -> Probe:
    """Probe a reduction of operands a into words of memory that contain operands b."""
    return _store(form, reduces=True)


def prefetch(row: Row, form: Form) -> Probe:
    """Probe ``prefetch``, which changes nothing: the result is the operand."""
    writer = _writer(form)
    if form.has("const"):
        writer.line(f"{form.opcode} [maps];")
    elif any(spec.kind == "tensor" for spec in row.sources):
        writer.line(f"{form.opcode} {_at(writer, form, 0)}{_offsets(form)}{_hint(form)};")
    else:
        writer.line(f"{form.opcode} [{'map' if form.has('param') else '%map'}];")
    writer.give("b64", "a")
    preamble = ".const .align 64 .b8 maps[128];\n" * form.has("const")
    return writer.probe(tensor=_tensor(form), count=256, preamble=preamble)


def change(row: Row, form: Form) -> Probe:
    """Probe a change of a map: copy it to global memory, change it, and load through it after the fences."""
    writer = _writer(form)
    field = next((word for word in form.modifiers if word in _CHANGES), "")
    differs, changes = _CHANGES.get(field, ({}, ()))
    by_shared = form.has("shared::cta")
    writer.declare("b64 from there base region, b32 word at, pred first")
    writer.declarations.append(".shared .align 128 .b8 copy[128];")
    writer.line(
        "ld.param.u64 %base, [in]; ld.param.u64 %region, [memory]; mov.u32 %at, %ctaid.x;",
        f"mad.wide.u32 %region, %at, {_REGION}, %region; setp.lt.u32 %first, %thread, 32;",
        "@!%first bra COPIED;",
        "mad.wide.u32 %from, %thread, 4, %map; ld.b32 %word, [%from];",
    )
    if by_shared:
        writer.line(
            "mov.u64 %there, copy; mad.wide.u32 %there, %thread, 4, %there; st.shared.b32 [%there], %word;"
        )
        writer.line("bar.warp.sync -1;")
        writer.line(*_changed(field, changes, "shared::cta", "[copy]"))
        scope = form.opcode if not field else f"{_PUBLISH}.gpu.sync.aligned"
        writer.line(f"bar.warp.sync -1; {scope} [%region], [copy], 128;")
    else:
        writer.line("mad.wide.u32 %there, %thread, 4, %region; st.global.b32 [%there], %word;")
        writer.line("bar.warp.sync -1;")
        writer.line(*_changed(field, changes, "global" if form.has("global") else "", "[%region]"))
        writer.line(f"{form.opcode if form.has('release') else _RELEASE};")
    acquire = form.opcode if form.has("acquire") else _ACQUIRE
    writer.line("COPIED: bar.sync 0;", f"{acquire} [%region], 128; mov.b64 %map, %region;")
    _issue(writer, f"{_LOAD} [tile], {_at(writer, form, 1)}, [bar];")
    target = row.architecture or "sm_90"
    return _tile(writer).probe(tensor=_tensor(form, **differs), count=256, target=target)


_PUBLISH = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release"
_RELEASE = "fence.proxy.tensormap::generic.release.gpu"
_ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu"


def _changed(field: str, changes: tuple[str, ...], space: str, at: str) -> list[str]:
    """The PTX lines with which the first thread changes a map."""
    lines: list[str] = []
    for text in changes:
        name, _, values = text.partition(" ")
        bits = 64 if name in ("global_address", "global_stride") else 32
        where = f".{space}" if space else ""
        lines.append(f"@%one tensormap.replace.tile.{name}{where}.b1024.b{bits} {at}, {values};")
    return lines


def _load(form: Form) -> Probe:
    """A probe of a tensor copy to shared memory: each thread returns its word of the tile that arrives."""
    writer = _writer(form)
    many = ", %blocks" * form.has("multicast::cluster")
    operands = f"[tile], {_at(writer, form, 1)}, [bar]{_offsets(form)}{many}{_hint(form)}"
    _issue(writer, f"{form.opcode} {operands};")
    return _tile(writer).probe(tensor=_tensor(form), count=256)


def _store(form: Form, reduces: bool) -> Probe:
    """A probe of a tensor store or reduction: the words of global memory after it, operands b before."""
    writer = _writer(form)
    writer.take("b", "b64")
    writer.declare("b64 cell there d")
    writer.line(
        "mov.u64 %cell, tile; mad.wide.u32 %cell, %thread, 8, %cell; st.shared.b64 [%cell], %a;",
        "ld.param.u64 %there, [memory]; mad.wide.u32 %there, %i, 8, %there; st.global.b64 [%there], %b;",
        "fence.proxy.async; bar.sync 0;",
        "@!%one bra DONE;",
        f"{form.opcode} {_at(writer, form, 0)}, [tile]{_hint(form)};",
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; fence.proxy.async;",
        "DONE: bar.sync 0; ld.global.b64 %d, [%there];",
    )
    writer.give("b64", "d")
    operation = next((word for word in form.modifiers if reduces and word in _TYPES), "")
    kind = _TYPES.get(operation, "uint64")
    return writer.probe(tensor=_tensor(form, memory=True, data_type=kind), count=256)


def _writer(form: Form) -> Writer:
    """A writer with operand a, the map's address, and a mbarrier of the first thread, ``%one``."""
    writer = Writer(form.opcode)
    writer.take("a", "b64")
    writer.declare("b64 map policy, b32 c, b16 blocks, pred one done")
    writer.declarations += [
        f".shared .align 128 .b8 tile[{_BYTES}];",
        ".shared .align 8 .b64 bar;",
    ]
    writer.line(
        "mov.b64 %map, map; cvta.param.u64 %map, %map; setp.eq.u32 %one, %thread, 0;",
        "mov.b64 %policy, 0x12F0000000000000; mov.b16 %blocks, 1; mov.u32 %c, %ctaid.x;",
    )
    return writer


def _issue(writer: Writer, copy_line: str) -> None:
    """Write PTX: the first thread issues a copy, and all threads wait for its mbarrier."""
    writer.line(
        "@!%one bra WAIT;",
        "mbarrier.init.shared.b64 [bar], 1; fence.mbarrier_init.release.cluster;",
        f"mbarrier.arrive.expect_tx.shared.b64 _, [bar], {_BYTES};",
        copy_line,
        "WAIT: bar.sync 0;",
        "AGAIN: mbarrier.try_wait.parity.shared.b64 %done, [bar], 0;",
        "@!%done bra AGAIN;",
    )


def _tile(writer: Writer) -> Writer:
    """Write PTX: load the thread's word of the tile in shared memory, and store it as a result."""
    writer.declare("b64 cell d")
    writer.line("mov.u64 %cell, tile; mad.wide.u32 %cell, %thread, 8, %cell; ld.shared.b64 %d, [%cell];")
    writer.give("b64", "d")
    return writer


def _rank(form: Form) -> int:
    """The rank that a form names; 2 for one that changes a map."""
    return next((int(word[0]) for word in form.modifiers if word[1:] == "d" and word[0].isdigit()), 2)


def _at(writer: Writer, form: Form, shift: int) -> str:
    """The map and the block's coordinates, with ``shift`` pixels added."""
    rank, images = _rank(form), _images(form)
    words = 2 if any(word in ("inc", "dec") for word in form.modifiers) else 1
    step = _SHAPES[rank][0] // 2 * (words if rank == 1 else 1)
    begin = -1 if images and shift else 0
    coordinates = [0, *(begin for _ in range(rank - 2)), 0][-rank:]
    last = 0
    if not images and shift:
        if rank > 2:
            coordinates[1] = shift
        else:
            last = 2 * shift if rank == 1 else shift
    writer.line(f"mad.lo.u32 %c, %c, {step}, {last};")
    return f"[%map, {{{', '.join([*map(str, coordinates[:-1]), '%c'])}}}]"


def _images(form: Form) -> bool:
    """Whether a form has an ``im2col`` modifier."""
    return form.has("im2col") or form.has("im2col_no_offs")


def _offsets(form: Form) -> str:
    """The im2col offsets of a load, which undo the box's lower corner and shift it by a pixel."""
    if not form.has("im2col"):
        return ""
    return f", {{{', '.join(['2', *('1' for _ in range(_rank(form) - 3))])}}}"


def _hint(form: Form) -> str:
    return ", %policy" * form.has("L2::cache_hint")


def _tensor(
    form: Form,
    memory: bool = False,
    data_type: str = "uint64",
    shape: tuple[int, ...] = (),
    box: tuple[int, ...] = (),
    options: tuple[tuple[str, Any], ...] = (),
) -> Tensor:
    """The tensor map of a probe: the words of all blocks, with a box of one block's words."""
    rank = _rank(form)
    shape = shape or _SHAPES[rank]
    if data_type == "uint32" and not box:
        shape = (*shape[:-1], 2 * shape[-1])
    if not _images(form):
        own = (_SHAPES[rank][0] // 2, *shape[1:]) if rank > 1 else (shape[0] // 2,)
        return Tensor(memory, data_type, shape, box or own, None, options)
    corner = (-1 if form.has("im2col") else 0,) * (rank - 2)
    pixels = prod(shape[:-1]) // 2
    return Tensor(memory, data_type, shape, (), Im2col(corner, corner, shape[-1], pixels), options)
