"""Errors of the library in the words of the command line: ``--word 16`` in place of ``word=16``."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

from reference.errors import SimwarpError

_ARGUMENT = re.compile(r"\b(\w+)=(True\b|'[^']*'|\"[^\"]*\"|\((?:[^()]|\([^()]*\))*\)|-?[\w.]+)")


def in_words(text: str, options: dict[str, str]) -> str:
    """A text with the named arguments as a person writes them in a shell."""

    def spoken(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in options:
            return found[0]
        if value == "True":
            return options[name]
        return f"{options[name]} {re.sub('[()]', '', value).replace(', ', ',').strip(chr(39) + chr(34))}"

    return _ARGUMENT.sub(spoken, text)


@contextmanager
def spoken(**options: str) -> Generator[None]:
    """Let the errors within speak of options, not of arguments."""
    try:
        yield
    except SimwarpError as error:
        error.args = tuple(in_words(x, options) if isinstance(x, str) else x for x in error.args)
        raise
