"""Translate the arguments in the library's error messages to options: ``word=16`` to ``--word 16``."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

from reference.errors import SimwarpError

_ARGUMENT = re.compile(r"\b(\w+)=(True\b|'[^']*'|\"[^\"]*\"|\((?:[^()]|\([^()]*\))*\)|-?[\w.]+)")


def in_words(text: str, options: dict[str, str]) -> str:
    """A message with each argument of ``options`` replaced by its option."""

    def option(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in options:
            return found[0]
        if value == "True":
            return options[name]
        return f"{options[name]} {re.sub('[()]', '', value).replace(', ', ',').strip(chr(39) + chr(34))}"

    return _ARGUMENT.sub(option, text)


@contextmanager
def as_options(**options: str) -> Generator[None]:
    """Replace arguments by options in the messages of errors raised in the block."""
    try:
        yield
    except SimwarpError as error:
        error.args = tuple(in_words(x, options) if isinstance(x, str) else x for x in error.args)
        raise
