"""Maps of matrix instructions equal the atoms of tensor-layouts, which follow CuTe."""

import re
from functools import cache

import numpy as np
from tensor_layouts import atoms_nv
from tensor_layouts.atoms import CopyAtom, MMAAtom

from simwarp.fragments import FragmentError, fragments_of
from support.offenders import every_case

ATOMS = {name: atom for name, atom in vars(atoms_nv).items() if isinstance(atom, MMAAtom | CopyAtom)}


def opcode_of(atom):
    """Opcode of an atom; a wgmma atom has its types only in its name, as ``SM90_64x8x16_F32F16F16_SS``."""
    types = re.fullmatch(r"SM90_\d+x\d+x\d+_([A-Z0-9]+)_SS", atom.name)
    if types and re.search(r"k\d+$", atom.ptx):
        words = re.findall(r"BF16|TF32|F16|F32|E4M3|E5M2|S32|S8", types[1])
        return ".".join([atom.ptx, *map(str.lower, words)])
    return atom.ptx


def form_of(atom):
    try:
        return fragments_of(opcode_of(atom))
    except FragmentError:
        return None


WRONG = "SM80_16x8x32_S32S4S4S32_TN"
"""Its B is the mistake that CUTLASS had until NVIDIA/cutlass#3140."""
ELSEWHERE = (
    *("dp4a", "dp2a", "shfl", "cp.async", "tcgen05", "complex", "sparse", "mma_async.sp"),
    "m16n8k64.row.col.f",  # 8-bit floats of sm_120
)
"""Words of the atoms whose instruction has no map here."""


@cache
def compared():
    """The form of each atom that has one."""
    return {name: form for name, atom in ATOMS.items() if (form := form_of(atom)) is not None}


def compared_atoms(kind):
    return [
        (name, atom, compared()[name])
        for name, atom in ATOMS.items()
        if name in compared() and isinstance(atom, kind)
    ]


def elements(layout):
    """Row, column and matrix of each element, of shape (lanes, registers · slots)."""
    lane, register, slot = np.ix_(*map(range, (layout.lanes, layout.registers, layout.slots)))
    found = layout.element(lane, register, slot * layout.bits)
    return [
        np.broadcast_to(x, (layout.lanes, layout.registers, layout.slots)).reshape(layout.lanes, -1)
        for x in found
    ]


def offsets(atom_layout, threads, values):
    """Offsets that an atom's layout gives for each thread and value: a layout of CuTe adds those of both."""
    of_values = np.array([atom_layout(0, value) for value in range(values)])
    return np.array([[atom_layout(thread, 0)] for thread in range(threads)]) + of_values


def test_every_form_with_an_atom_is_compared():
    kinds = [form.opcode.partition(".")[0] for form in compared().values()]
    assert {kind: kinds.count(kind) for kind in sorted(set(kinds))} == {
        "ldmatrix": 6,
        "mma": 41,
        "stmatrix": 6,
        "wgmma": 37,
    }
    assert all(
        any(word in ATOMS[name].ptx for word in ELSEWHERE) for name in ATOMS.keys() - compared().keys()
    )


@every_case(("name", "atom", "form"), lambda: compared_atoms(MMAAtom))
def test_mma_operands_have_the_layout_of_the_atom(name, atom, form):
    m, n, _ = atom.shape_mnk
    layouts = {"a": (atom.a_layout, m), "b": (atom.b_layout, n), "d": (atom.c_layout, m)}
    in_shared_memory = "ab" if form.opcode.startswith("wgmma") else ""
    for operand, (atom_layout, height) in layouts.items():
        if operand in in_shared_memory or (name, operand) == (WRONG, "b"):
            continue
        row, column, matrix = elements(form.operands[operand].layout)
        ours = column + row * height if operand == "b" else row + column * height
        lanes = [atom.thr_id(thread) for thread in range(8)] if atom.thr_id else range(len(ours))
        theirs = offsets(atom_layout, len(lanes), ours.shape[1])
        for quad_pair in range(4 if atom.thr_id else 1):
            held = [lane + 4 * quad_pair for lane in lanes]
            np.testing.assert_array_equal(ours[held], theirs, err_msg=f"{operand} of {name}")
            assert (matrix[held] == quad_pair).all()


def test_the_differing_atom_is_not_a_bijection():
    held, theirs = elements(compared()[WRONG].operands["b"].layout), offsets(ATOMS[WRONG].b_layout, 32, 8)
    assert len(np.unique(held[1] + 8 * held[0])) == theirs.size == 256
    assert len(np.unique(theirs)) == 160


@every_case(("name", "atom", "form"), lambda: compared_atoms(CopyAtom))
def test_matrix_copies_have_the_layout_of_the_atom(name, atom, form):
    layout = form.operands["r"].layout
    in_registers, in_memory = atom.dst_layout_bits, atom.src_layout_bits
    if form.opcode.startswith("stmatrix"):
        in_registers, in_memory = in_memory, in_registers
    row, column, matrix = elements(layout)
    theirs = np.array([[in_registers(lane, 16 * v) for v in range(row.shape[1])] for lane in range(32)])
    np.testing.assert_array_equal(128 * (8 * matrix + row) + 16 * column, theirs)
    assert [in_memory(lane, 0) for lane in range(8 * layout.matrices)] == list(
        range(0, 1024 * layout.matrices, 128)
    )
