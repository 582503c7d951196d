"""The files that a source may include, found without preprocessing it.

PTX may come from a cache only if every file that the compiler read is known. So comments, strings and
inactive branches are searched too: a needless name costs nothing. Names that a macro composes are not found;
the result is then marked incomplete.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

_SPLICE = re.compile(r"\\\r?\n")
_GAP = r"(?:[^\S\n]|/\*(?:[^*]|\*(?!/))*\*/)*"
"""A pattern for blanks and comments between the words of a directive."""

_NAME = r'(?:"([^"\n]+)"|<([^>\n]+)>)'
_INCLUDE = re.compile(rf"include(_next)?{_GAP}{_NAME}")
_DIRECTIVE = re.compile(rf"(?:#|%:){_GAP}include(?:_next)?\b")
_MACRO = re.compile(rf"define(_next)?\b[^\n]*?{_NAME}")
_BLANK = re.compile(_GAP)
_HAS = re.compile(rf"has_include(_next)?\w*{_GAP}\({_GAP}{_NAME}", re.IGNORECASE)
_HAS_DEFINED = re.compile(rf"(?:ifn?def|defined){_GAP}\(?{_GAP}\w*has_include", re.IGNORECASE)
_BEGUN = (re.compile(r"__h(?:as?)?\b"), re.compile(r"has_(?:i(?:n(?:c(?:l(?:ud?)?)?)?)?)?\b"))
"""Patterns for words that the operator ``##`` may complete to ``__has_include``."""

_TRIGRAPHS = ("??=", "??/")
_LINE = re.compile(r"_(?<!\w_)_?(?!\w)")
"""A pattern for a word of one or two underscores, which ``##`` may also complete."""
_STRING = re.compile(r'"[^"]*"')
_UNCLEAR = re.compile(r"'|\\\"|//|/\*|\*/")
"""Tokens that may change the start of a string on its line: characters, escapes and comments."""


class Asked(NamedTuple):
    """A file name in an ``#include`` or similar directive."""

    name: str
    quoted: bool  # whether the name is in quotation marks: the source's folder is then searched first
    # whether the directive is ``#include_next`` or ``__has_include_next``, which skip some folders
    later: bool


@dataclass(frozen=True)
class Directives:
    """The files that a text may include or query by ``__has_include``."""

    included: tuple[Asked, ...]  # names in ``#include`` and ``#include_next``
    wanted: tuple[Asked, ...]  # names in ``__has_include``, or in a macro with a similar name
    in_macros: tuple[Asked, ...] = ()  # names in ``#define`` lines that may be file names
    computed: bool = False  # whether a macro names the file of an ``#include``
    complete: bool = True  # whether the text can include, or ask for, no other file


def directives(text: str) -> Directives:
    """Find the files that a source or header may include or query by ``__has_include``."""
    text = _SPLICE.sub("", text)
    included, wanted, computed = named(text)
    hidden = _has_computed_question(text, len(wanted)) or any(one in text for one in _TRIGRAPHS)
    return Directives(included, wanted, _asked(_MACRO, text), computed, not computed and not hidden)


def named(text: str) -> tuple[tuple[Asked, ...], tuple[Asked, ...], bool]:
    """Names in includes, names in ``__has_include``, and whether a macro gives the name of an include."""
    text = _SPLICE.sub("", text)
    wanted = _asked(_HAS, text) if "has_include" in text.lower() else ()
    return _asked(_INCLUDE, text), wanted, _has_computed_include(text)


def _asked(form: re.Pattern[str], text: str) -> tuple[Asked, ...]:
    """The file names in all directives of one form in a source."""
    return tuple(
        Asked(quoted or angled, bool(quoted), bool(later)) for later, quoted, angled in form.findall(text)
    )


def _has_computed_include(text: str) -> bool:
    """True if a macro gives the name of an ``#include``."""
    for directive in _DIRECTIVE.finditer(text):
        blank = _BLANK.match(text, directive.end())
        after = blank.end() if blank else directive.end()
        if text[after : after + 1] not in ('"', "<"):
            return True
    return False


def _has_computed_question(text: str, literal: int) -> bool:
    """True if a macro may give the name in a ``__has_include``, or expand to ``__has_include`` itself.

    ``literal`` is the number of ``__has_include`` with a literal name.
    """
    lower = text.lower()
    mentioned = lower.count("has_include")
    if mentioned > literal and mentioned > literal + len(_HAS_DEFINED.findall(text)):
        return True
    pasting = "##" in text or "%:%:" in text
    begun = any(word.search(lower) for word in _BEGUN)
    return begun or (pasting and bool(_LINE.search(_without_strings(text))))


def _without_strings(text: str) -> str:
    """The text without string literals, which cannot hide a directive that ``##`` makes."""
    if 'R"' in text:
        return text
    return "\n".join(
        line if line.count('"') % 2 or _UNCLEAR.search(line) else _STRING.sub('""', line)
        for line in text.split("\n")
    )
