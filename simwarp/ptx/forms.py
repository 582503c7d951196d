"""The full spellings of a row: those that PTX allows, and those that recorded evidence covers.

A row's spelling combines its modifiers freely; its rules ``clash`` and ``lacks`` exclude the combinations
that the PTX ISA forbids.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import NamedTuple

from simwarp.ptx.rows import PARTS, Row
from simwarp.ptx.spaces import space_of

_MODERATE = 256
"""Rows with at most this many spellings have evidence for each spelling."""


class _Choice(NamedTuple):
    """One combination of a row's modifiers: the words of the opcode, with "T" and "U" in place of types."""

    words: tuple[str, ...]
    extra: int
    """The number of optional words, without the state space."""


@cache
def spellings(row: Row) -> tuple[str, ...]:
    """Every opcode of a row that PTX allows, with modifiers and types."""
    return tuple(opcode for choice in _choices(row) for _, opcode in _typed(row, choice))


@cache
def forms(row: Row) -> tuple[str, ...]:
    """The spellings of a row that recorded evidence covers.

    All spellings if they are few. Otherwise, for each type and state space, the plain spelling, and
    enough others that every modifier occurs with every type that it can be combined with.
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
    """The combinations of modifiers that PTX allows with some type, those with few options first."""
    choices = [_Choice((), 0)]
    for optional, required, word in PARTS.findall(row.spelling):
        written = optional or required or word
        options = [tuple(option.strip(".").split(".")) for option in written.split("|")]
        longer: list[_Choice] = list(choices) if optional else []
        for words, extra in choices:
            for option in options:
                counts = bool(optional) and not space_of(option[:1])
                longer.append(_Choice((*words, *option), extra + counts))
        clash = row.clash
        choices = longer if clash is None else [choice for choice in longer if not clash(choice.words)]
    return sorted(choices, key=lambda choice: choice.extra)


def _types(row: Row) -> list[tuple[str, str]]:
    """The pairs of types T and U of a row; "" for a type that the row does not have."""
    return list(itertools.product(row.types or ("",), row.types_u or ("",)))


def _typed(row: Row, choice: _Choice) -> list[tuple[tuple[str, str], str]]:
    """The types and opcodes of one combination of modifiers that PTX allows."""
    spellings: list[tuple[tuple[str, str], str]] = []
    for types in _types(row):
        words = [{"T": types[0], "U": types[1]}.get(word, word) for word in choice.words]
        if row.lacks is None or not row.lacks(words, *types):
            spellings.append((types, ".".join(words)))
    return spellings


def _facts(choice: _Choice) -> set[tuple[str, str]]:
    """The words of a combination, each paired with its state space."""
    words = choice.words[1:]
    space = next(filter(lambda word: space_of([word]), words), "")
    return {(space, word) for word in words} | {(space, "")}
