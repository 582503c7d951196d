"""Compiled code writes registers in place where nobody else holds their arrays."""

from types import SimpleNamespace

import numpy as np
import pytest

from simwarp.compiled.registers import Registers

OWN, OTHER, UNIFORM = range(3)


@pytest.fixture
def chunk():
    words = np.arange(64, dtype=np.uint32).reshape(2, 32).copy()
    registers = [words, None, np.uint32(7)]
    return SimpleNamespace(live=np.ones((2, 32), np.bool_), registers=registers, partial={}, bits={})


@pytest.fixture
def registers(chunk):
    """The registers after an entry that wrote the first one."""
    made = Registers(chunk, [np.dtype(np.uint32)] * 3, {})
    made.enter(1 << OWN | 1 << UNIFORM, 1 << OWN, frozenset())
    made.leave(1 << OWN)
    return made


def place(registers, slot):
    """The address that compiled code gets for a register that it writes."""
    registers.enter(1 << slot, 1 << slot, frozenset())
    return int(registers.table[slot])


def test_the_first_array_is_a_copy_and_the_next_ones_are_in_place(chunk, registers):
    at = chunk.registers[OWN].__array_interface__["data"][0]
    assert place(registers, OWN) == at
    registers.leave(1 << OWN)
    assert place(registers, OWN) == at


@pytest.mark.parametrize("alias", [lambda x: x, lambda x: x.view(np.int32), lambda x: x[:1]])
def test_an_array_that_another_register_holds_is_copied(chunk, registers, alias):
    chunk.registers[OTHER] = alias(chunk.registers[OWN])
    at = chunk.registers[OWN].__array_interface__["data"][0]
    assert place(registers, OWN) != at
    np.testing.assert_array_equal(chunk.registers[OWN], np.arange(64).reshape(2, 32))


def test_an_array_that_is_a_view_is_copied(chunk, registers):
    chunk.registers[OWN] = np.zeros((4, 32), np.uint32)[::2]
    at = chunk.registers[OWN].__array_interface__["data"][0]
    assert place(registers, OWN) != at
    chunk.registers[OWN] = np.zeros((2, 32), np.uint32).view()
    registers.enter(1 << OWN, 0, frozenset())
    assert place(registers, OWN) != chunk.registers[OWN].__array_interface__["data"][0]


def test_one_number_is_spread_once(chunk, registers):
    at = int(registers.table[UNIFORM])
    assert place(registers, UNIFORM) == at
    assert chunk.registers[UNIFORM] == 7
    registers.leave(1 << UNIFORM)
    np.testing.assert_array_equal(chunk.registers[UNIFORM], np.full((2, 32), 7))
