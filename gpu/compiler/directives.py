"""The files that a source may ask its preprocessor to read, found without preprocessing it.

A compiled text may come from a cache only if every file that the compiler read is known. So comments, strings
and branches that are not compiled are searched too: a name that is found needlessly costs nothing. Names that
a macro composes are not followed; the result is then marked incomplete.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

_SPLICE = re.compile(r"\\\r?\n")
_GAP = r"(?:[^\S\n]|/\*(?:[^*]|\*(?!/))*\*/)*"
"""Blanks and comments between the words of a directive."""

_NAME = r'(?:"([^"\n]+)"|<([^>\n]+)>)'
_INCLUDE = re.compile(rf"include(_next)?{_GAP}{_NAME}")
_DIRECTIVE = re.compile(rf"(?:#|%:){_GAP}include(?:_next)?\b")
_MACRO = re.compile(rf"define(_next)?\b[^\n]*?{_NAME}")
_BLANK = re.compile(_GAP)
_HAS = re.compile(rf"has_include(_next)?\w*{_GAP}\({_GAP}{_NAME}", re.IGNORECASE)
_HAS_DEFINED = re.compile(rf"(?:ifn?def|defined){_GAP}\(?{_GAP}\w*has_include", re.IGNORECASE)
_BEGUN = (re.compile(r"__h(?:as?)?\b"), re.compile(r"has_(?:i(?:n(?:c(?:l(?:ud?)?)?)?)?)?\b"))
"""Words that the operator ``##`` may complete to ``__has_include``, in whatever macro."""

_TRIGRAPHS = ("??=", "??/")
_LINE = re.compile(r"_(?<!\w_)_?(?!\w)")
"""A word of underscores, with which one may begin."""


class Asked(NamedTuple):
    """A file that a source names.

    Attributes
    ----------
    name : str
    quoted : bool
        In quotation marks: the folder of the source comes first.
    later : bool
        By ``#include_next`` or ``__has_include_next``: some of the folders do not count.
    """

    name: str
    quoted: bool
    later: bool


@dataclass(frozen=True)
class Directives:
    """The files that a text asks for.

    Attributes
    ----------
    included : tuple of Asked
        By ``#include`` and ``#include_next``.
    wanted : tuple of Asked
        By ``__has_include``, or a macro that is called like it.
    in_macros : tuple of Asked
        Possible names of files in ``#define`` lines.
    computed : bool
        Whether an ``#include`` takes its name from a macro.
    complete : bool
        Whether no other file can be read.
    """

    included: tuple[Asked, ...]
    wanted: tuple[Asked, ...]
    in_macros: tuple[Asked, ...] = ()
    computed: bool = False
    complete: bool = True


def directives(text: str) -> Directives:
    r"""Read a source or header."""
    text = _SPLICE.sub("", text)
    included, wanted, computed = named(text)
    hidden = _has_computed_question(text, len(wanted)) or any(one in text for one in _TRIGRAPHS)
    return Directives(included, wanted, _asked(_MACRO, text), computed, not computed and not hidden)


def named(text: str) -> tuple[tuple[Asked, ...], tuple[Asked, ...], bool]:
    """The files that a text includes, its ``__has_include`` names, and whether a macro names an include."""
    text = _SPLICE.sub("", text)
    wanted = _asked(_HAS, text) if "has_include" in text.lower() else ()
    return _asked(_INCLUDE, text), wanted, _has_computed_include(text)


def _asked(form: re.Pattern[str], text: str) -> tuple[Asked, ...]:
    return tuple(
        Asked(quoted or angled, bool(quoted), bool(later)) for later, quoted, angled in form.findall(text)
    )


def _has_computed_include(text: str) -> bool:
    """Whether an ``#include`` is followed by a macro."""
    for found in _DIRECTIVE.finditer(text):
        blank = _BLANK.match(text, found.end())
        after = blank.end() if blank else found.end()
        if text[after : after + 1] not in ('"', "<"):
            return True
    return False


def _has_computed_question(text: str, literal: int) -> bool:
    """Whether a ``__has_include`` may ask for a file that a macro names, or be made by a macro itself."""
    lower = text.lower()
    mentioned = lower.count("has_include")
    if mentioned > literal and mentioned > literal + len(_HAS_DEFINED.findall(text)):
        return True
    pasting = "##" in text or "%:%:" in text
    return any(begun.search(lower) for begun in _BEGUN) or (pasting and bool(_LINE.search(text)))
