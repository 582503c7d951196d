"""The head of a kernel, a device function or a prototype: everything in front of its body.

Source: PTX ISA 9.0, sections 5.1.6 (parameters), 7.1 (functions), 11.4 (performance), 11.7 (clusters).
"""

from __future__ import annotations

import math

from simwarp.ptx.grammar.constants import number
from simwarp.ptx.grammar.tokens import Cursor
from simwarp.ptx.grammar.variables import parameter, skip_attribute
from simwarp.ptx.syntax import Function, Variable

_NUMBERS = {
    ".maxntid": 3,
    ".reqntid": 3,
    ".reqnctapercluster": 3,
    ".maxnreg": 1,
    ".minnctapersm": 1,
    ".maxnctapersm": 1,
    ".maxclusterrank": 1,
    ".abi_preserve": 1,
    ".abi_preserve_control": 1,
    ".noreturn": 0,
    ".explicitcluster": 0,
    ".blocksareclusters": 0,
}
"""How many numbers each directive takes at most, and none or at least one."""


def kernel(cursor: Cursor) -> Function:
    """Read what follows ``.entry``, up to ``{`` or ``;``.

    Raises
    ------
    PtxSyntaxError
        A head that PTX does not have.

    Examples
    --------
    >>> found = kernel(Cursor("k(.param .u64 a) .maxntid 32, 4 {"))
    >>> found.name, [p.name for p in found.parameters], found.max_threads
    ('k', ['a'], 128)
    """
    function = Function("", [], cursor.line)
    function.name = cursor.name()
    function.parameters = _parameters(cursor, (".param",))
    directives(cursor, function)
    return function


def device_function(cursor: Cursor) -> Function:
    """Read what follows ``.func``, up to ``{`` or ``;``.

    Examples
    --------
    >>> found = device_function(Cursor("(.param .b32 r) vprintf (.param .b64 a, .param .b64 b);"))
    >>> found.name, len(found.returns), len(found.parameters)
    ('vprintf', 1, 2)
    """
    while cursor.accept(".attribute"):
        skip_attribute(cursor)
    returns = _parameters(cursor, (".param", ".reg"))
    function = Function("", [], cursor.line, returns)
    function.name = cursor.name()
    function.parameters = _parameters(cursor, (".param", ".reg"))
    directives(cursor, function)
    return function


def prototype(cursor: Cursor) -> Function:
    """Read what follows ``.callprototype``, with the semicolon.

    Examples
    --------
    >>> found = prototype(Cursor("(.param .b32 _) _ (.param .b64 _, .param .align 8 .b8 _[16]);"))
    >>> [(p.type, p.count) for p in (*found.returns, *found.parameters)]
    [('b32', 1), ('b64', 1), ('b8', 16)]
    """
    line = cursor.line
    returns = _parameters(cursor, (".param", ".reg"))
    cursor.expect("_")
    function = Function("_", _parameters(cursor, (".param", ".reg")), line, returns, extern=True)
    directives(cursor, function)
    cursor.expect(";")
    return function


def _parameters(cursor: Cursor, spaces: tuple[str, ...]) -> list[Variable]:
    """``(…)``, or nothing."""
    found: list[Variable] = []
    if not cursor.accept("(") or cursor.accept(")"):
        return found
    while True:
        space = cursor.text
        if space not in spaces:
            raise cursor.error(f"expected {' or '.join(map(repr, spaces))}")
        cursor.at += 1
        found.append(parameter(cursor, space[1:]))
        if cursor.accept(")"):
            return found
        if not cursor.accept(","):
            raise cursor.error("expected ',' or ')'")


def directives(cursor: Cursor, function: Function) -> None:
    """Read performance and cluster directives; those that only tune the compilation are stepped over.

    Examples
    --------
    >>> function = Function("k", [], 1)
    >>> directives(Cursor(".maxntid 32, 4 .maxnreg 64 .reqnctapercluster 2 {"), function)
    >>> function.max_threads, function.cluster
    (128, (2, 1, 1))
    """
    while word := cursor.directive():
        if word == ".pragma":
            skip_pragma(cursor)
        elif word in _NUMBERS:
            numbers = _numbers(cursor, _NUMBERS[word])
            if word in (".maxntid", ".reqntid"):
                function.max_threads = math.prod(numbers)
            elif word == ".reqnctapercluster":
                x, y, z = (*numbers, 1, 1)[:3]
                function.cluster = (x, y, z)
        else:
            cursor.at -= 1
            raise cursor.error("expected '{', ';' or a directive such as .maxntid")


def skip_pragma(cursor: Cursor) -> None:
    """Step over the strings behind ``.pragma`` and the semicolon: hints for the compiler.

    Examples
    --------
    >>> cursor = Cursor('"nounroll", "used_bytes_mask 15"; ret;')
    >>> skip_pragma(cursor)
    >>> cursor.text
    'ret'
    """
    cursor.string()
    while cursor.accept(","):
        cursor.string()
    cursor.expect(";")


def _numbers(cursor: Cursor, most: int) -> list[int]:
    found = [number(cursor)] if most else []
    while 0 < len(found) < most and cursor.accept(","):
        found.append(number(cursor))
    return found
