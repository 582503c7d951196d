"""A kind of step is one object: its word stands in `simwarp.ptx.kinds`, others use the object or a fact."""

import ast

import pytest

from simwarp.engine.operations import CONTROL, DATA
from simwarp.ptx import kinds
from simwarp.ptx.instructions import ROWS
from simwarp.ptx.kinds import PURE, Kind
from support.sources import ROOT, parsed, source_files

KINDS = [kind for kind in vars(kinds).values() if isinstance(kind, Kind)]
OTHERS = ("event", "access", "record", "spec", "test", "self")
"""Names of objects whose ``kind`` is not that of a step."""


def test_the_engine_executes_every_kind_and_every_kind_has_a_row():
    assert not DATA.keys() & CONTROL.keys()
    assert DATA.keys() | CONTROL.keys() | {PURE} == set(KINDS) == {row.kind for row in ROWS.values()}
    assert len({kind.name for kind in KINDS}) == len(KINDS)


def test_lanes_that_wait_or_leave_are_control():
    """Data runs to its end in each lane, and every lane executes the next step."""
    assert not any(kind.together or kind.ends for kind in DATA)


def words_of_kinds(tree):
    """The lines that compare the kind of a step with a word."""
    names = {kind.name for kind in KINDS}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            parts = list(ast.walk(node))
            # A kind that is asked for a fact, as in kind.ends, may be compared.
            asked = {part.value for part in parts if isinstance(part, ast.Attribute)}
            words = {part.value for part in parts if isinstance(part, ast.Constant)}
            if words & names and any(is_kind_of_step(part) for part in parts if part not in asked):
                yield node.lineno


def is_kind_of_step(node):
    if not isinstance(node, ast.Attribute) or node.attr != "kind":
        return False
    return ast.unparse(node.value).rpartition(".")[2] not in OTHERS


@pytest.mark.slow
def test_no_module_compares_the_kind_of_a_step_with_a_word():
    folders = ("ptx", "program", "engine", "races", "observe", "device", "lab/evidence", "lab/fuzz")
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in source_files(*(f"simwarp/{folder}" for folder in folders))
        for line in words_of_kinds(parsed(path.read_text()))
    ]
    assert found == [], "import the kind from simwarp.ptx.kinds, or ask for one of its facts"


@pytest.mark.parametrize(
    "planted",
    [
        'step.kind == "mbarrier"',
        'steps[pc].kind in ("warp", "warp barrier")',
        '"call" in (conflict.step.kind, chunk.step.kind)',
        'row.kind not in {"matrix"}',
    ],
)
def test_a_planted_word_is_reported(planted):
    assert list(words_of_kinds(ast.parse(planted)))
