"""PTX mnemonics occur only in the instruction rows; other modules use kind, operands and traits."""

import ast
import re

import pytest

from simwarp.ptx.instructions import ROWS, TABLE
from support.offenders import check_each
from support.sources import ROOT, parsed, source_files

BELOW = {
    "simwarp/ptx/instructions": "the rows",
    "simwarp/ptx/grammar": "the operands of a call have a syntax of their own",
    "simwarp/fragments": "maps of matrix opcodes, which rows refer to",
    "simwarp/lab": "operands, probes and programs chosen for single instructions",
    "simwarp/chips": "lowerings of matrix opcodes, which rows do not have",
}
"""Folders whose modules may know mnemonics, and why."""

OPCODES = re.compile(r"\b(?:base|opcode|words|row\s*\.\s*name)\b")
"""A source without a match compares nothing with an opcode."""
NAMES = ("row.name", "step.row.name", "words[0]", "words[:2]")
MNEMONICS = {
    ".".join(words[:n])
    for row in ROWS.values()
    for words in (row.name.split("."),)
    for n in range(1, len(words) + 1)
} | {row.base for row in ROWS.values()}


def literals(node, constants):
    """The string constants in an expression, including module constants that it refers to."""
    named = [constants[n.id] for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in constants]
    return {
        part.value
        for tree in (node, *named)
        for part in ast.walk(tree)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    }


def is_opcode(node):
    """Whether an expression derives from an opcode, or from the base or name of a row."""
    return any(
        (isinstance(part, ast.Attribute) and part.attr in ("base", "opcode"))
        or (isinstance(part, ast.Name) and part.id in ("base", "opcode"))
        or (isinstance(part, ast.Attribute | ast.Subscript) and ast.unparse(part) in NAMES)
        for part in ast.walk(node)
    ) and not ast.unparse(node).startswith(("'", '"'))


def questions(tree):
    """Pairs (opcode, other operand) of comparisons, lookups and ``startswith`` calls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            yield from ((a, b, node.lineno) for a in sides for b in sides if a is not b)
        elif isinstance(node, ast.Subscript):
            yield node.slice, node.value, node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            if node.func.attr == "startswith":
                yield node.func.value, node.args[0], node.lineno
            elif node.func.attr == "get":
                yield node.args[0], node.func.value, node.lineno


def violations(source):
    """The mnemonics that a module compares with opcodes, with their lines."""
    if not OPCODES.search(source):
        return []
    tree = parsed(source)
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    return sorted(
        {
            f"line {line}: {word!r}"
            for opcode, other, line in questions(tree)
            if is_opcode(opcode) and not is_opcode(other)
            for word in literals(other, constants)
            if word in MNEMONICS or TABLE.find(word)
        }
    )


def test_mnemonics_occur_only_in_the_rows():
    """Elsewhere give the row a kind or a trait (simwarp/ptx/rows.py), and ask for that."""
    modules = [str(path.relative_to(ROOT)) for path in source_files("simwarp")]
    check_each(check_mnemonics, [name for name in modules if not name.startswith(tuple(BELOW))])


def check_mnemonics(module):
    found = violations((ROOT / module).read_text())
    assert not found, "; ".join(found)


@pytest.mark.parametrize(
    "planted",
    [
        'if step.row.base == "popc": pass',
        'if row.base in ("shl", "shr"): pass',
        'KNOWN = {"shl": 1}\ncount = KNOWN[row.base]',
        'KNOWN = {"lop3.b32": 3}\ncount = KNOWN.get(step.row.name, 0)',
        'KNOWN = ("mapa",)\nfound = any(row.base in KNOWN for row in rows)',
        'if instruction.opcode.startswith("call"): pass',
        'if opcode.split(".")[0] != "bra": pass',
        'if words[0] in ("mma", "wmma"): pass',
        'if instruction.opcode not in ("add.u64", "add.u32"): pass',
    ],
)
def test_a_planted_mnemonic_is_reported(planted):
    assert violations(planted)


@pytest.mark.parametrize(
    "allowed",
    [
        'if step.kind == "call": pass',
        'if "fence" in step.row.traits: pass',
        'operation = "popc"',
        'if form.has("popc"): pass',
    ],
)
def test_kinds_traits_and_modifiers_are_not_reported_as_mnemonics(allowed):
    assert not violations(allowed)


def test_every_exempt_folder_contains_mnemonics():
    for folder in BELOW:
        assert any(violations(path.read_text()) for path in (ROOT / folder).rglob("*.py")) or folder.endswith(
            "instructions"
        )
