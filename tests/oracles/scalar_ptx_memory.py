"""Scalar twins of memory rows: loads, stores and atomics, one thread at a time, from the PTX ISA 9.0."""

import math

from oracles import scalar_ptx_floating as floating

words, last_type = floating.words, floating.last_type


def ld(opcode, *loaded):
    """PTX ISA 9.7.9.8: the value in memory."""
    return loaded


def st(opcode, *stored):
    """PTX ISA 9.7.9.11: memory receives the low bits of each register."""
    return tuple(word & words.ones(last_type(opcode)) for word in stored)


def increment(old, b):
    """PTX ISA 9.7.13.5, ``inc``: counts up to b, then wraps to 0."""
    return 0 if old >= b else old + 1


def decrement(old, b):
    """PTX ISA 9.7.13.5, ``dec``: counts down to 0, then wraps to b."""
    return b if old == 0 or old > b else old - 1


INTEGER = {
    "add": lambda old, b: old + b,
    "and": lambda old, b: old & b,
    "or": lambda old, b: old | b,
    "xor": lambda old, b: old ^ b,
    "min": min,
    "max": max,
    "inc": increment,
    "dec": decrement,
    "exch": lambda old, b: b,
    "cas": lambda old, b, c: c if old == b else old,
}


def modified(opcode, old, *operands):
    """PTX ISA 9.7.13.5: the value that an atomic stores, ``operation([a], b)`` or with b and c."""
    kind = last_type(opcode)
    operation = next(m for m in opcode.split(".")[1:] if m in INTEGER)
    if kind.removesuffix("x2") not in floating.FORMATS:
        new = INTEGER[operation](*(words.value(kind, word) for word in (old, *operands)))
        return new & words.ones(kind)
    if operation != "add":
        return floating.extreme(f"{operation}.{kind}", old, *operands)
    nans = [w for w in (old, *operands) if kind == "f64" and math.isnan(floating.decode(kind, w))]
    if nans:
        # The PTX ISA leaves the bits open. An H200: in shared memory the first, quiet; else the last, as is.
        return floating.kept_nan(nans) if ".shared" in opcode else nans[-1]
    # In global memory f32 flushes subnormals, in shared memory it does not.
    flushes = kind == "f32" and ".shared" not in opcode
    return floating.add(f"add.rn{'.ftz' if flushes else ''}.{kind}", old, *operands)


def each_modified(opcode, words_there_and_given):
    """(old values, new values) of an atomic; for ``.v2``, two of each."""
    count = next((int(m[1]) for m in opcode.split(".") if m in ("v2", "v4", "v8")), 1)
    old, *operands = (
        words_there_and_given[i : i + count] for i in range(0, len(words_there_and_given), count)
    )
    return old, tuple(modified(opcode, *case) for case in zip(old, *operands, strict=True))


def atom(opcode, *words_there_and_given):
    """PTX ISA 9.7.13.5: the register receives the old value, memory the new one."""
    old, new = each_modified(opcode, words_there_and_given)
    return *old, *new


def red(opcode, *words_there_and_given):
    """PTX ISA 9.7.13.6: the new value in memory; no register is written."""
    _, new = each_modified(opcode, words_there_and_given)
    return new


# ------------------------------------------------------------------------------------------ addresses

WINDOWS = {"shared": 1 << 40, "local": 2 << 40, "param": 3 << 40, "const": 4 << 40}
"""Where the generic addresses of a state space begin; global memory is above 1 << 42, code between.

The PTX ISA leaves that open, so these twins hold for the simulator alone.
"""
BLOCKS = 24
"""A shared address of another block of a cluster has that block's rank + 1 above so many bits."""


def space_in(opcode):
    return next(m.partition("::")[0] for m in opcode.split(".")[1:] if m != "to")


def cvta(opcode, a):
    """Scalar twin of ``cvta``, from PTX ISA 9.7.9.20."""
    window = WINDOWS.get(space_in(opcode), 0)
    return (a - window if ".to." in opcode else a + window) % (1 << 64)


def isspacep(opcode, a):
    """Scalar twin of ``isspacep``, from PTX ISA 9.7.9.19."""
    window = WINDOWS.get(space_in(opcode))
    if window:
        return window <= a < window + (1 << 40)
    return space_in(opcode) == "global" and a >= 5 << 40


def mapa(opcode, a, rank):
    """Scalar twin of ``mapa``, from PTX ISA 9.7.9.23."""
    return (a & ~(0xFF << BLOCKS) | rank + 1 << BLOCKS) & words.ones(last_type(opcode))


def getctarank(opcode, a):
    """PTX ISA 9.7.9.24; 0 for a plain address of the own block."""
    return max((a >> BLOCKS & 0xFF) - 1, 0)
