"""Generated programs of any seed are legal, do not depend on scheduling, and equal their mutants."""

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simwarp
from simwarp.lab import fuzz
from simwarp.lab.fuzz.program import bodies, needs_block, walk
from simwarp.ptx.instructions import TABLE
from simwarp.ptx.parse import parse

programs = st.builds(fuzz.generate, st.integers(0, 2**64 - 1), st.integers(0, 2**63 - 1))
TOGETHER, APART = simwarp.Device(), simwarp.Device(chunk_lanes=32)


def answer(device, program):
    """The digest of a program's outputs; a fault fails the test."""
    (words,) = fuzz.answers(device, [program])
    assert fuzz.digest(words), words
    return fuzz.digest(words)


@pytest.mark.slow
@given(programs, st.integers(0, 2**32))
@settings(max_examples=15)
def test_a_mutant_has_the_outputs_of_its_program(program, seed):
    assert answer(APART, fuzz.mutate(program, seed)) == answer(TOGETHER, program)


@pytest.mark.slow
@given(programs, st.integers(0, 2**32))
@settings(max_examples=8)
def test_every_shrinking_attempt_is_a_legal_program(program, salt):
    """A random half of the attempts is accepted as still failing."""

    def differs(candidate):
        answer(TOGETHER, candidate)
        return zlib.crc32(fuzz.module_text([candidate]).encode(), salt) % 2 == 0

    small = fuzz.shrink(program, differs, trials=60)
    assert sum(1 for _ in walk(small.body)) <= sum(1 for _ in walk(program.body))


@pytest.mark.slow
@given(programs)
@settings(max_examples=60)
def test_every_generated_opcode_has_a_row(program):
    (entry,) = parse(fuzz.module_text([program])).entries.values()
    assert entry.instructions
    for instruction in entry.instructions:
        assert TABLE.find(instruction.opcode) is not None, instruction.text


@given(programs)
@settings(max_examples=60)
def test_divergent_code_has_no_block_barrier(program):
    assert not any(needs_block([statement]) for statement, together in walk(program.body) if not together)


@given(programs)
@settings(max_examples=60)
def test_replacing_a_body_with_itself_keeps_the_program(program):
    for body, put in bodies(program):
        assert put(body) == program
