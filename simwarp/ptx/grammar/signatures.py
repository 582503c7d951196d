"""Parser of the head of a kernel, device function or prototype: everything before its body.

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
"""Directive → the most numbers that it takes; it takes none if that is 0, else at least one."""


def kernel(cursor: Cursor) -> Function:
    """Read the head of a kernel after ``.entry``, up to ``{`` or ``;``."""
    function = Function("", [], cursor.line)
    function.name = cursor.name()
    function.parameters = _parameters(cursor, (".param",))
    directives(cursor, function)
    return function


def device_function(cursor: Cursor) -> Function:
    """Read the head of a device function after ``.func``, up to ``{`` or ``;``."""
    while cursor.accept(".attribute"):
        skip_attribute(cursor)
    returns = _parameters(cursor, (".param", ".reg"))
    function = Function("", [], cursor.line, returns)
    function.name = cursor.name()
    function.parameters = _parameters(cursor, (".param", ".reg"))
    directives(cursor, function)
    return function


def prototype(cursor: Cursor) -> Function:
    """Read a call prototype: the signature after ``.callprototype``, and its semicolon."""
    line = cursor.line
    returns = _parameters(cursor, (".param", ".reg"))
    cursor.expect("_")
    function = Function("_", _parameters(cursor, (".param", ".reg")), line, returns, extern=True)
    directives(cursor, function)
    cursor.expect(";")
    return function


def _parameters(cursor: Cursor, spaces: tuple[str, ...]) -> list[Variable]:
    """Read the parameters of a signature, in parentheses; [] if there are none."""
    parameters: list[Variable] = []
    if not cursor.accept("(") or cursor.accept(")"):
        return parameters
    for _ in cursor.separated(")"):
        space = cursor.text
        if space not in spaces:
            raise cursor.error(f"expected {' or '.join(map(repr, spaces))}")
        cursor.at += 1
        parameters.append(parameter(cursor, space[1:]))
    return parameters


def directives(cursor: Cursor, function: Function) -> None:
    """Read performance and cluster directives; skip directives that only tune the compilation."""
    while word := cursor.directive():
        if word == ".pragma":
            skip_pragma(cursor)
        elif word in _NUMBERS:
            numbers = _numbers(cursor, _NUMBERS[word])
            if word in (".maxntid", ".reqntid"):
                function.max_threads = math.prod(numbers)
                if word == ".reqntid":
                    x, y, z = (*numbers, 1, 1)[:3]
                    function.required_block = (x, y, z)
            elif word == ".reqnctapercluster":
                x, y, z = (*numbers, 1, 1)[:3]
                function.cluster = (x, y, z)
            elif word == ".maxnreg":
                function.max_registers = numbers[0]
            elif word == ".minnctapersm":
                function.min_blocks = numbers[0]
            elif word == ".maxclusterrank":
                function.max_cluster = numbers[0]
            elif word == ".explicitcluster":
                function.explicit_cluster = True
        else:
            cursor.at -= 1
            raise cursor.error("expected '{', ';' or a directive such as .maxntid")


def skip_pragma(cursor: Cursor) -> None:
    """Skip the strings after ``.pragma``, which are hints for the compiler, and the semicolon."""
    cursor.string()
    while cursor.accept(","):
        cursor.string()
    cursor.expect(";")


def _numbers(cursor: Cursor, most: int) -> list[int]:
    """Read up to ``most`` integers, separated by commas."""
    numbers = [number(cursor)] if most else []
    while 0 < len(numbers) < most and cursor.accept(","):
        numbers.append(number(cursor))
    return numbers
