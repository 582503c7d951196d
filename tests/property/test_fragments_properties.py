"""`simwarp.fragments` on random maps, registers and spellings."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simwarp.fragments import TYPE_BITS, FragmentError, Layout, all_opcodes, fragments_of

OPCODES = all_opcodes()
LETTERS = ("r", "c", "m", "copy")


@st.composite
def random_lines(draw):
    """A random map: digits in any order of targets, with strides that make it a bijection."""
    bits = draw(st.sampled_from([1, 4, 8, 16, 32]))
    sizes = {"slot": 32 // bits, "lane": 32, "register": draw(st.sampled_from([1, 2, 4, 8]))}
    words, strides = [], dict.fromkeys(LETTERS, 1)
    digits = []
    for source, size in sizes.items():
        while size > 1:
            part = draw(st.sampled_from([d for d in (2, 4, 8, 16, 32) if size % d == 0]))
            digits.append((source, part, draw(st.sampled_from(LETTERS))))
            size //= part
    for i in draw(st.permutations(range(len(digits)))):  # the lowest digit of each target
        source, part, letter = digits[i]
        digits[i] = (source, part, f"{letter}{strides[letter]}")
        strides[letter] *= part
    for source in sizes:
        words += [source, *(f"{part}:{moves}" for name, part, moves in digits if name == source)]
    return " ".join(words), bits


@pytest.mark.slow
@given(random_lines(), st.integers(0, 2**32 - 1))
def test_any_map_in_this_notation_is_a_bijection(line_and_bits, seed):
    line, bits = line_and_bits
    layout = Layout.of(line, bits)
    assert Layout.of(str(layout), bits) == layout
    every = np.indices((layout.matrices, layout.rows, layout.columns, layout.copies))
    matrix, row, column, copy = (axis.ravel() for axis in every)
    lane, register, bit = layout.holder(row, column, matrix, copy)
    assert np.array_equal(layout.element(lane, register, bit), (row, column, matrix))
    places = (lane * layout.registers + register) * 32 + bit
    assert np.array_equal(np.sort(places), np.arange(0, layout.lanes * layout.registers * 32, bits))
    elements = layout.unpack(
        np.random.default_rng(seed).integers(0, 2**32, (layout.lanes, layout.registers), "u4")
    )
    assert np.array_equal(layout.unpack(layout.pack(elements)), elements)


@given(st.sampled_from(OPCODES), st.lists(st.integers(0, 3), max_size=2), st.integers(0, 2**32 - 1))
def test_packing_is_the_inverse_of_unpacking(opcode, warps, seed):
    for operand in fragments_of(opcode).operands.values():
        layout = operand.layout
        shape, word = (*warps, layout.lanes, layout.registers), f"u{layout.register_bits // 8}"
        registers = np.random.default_rng(seed).integers(0, 2**layout.register_bits, shape, word)
        elements = layout.unpack(registers)
        assert elements.shape == (*warps, *layout.shape)
        packed = layout.pack(elements)
        assert np.array_equal(packed, registers) or layout.copies > 1
        assert np.array_equal(layout.unpack(packed), elements)


@given(st.sampled_from(OPCODES), st.data())
def test_lookups_of_arrays_equal_lookups_one_by_one(opcode, data):
    operand = data.draw(st.sampled_from(list(fragments_of(opcode).operands.values())))
    layout = operand.layout
    counts = (layout.lanes, layout.registers, layout.register_bits)
    places = data.draw(st.lists(st.tuples(*(st.integers(0, n - 1) for n in counts)), min_size=1, max_size=5))
    many = layout.element(*np.transpose(places))
    assert np.transpose(many).tolist() == [list(layout.element(*place)) for place in places]
    back = layout.holder(*many)
    assert np.transpose(back).tolist() == [list(layout.holder(*layout.element(*place))) for place in places]


@given(st.sampled_from(OPCODES), st.randoms(use_true_random=False))
def test_modifiers_are_accepted_in_any_order(opcode, random):
    """Types and layouts keep their order; other modifiers may have any position."""
    name, *words = opcode.split(".")
    layouts = [word for word in words if word in ("row", "col")]
    types = [word for word in words if word in TYPE_BITS]
    spelled = [word for word in words if word not in layouts and word not in types]
    if opcode.startswith("wmma"):
        name += f".{spelled.pop(0)}"
    random.shuffle(spelled)
    for ordered in (layouts, types):
        places = sorted(random.randrange(len(spelled) + 1) for _ in ordered)
        for place, word in reversed(list(zip(places, ordered, strict=True))):
            spelled.insert(place, word)
    assert fragments_of(".".join([name, *spelled])) is fragments_of(opcode)


@pytest.mark.slow
@given(st.sampled_from(OPCODES), st.data())
def test_a_missing_modifier_gives_an_error_of_three_lines(opcode, data):
    words = opcode.split(".")
    removed = data.draw(st.integers(0, len(words) - 1))
    rest = ".".join(words[:removed] + words[removed + 1 :])
    spelled = {tuple(sorted(form.split("."))) for form in OPCODES}
    assume(
        tuple(sorted(rest.split("."))) not in spelled
    )  # without .satfinite, .trans or wmma it is another instruction
    with pytest.raises(FragmentError) as error:
        fragments_of(rest)
    assert len(str(error.value).splitlines()) == 3
