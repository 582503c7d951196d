"""Scalar twins of the PTX rows: one instruction at a time, in plain Python integers, from the PTX ISA.

``TWINS[row name](opcode, *operands)`` takes the opcode as written and bit patterns in the order of PTX, and
returns the bit pattern of each destination (one, or a tuple); predicates and carries are bools. Twins of
warp-wide rows take a list of 32 for each operand, then the executing lanes, and return 32 results. Those of
atomics take the value in memory first and return it together with the new one, those of ``red`` the new one
alone; for a vector, all old values come first, then all operands. Those of ``lop3`` return the results of
all 256 tables.

``BOUNDED[row name](opcode, operands, result)`` is whether a result of an approximating row is legal.

Where the PTX ISA leaves a result open or hardware deviates from it, the twin returns the result of an NVIDIA
H200, and its docstring states this.
"""

from oracles import scalar_ptx_bounded as bounded
from oracles import scalar_ptx_conversion as conversion
from oracles import scalar_ptx_floating as floating
from oracles import scalar_ptx_integer as integer
from oracles import scalar_ptx_memory as memory

lanes, arithmetic, field, bitwise = integer.lanes, integer.arithmetic, integer.field, integer.bitwise
widen = integer.widen


def vote(opcode, a, m, active):
    """PTX ISA 9.7.13.9; the mode and ``sync`` of the opcode may have either order."""
    mode = next(m for m in opcode.split(".") if m in ("all", "any", "uni"))
    return getattr(lanes, f"vote_{mode}")(a, m, active)


def ballot(opcode, a, m, active):
    return lanes.ballot(a, m, active)


def redux(opcode, a, m, active):
    """Scalar twin of ``redux``, from PTX ISA 9.7.13.12."""
    return lanes.redux(opcode.split(".")[2], a, m, active, signed=opcode.endswith("s32"))


def elect(opcode, m, active):
    """PTX ISA 9.7.13.14: (leader, whether this lane is it); an H200 elects the lowest lane."""
    return lanes._for_each_lane(lambda lane, team: (min(team), lane == min(team)), m, active)


def of_types(base, twin, types="f32 f64 f16 bf16"):
    """Use one twin for all rows of an instruction that has a row per type."""
    return {f"{base}.{kind}": twin for kind in types.split()}


REDUCTIONS = (
    "bits",
    "add",
    "add, f32",
    "add, f32 vector",
    "add, f64",
    "add, half",
    "add, bf16",
    "half vector",
    "packed vector",
    "inc, dec",
    "min, max",
)

add = arithmetic(lambda a, b: a + b)
sub = arithmetic(lambda a, b: a - b)
minimum, maximum = arithmetic(min), arithmetic(max)

TWINS = {
    # integer arithmetic
    "add": add,
    "add.sat.s32": add,
    "add (packed)": add,
    "sub": sub,
    "sub.sat.s32": sub,
    "mul.lo": arithmetic(lambda a, b: a * b),
    "mul.hi": integer.high,
    "mul.wide": integer.wide,
    "mad.lo": arithmetic(lambda a, b, c: a * b + c),
    "mad.hi": integer.high,
    "mad.hi.sat.s32": integer.high,
    "mad.wide": integer.wide,
    "mul24": integer.mul24,
    "mad24": integer.mul24,
    "mad24.hi.sat.s32": integer.mul24,
    "sad": arithmetic(lambda a, b, c: c + abs(a - b)),
    "div": arithmetic(integer.truncated_quotient),
    "rem": arithmetic(integer.remainder),
    "abs": arithmetic(abs),
    "neg": arithmetic(lambda a: -a),
    "min": minimum,
    "min (packed)": minimum,
    "min.T.relu": minimum,
    "min.relu": minimum,
    "max": maximum,
    "max (packed)": maximum,
    "max.T.relu": maximum,
    "max.relu": maximum,
    "popc": lambda opcode, a: lanes.popc(a),
    "clz": field(lanes.clz),
    "bfind": integer.bfind,
    "fns.b32": integer.fns,
    "brev": field(lanes.brev),
    "bfe": integer.whole_amounts(lanes.bfe),
    "bfi": integer.whole_amounts(lanes.bfi),
    "szext": integer.szext,
    "bmsk.b32": integer.bmsk,
    "dp4a": integer.dot_product,
    "dp2a": integer.dot_product,
    # extended precision
    "add.cc": integer.carried,
    "addc": integer.carried,
    "addc.cc": integer.carried,
    "sub.cc": integer.carried,
    "subc": integer.carried,
    "subc.cc": integer.carried,
    "mad.cc": integer.carried,
    "madc": integer.carried,
    "madc.cc": integer.carried,
    # video
    **{f"{operation}{count}": integer.video for operation in integer.SIMD for count in (2, 4)},
    "vset2": integer.video_set,
    "vset4": integer.video_set,
    # floats
    "testp": floating.testp,
    "copysign": floating.copysign,
    **of_types("add", floating.add),
    **of_types("sub", floating.sub),
    **of_types("mul", floating.mul),
    **of_types("fma", floating.fma),
    **of_types("mad", floating.fma, "f32 f64"),
    **of_types("div", floating.div, "f32 f64"),
    **of_types("rcp", floating.rcp, "f32 f64"),
    **of_types("sqrt", floating.sqrt, "f32 f64"),
    **of_types("abs", floating.absolute),
    **of_types("neg", floating.negated),
    **of_types("min", floating.extreme),
    "min.NaN.f32": floating.extreme,
    "min.xorsign.abs.f32": floating.extreme,
    **of_types("max", floating.extreme),
    "max.NaN.f32": floating.extreme,
    "max.xorsign.abs.f32": floating.extreme,
    # comparison and selection
    "set": floating.set_,
    "set (signed)": floating.set_,
    "set (bits)": floating.set_,
    "set (f32)": floating.set_,
    "set (f64)": floating.set_,
    "set (f16)": floating.set_,
    "set (bf16)": floating.set_,
    "set (f16x2)": floating.set_,
    "set (bf16x2)": floating.set_,
    "set.f16": floating.set_,
    "set.f16 (signed)": floating.set_,
    "set.f16 (bits)": floating.set_,
    "set.f16 (f32)": floating.set_,
    "set.f16 (f64)": floating.set_,
    "set.bf16": floating.set_,
    "set.bf16 (signed)": floating.set_,
    "set.bf16 (bits)": floating.set_,
    "set.bf16 (float)": floating.set_,
    "setp": floating.setp,
    "setp (signed)": floating.setp,
    "setp (bits)": floating.setp,
    "setp (f32)": floating.setp,
    "setp (f64)": floating.setp,
    "setp (f16)": floating.setp,
    "setp (bf16)": floating.setp,
    "setp (f16x2)": floating.setp,
    "setp (bf16x2)": floating.setp,
    "selp": lambda opcode, a, b, c: a if c else b,
    "slct": floating.slct,
    "slct (f32)": floating.slct,
    # logic and shift
    "and": bitwise(lanes.and_),
    "or": bitwise(lanes.or_),
    "xor": bitwise(lanes.xor),
    "not": bitwise(lambda a: ~a),
    "cnot": integer.cnot,
    "lop3.b32": integer.lop3,
    "lop3.BoolOp.b32": integer.lop3,
    "shf.b32": lambda opcode, a, b, c: lanes.shf(a, b, c, *opcode.split(".")[1:3]),
    "shl": field(lanes.shl),
    "shr": field(lanes.shr),
    # movement and conversion
    "mov": lambda opcode, a: a,
    "shfl.sync.b32": lambda opcode, a, b, c, m, active: lanes.shfl(a, b, c, opcode.split(".")[2], m, active),
    "prmt.b32": integer.prmt,
    "ld": memory.ld,
    "st": memory.st,
    "ldu": memory.ld,
    "isspacep": memory.isspacep,
    "cvta": memory.cvta,
    "cvta.to": memory.cvta,
    "mapa": memory.mapa,
    "getctarank": memory.getctarank,
    "cvt": conversion.cvt,
    **{f"cvt ({kind} to integer)": conversion.cvt for kind in ("f16", "bf16", "f32", "f64")},
    **{f"cvt (integer to {kind})": conversion.cvt for kind in ("f16", "bf16", "f32", "f64")},
    **of_types("cvt.f16", conversion.cvt, "f16 bf16 f32 f64"),
    **of_types("cvt.bf16", conversion.cvt, "f16 bf16 f32 f64"),
    **of_types("cvt.f32", conversion.cvt, "f16 bf16 f32 f64"),
    **of_types("cvt.f64", conversion.cvt, "f16 bf16 f32 f64"),
    "cvt.f16.f32 (relu, satfinite)": conversion.cvt,
    "cvt.f16x2.f32": conversion.cvt,
    "cvt.e4m3x2.f32": conversion.cvt,
    "cvt.e4m3x2.f16x2": conversion.cvt,
    "cvt.f16x2.e4m3x2": conversion.cvt,
    "cvt.tf32.f32": conversion.cvt,
    "cvt.rna.tf32.f32": conversion.cvt,
    # atomics and warp operations
    **{f"atom ({what})": memory.atom for what in (*REDUCTIONS, "cas")},
    **{f"red ({what})": memory.red for what in REDUCTIONS},
    "vote.sync.pred": vote,
    "vote.mode.sync.pred": vote,
    "vote.sync.ballot.b32": ballot,
    "vote.ballot.sync.b32": ballot,
    "match.any.sync": lambda opcode, a, m, active: lanes.match_any(a, m, active),
    "match.all.sync": lambda opcode, a, m, active: lanes.match_all(a, m, active),
    "activemask.b32": lambda opcode, active: [lanes.mask_word(active) if on else None for on in active],
    "redux.sync": redux,
    "redux.sync.b32": redux,
    "elect.sync": elect,
}

BOUNDED = {
    "div.approx.f32": bounded.div,
    "div.full.f32": bounded.div,
    "rcp.approx.f32": bounded.rcp,
    "rcp.approx.ftz.f64": bounded.rcp_gross,
    "sqrt.approx.f32": bounded.sqrt,
    "rsqrt.approx.f32": bounded.rsqrt,
    "rsqrt.approx.f64": bounded.rsqrt,
    "rsqrt.approx.ftz.f64": bounded.rsqrt_gross,
    "sin.approx.f32": bounded.sin,
    "cos.approx.f32": bounded.cos,
    "lg2.approx.f32": bounded.lg2,
    "ex2.approx.f32": bounded.ex2,
    "ex2.approx.f16": bounded.ex2,
    "ex2.approx.ftz.bf16": bounded.ex2,
    **of_types("tanh.approx", bounded.tanh, "f32 f16 bf16"),
}
