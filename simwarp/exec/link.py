"""Linking of the separate PTX texts of ``-rdc=true``, as the driver does when it loads a program.

Each text has the definitions of one source file, and ``.extern`` declarations of what others define.
Each numbers its files anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_COMMENT = re.compile(r"^[ \t]*//[^\n]*\n|(?<=[;{}()\s])//[^\n\"]*(?=\n)", re.MULTILINE)
_HEADER = re.compile(r"^\s*\.(?:version|target|address_size)\b[^\n]*\n", re.MULTILINE)
_FILE = re.compile(r"^(\s*\.file\s+)(\d+)([^\n]*)\n", re.MULTILINE)
_SECTION = re.compile(r"^\s*\.section\s+[^{]*\{[^}]*\}\s*", re.MULTILINE)
_LOC = re.compile(r"(\.loc\s+|inlined_at\s+)(\d+)")
_FUNCTION_NAME = re.compile(r",\s*function_name\s+[^,\n]+(?=,)")
_SEMICOLON = re.compile(r"\s*;")
_FUNCTION = re.compile(r"\.(?:func|entry)\b\s*(?:\([^)]*\))?\s*([\w$]+)")
_ENTRY = re.compile(r"\.entry\b[^{;]*(?=\{)")
_VARIABLE = re.compile(r"([\w$]+)\s*(?:\[[^\]]*\]\s*)*(?:=|;|$)")


def link_texts(texts: Sequence[str]) -> str:
    r"""One text with the definitions of all.

    >>> head = ".version 9.0\n.target sm_90\n.address_size 64\n"
    >>> print(link_texts([head + ".extern .global .u32 x;\n", head + ".visible .global .u32 x = 1;\n"]))
    .version 9.0
    .target sm_90
    .address_size 64
    .visible .global .u32 x = 1;
    <BLANKLINE>
    """
    if len(texts) == 1:
        return texts[0]
    header = "".join(_HEADER.findall(texts[0]))
    files, statements = list[str](), list[tuple[str, str]]()
    for number, text in enumerate(texts):
        first = 1000 * number  # no text has 1000 source files, so the numbers do not overlap
        files += [f"{start}{int(n) + first}{rest}\n" for start, n, rest in _FILE.findall(text)]
        statements += [(_name(one), one) for one in _statements(_renumbered(text, first))]
    defined = {name for name, one in statements if not one.startswith(".extern")}
    kept, seen = list[str](), set[str]()
    for name, one in sorted(statements, key=lambda pair: _FUNCTION.search(pair[1]) is not None):
        declares, again = one.startswith(".extern"), name in seen
        if (declares and name in defined) or (again and (declares or one.startswith(".weak"))):
            continue
        seen.add(name)
        kept.append(one)
    return header + "".join(files) + "\n".join(kept) + "\n"


def limit_registers(text: str, most: int) -> str:
    """Limit the registers of kernels that do not have a limit of their own, as the linker's option does.

    >>> limit_registers(".entry f(.param .u32 n) { ret; }", 40)
    '.entry f(.param .u32 n) .maxnreg 40 { ret; }'
    >>> limit_registers(".entry f() .maxntid 64 { ret; }", 40)
    '.entry f() .maxntid 64 { ret; }'
    """
    bounds = (".maxnreg", ".maxntid", ".minnctapersm")
    return _ENTRY.sub(lambda e: e[0] if any(b in e[0] for b in bounds) else f"{e[0]}.maxnreg {most} ", text)


def _renumbered(text: str, first: int) -> str:
    """A text without its header, file names and sections; its source files are numbered from ``first``."""
    for pattern in (_FILE, _HEADER, _SECTION, _COMMENT, _FUNCTION_NAME):
        text = pattern.sub("", text)
    return _LOC.sub(lambda found: f"{found[1]}{int(found[2]) + first}", text)


def _statements(text: str) -> Iterator[str]:
    """The statements of a text outside all braces: declarations, variables, functions."""
    depth, start = 0, 0
    for found in re.finditer(r'"(?:[^"\\]|\\.)*"|[{};]', text):
        mark = found[0]
        depth += (mark == "{") - (mark == "}")
        closes = mark == "}" and not _SEMICOLON.match(text, found.end())
        if depth == 0 and (mark == ";" or closes):
            if statement := text[start : found.end()].strip():
                yield statement
            start = found.end()


def _name(statement: str) -> str:
    """The function or variable that a PTX statement declares or defines."""
    function = _FUNCTION.search(statement)
    if function is not None:
        return function[1]
    variable = _VARIABLE.search(statement.partition("{")[0])
    return variable[1] if variable else statement
