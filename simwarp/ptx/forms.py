"""The forms of a row: every full spelling that PTX allows, and those that evidence covers.

A row's spelling joins its modifiers freely. The PTX ISA forbids some of what comes out; what it
forbids stands here, once, as rules on the words of an opcode.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from simwarp.ptx.rows import Row

_PART = re.compile(r"\{([^}]*)\}|<([^>]*)>|(\.?[A-Za-z0-9_:]+)")
_MODERATE = 256
"""Rows with at most so many spellings have evidence for each of them."""
_SPACES = {"const", "global", "local", "param", "shared"}


class _Choice(NamedTuple):
    """A choice among a row's modifiers: the words of the opcode, "T" and "U" in the types' places."""

    words: tuple[str, ...]
    extra: int
    """How many words may be left out, not counting the state space."""


@cache
def spellings(row: Row) -> tuple[str, ...]:
    """Every opcode of a row that PTX allows.

    Parameters
    ----------
    row : Row

    Examples
    --------
    >>> from simwarp.ptx.instructions import ROWS
    >>> spellings(ROWS["bfind"])[:3]
    ('bfind.u32', 'bfind.u64', 'bfind.s32')
    """
    return tuple(opcode for choice in _choices(row) for _, opcode in _typed(row, choice))


@cache
def forms(row: Row) -> tuple[str, ...]:
    """The spellings of a row that evidence covers.

    All of them, where they are few. Else, for each type and state space, the plain spelling, and
    enough others that every modifier has been there with every type that it goes with.

    Parameters
    ----------
    row : Row

    Examples
    --------
    >>> from simwarp.ptx.instructions import ROWS
    >>> forms(ROWS["popc"])
    ('popc.b32', 'popc.b64')
    >>> "ld.global.b64" in forms(ROWS["ld"]), "ld.global.v4.b64" in forms(ROWS["ld"])
    (True, False)
    """
    choices = _choices(row)
    if len(choices) * len(_types(row)) <= _MODERATE:
        return spellings(row)
    seen: set[tuple[str, ...]] = set()
    chosen: list[str] = []
    rich = sorted(choices, key=lambda choice: choice.extra, reverse=True)
    for choice in [*(choice for choice in choices if not choice.extra), *rich]:
        facts = _facts(choice)
        for types, opcode in _typed(row, choice):
            now = {(*fact, *types) for fact in facts}
            if not now <= seen:
                seen |= now
                chosen.append(opcode)
    return tuple(dict.fromkeys(chosen))


def _choices(row: Row) -> list[_Choice]:
    """What PTX allows of the row's modifiers, whatever the types; impossible pairs end early."""
    choices = [_Choice((), 0)]
    for optional, required, word in _PART.findall(row.spelling):
        written = optional or required or word
        options = [tuple(option.strip(".").split(".")) for option in written.split("|")]
        longer: list[_Choice] = list(choices) if optional else []
        for words, extra in choices:
            for option in options:
                counts = bool(optional) and option[0].split("::")[0] not in _SPACES
                longer.append(_Choice((*words, *option), extra + counts))
        choices = [choice for choice in longer if not _clash(choice.words)]
    return sorted(choices, key=lambda choice: choice.extra)


def _types(row: Row) -> list[tuple[str, str]]:
    return list(itertools.product(row.types or ("",), row.types_u or ("",)))


def _typed(row: Row, choice: _Choice) -> list[tuple[tuple[str, str], str]]:
    """The opcodes of a choice that PTX allows, with their types."""
    found: list[tuple[tuple[str, str], str]] = []
    for types in _types(row):
        words = [{"T": types[0], "U": types[1]}.get(word, word) for word in choice.words]
        if _goes_with_types(words, types):
            found.append((types, ".".join(words)))
    return found


def _facts(choice: _Choice) -> set[tuple[str, str]]:
    """What a choice shows: each of its words, in its state space."""
    words = choice.words[1:]
    space = next((word for word in words if word.split("::")[0] in _SPACES), "")
    return {(space, word) for word in words} | {(space, "")}


# ------------------------------------------------------------------------- what the PTX ISA forbids

_SCOPES = {"cta", "cluster", "gpu", "sys"}
_STRONG = {"relaxed", "acquire", "release", "acq_rel"}
_EVICTIONS = {
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
}
_NOT_MMIO = {"weak", "volatile", "acquire", "release", "cta", "cluster", "gpu", "nc", "v2", "v4"}
_CACHED = {"ca", "cg", "cs", "lu", "cv", "wb", "wt"}


def _clash(words: tuple[str, ...]) -> bool:
    """Whether words of an opcode, or of the beginning of one, exclude each other."""
    rule = _RULES.get(words[0])
    return rule is not None and rule(set(words[1:]), words)


def _access(has: set[str], words: tuple[str, ...]) -> bool:
    """PTX ISA 9.7.9.8 and 9.7.9.11, loads and stores."""
    strong, scoped, cached = has & _STRONG, has & _SCOPES, has & _CACHED
    space = next((word.split("::")[0] for word in words if word.split("::")[0] in _SPACES), "")
    hints = {word for word in has if word.startswith(("L1::", "L2::"))}
    ordered = strong or has & {"weak", "volatile"}
    if bool(scoped) > bool(strong) or (strong and not scoped and words[-1] not in strong | {"mmio"}):
        return True
    if "mmio" in has and (has & _NOT_MMIO or space not in ("", "global") or hints or cached):
        return True
    if "mmio" in has and "relaxed" not in has and words[-1] != "mmio":
        return True
    if cached and (strong or "volatile" in has or hints & _EVICTIONS):
        return True
    if "volatile" in has and hints:
        return True
    if space in ("const", "local", "param", "shared") and (hints or "nc" in has):
        return True
    if space in ("const", "local", "param") and ordered:
        return True
    if space == "param" and cached:
        return True
    return "nc" in has and (space != "global" or bool(ordered or has & {"lu", "cv"}))


def _atomic(has: set[str], words: tuple[str, ...]) -> bool:
    """PTX ISA 9.7.13.5 and 9.7.13.6: one scope, one order; vectors in global memory only."""
    if sum(word in _SCOPES for word in words) > 1 or sum(word in _STRONG for word in words) > 1:
        return True
    return bool(has & {"v2", "v4", "v8"}) and any(word.startswith("shared") for word in words)


def _hint(has: set[str], words: tuple[str, ...]) -> bool:
    """PTX ISA 9.7.9.15: eviction priorities are those of global memory."""
    return "local" in has and bool(has & {"L2::evict_last", "L2::evict_normal"})


_RULES: dict[str, Callable[[set[str], tuple[str, ...]], bool]] = {
    **dict.fromkeys(("ld", "st"), _access),
    **dict.fromkeys(("atom", "red"), _atomic),
    "prefetch": _hint,
}


def _goes_with_types(words: list[str], types: tuple[str, str]) -> bool:
    """Whether PTX has the words of an opcode with these types."""
    if "v4" in words and types[0].endswith("64"):
        return False
    if words[0] in ("mapa", "getctarank") and types[0] == "u32" and "shared::cluster" not in words:
        return False  # generic addresses have 64 bits
    return not (words[0] == "cvt" and "sat" in words and _holds(*types))


def _holds(to: str, source: str) -> bool:
    """Whether one integer type has all values of another, so that nothing can saturate."""
    if not (to[1:].isdigit() and source[1:].isdigit() and to[0] in "us" and source[0] in "us"):
        return False
    bits, needed = int(to[1:]) - (to[0] == "s"), int(source[1:]) - (source[0] == "s")
    return bits >= needed and (to[0] == "s" or source[0] == "u")
