"""Faults planted in tensor-core kernels and in the model are traced to lane, register and element.

Each fault edits the source of an example kernel at exactly one place. The first wrong element, its
holder and its wrong value are computed from the problem and the PTX ISA's formulas (9.7.14.5.8 and
9.7.14.5.14), not from the map that the report uses. The unedited kernels pass the same checks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import reference
import simwarp
import simwarp.products
from simwarp.lab import recording as lab
from simwarp.lab.recording import examples
from simwarp.observe import WriteObserver
from simwarp.testing.fragments import FragmentDifference, record_fragments
from simwarp.verify import Draw

ROOT = Path(__file__).resolve().parents[3]
FOLDER = examples("kernels")
example = partial(lab.example, "kernels")
common = example("common")

TILE, WARP_TILE = 64, 32
M, N, K = 70, 41, 77


@dataclass(frozen=True)
class Fault:
    """A source edit of a kernel."""

    kernel: str
    old: str
    new: str


FAULTS = {
    "k halves of A exchanged": Fault(
        "gemm_f16",
        ': "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0)',
        ': "r"(a[2]), "r"(a[3]), "r"(a[0]), "r"(a[1]), "r"(b0)',
    ),
    "row stride of ldmatrix halved": Fault(
        "gemm_f16", "&of_a[place(row, column)]", "&of_a[place(row, column) - row * (tile / 2)]"
    ),
    "not transposed": Fault("gemm_f16", "x4.trans.shared", "x4.shared"),
    "rows of the accumulator exchanged": Fault(
        "gemm_f16", "lane / 4 + at / 2 * 8;", "lane / 4 + (1 - at / 2) * 8;"
    ),
    "rows of A exchanged": Fault("gemm_b1", "group + at % 2 * 8]", "group + (1 - at % 2) * 8]"),
    "XOR taken for AND": Fault("gemm_b1", "s32.and.popc", "s32.xor.popc"),
    "leading dimension too small": Fault(
        "gemm_s8",
        "load_matrix_sync(fragment, &matrix.at(row, column), matrix.columns)",
        "load_matrix_sync(fragment, &matrix.at(row, column), matrix.columns - 16)",
    ),
}


@pytest.fixture
def plant(monkeypatch):
    """Make the example use an edited source; the edit without a change is the correct twin."""

    def edit(fault, new=None):
        source = (FOLDER / f"{fault.kernel}.cu").read_text()
        assert source.count(fault.old) == 1
        edited = source.replace(fault.old, fault.new if new is None else new)

        def ptx(name, arch):
            assert name == fault.kernel
            return common.compile(edited, f"kernels/{name}.cu", arch=arch)

        monkeypatch.setattr(common, "ptx", ptx)

    return edit


@pytest.fixture
def plant_fault(plant):
    return lambda name: plant(FAULTS[name])


def tile(matrix, row, column, rows, columns):
    """A tile of a matrix, padded with zeros."""
    part = np.zeros((rows, columns), matrix.dtype)
    inside = matrix[row : row + rows, column : column + columns]
    part[: inside.shape[0], : inside.shape[1]] = inside
    return part


def line_of(kernel, text):
    lines = (FOLDER / f"{kernel}.cu").read_text().splitlines()
    (found,) = [i for i, line in enumerate(lines, 1) if text in line]
    return found


# ---- the kernels, and what each operand of each instruction must be ------------------------------------


class Gemm:
    """An example on our operands: the expected operands of its tensor-core instructions, and its output."""

    kernel = ""
    shape = (16, 8, 16)

    def __init__(self):
        self.device = simwarp.Device()
        with record_fragments(self.device) as self.recorded:
            self.c = getattr(example(self.kernel), self.kernel)(self.device, *self.arguments())

    def warps(self):
        """Block and warp, with the first row and column of c that each warp computes."""
        for x, y, warp in np.ndindex(-(-N // TILE), -(-M // TILE), 4):
            yield (x, y, 0), warp, y * TILE + warp // 2 * WARP_TILE, x * TILE + warp % 2 * WARP_TILE

    def products(self):
        """Every executed mma with its row, column and k, and its predecessor on the same accumulator."""
        m, n, k = self.shape
        for block, warp, row, column in self.warps():
            executed = [e for e in self.recorded.executions(block, warp) if e.opcode.startswith("mma.")]
            for number, execution in enumerate(executed):
                step, i, j = number // 8, number // 4 % 2, number % 4
                before = executed[number - 8] if step else None
                yield execution, row + m * i, column + n * j, k * step, before

    def check(self):
        """Assert that every operand of every product has the expected fragment."""
        m, n, k = self.shape
        for execution, row, column, first, before in self.products():
            execution.check("a", tile(self.a, row, first, m, k))
            execution.check("b", tile(self.b, first, column, k, n))
            start = np.zeros((m, n), np.uint32) if before is None else before.matrix("d")
            execution.check("c", start)
            self.check_result(execution, row, column, first)

    def check_result(self, execution, row, column, first):
        """Assert that memory received the last sums."""
        m, n, k = self.shape
        if first + k >= K and row < M and column < N:
            stored = tile(self.c, row, column, m, n)
            inside = np.indices((m, n)) < np.array([M - row, N - column])[:, None, None]
            execution.check("d", np.where(inside.all(axis=0), stored.view(np.uint32), execution.matrix("d")))


class GemmF16(Gemm):
    kernel = "gemm_f16"

    def arguments(self):
        draw = Draw(3, "planted fragments", 0)
        self.a, self.b = (common.reals(draw, *s).astype(np.float16) for s in ((M, K), (K, N)))
        return self.a, self.b


class GemmB1(Gemm):
    kernel, shape = "gemm_b1", (16, 8, 256)

    def arguments(self):
        draw = Draw(3, "planted fragments", 1)
        signs = [example("gemm_b1").signs(draw, *s) for s in ((M, 2 * K + 300), (2 * K + 300, N))]
        self.a, self.b = ((x > 0).astype(np.uint8) for x in signs)
        self.right = reference.bmm(*signs)
        return signs

    def check_result(self, execution, row, column, first):
        a, b = tile(self.a, row, first, 16, 256), tile(self.b, first, column, 256, 8)
        counts = a.astype(np.int32) @ b.astype(np.int32)
        execution.check("d", execution.matrix("c").view(np.int32) + counts)


class GemmS8(Gemm):
    kernel, shape = "gemm_s8", (16, 16, 16)
    k = 48

    def arguments(self):
        draw = Draw(3, "planted fragments", 2)
        self.a, self.b = (example("gemm_s8").integers(draw, *s) for s in ((M, self.k), (self.k, N)))
        return self.a, self.b

    def products(self):
        for x, y, warp in np.ndindex(-(-N // TILE), -(-M // 16), 4):
            if x * TILE + 16 * warp < N:
                executed = self.recorded.executions((x, y, 0), warp)
                products = [e for e in executed if e.opcode.startswith("wmma.mma.")]
                for step, execution in enumerate(products):
                    before = products[step - 1] if step else None
                    yield execution, 16 * y, x * TILE + 16 * warp, 16 * step, before

    def check_result(self, execution, row, column, first):
        a, b = tile(self.a, row, first, 16, 16), tile(self.b, first, column, 16, 16)
        sums = execution.matrix("c").view(np.int32) + a.astype(np.int32) @ b.astype(np.int32)
        execution.check("d", sums)


GEMMS = {gemm.kernel: gemm for gemm in (GemmF16, GemmB1, GemmS8)}


def found_by(gemm):
    """The first difference found when checking all operands."""
    with pytest.raises(FragmentDifference) as caught:
        gemm.check()
    return caught.value


def assert_found(found, operand, lane, register, bit, element):
    """Assert the operand, lane, register and element of a difference, in its fields and its message."""
    assert (found.operand, found.lane, found.register, found.bit) == (operand, lane, register, bit)
    assert (found.row, found.column, found.matrix) == (*element, 0)
    assert (found.place.block, found.place.warp, found.place.lane) == ((0, 0, 0), 0, lane)
    first, second, third = str(found).splitlines()
    assert f"operand {operand} of {found.opcode}: lane {lane}, register {register}, bit" in first
    assert f"element {list(element)}: kernel {found.place.kernel}, block (0, 0, 0), warp 0" in first
    assert f"{found.wrong} of {found.total} elements differ" in second
    assert third == f"see who holds what: simwarp frag {found.opcode}"


# ---- the faults ------------------------------------------------------------------------------------


def test_exchanged_k_halves_of_a_are_found(plant_fault):
    plant_fault("k halves of A exchanged")
    gemm = GemmF16()
    found = found_by(gemm)
    assert_found(found, "a", 0, 0, 0, (0, 0))
    words = gemm.a.view(np.uint16)
    assert (found.expected, found.got) == (words[0, 0], words[0, 8])
    assert found.pattern == "in all rows and columns; columns 0-7 and 8-15 are exchanged, the halves of k"
    assert found.place.source_file == "kernels/gemm_f16.cu"
    assert found.place.source_line == line_of("gemm_f16", '"r"(b0), "r"(b1));')


def test_a_halved_row_stride_of_ldmatrix_is_found(plant_fault):
    plant_fault("row stride of ldmatrix halved")
    gemm = GemmF16()
    found = found_by(gemm)
    # Row 1 is read half a row after row 0, that is from the second half of row 0.
    assert_found(found, "a", 4, 0, 0, (1, 0))
    shared = tile(gemm.a, 0, 0, 64, 64).view(np.uint16).reshape(64, 8, 8)
    pieces = np.concatenate([row[np.arange(8) ^ y % 8] for y, row in enumerate(shared)])
    assert (found.expected, found.got) == (gemm.a.view(np.uint16)[1, 0], pieces[4 + 1, 0])
    assert found.pattern == "all in rows 1-15"
    assert found.wrong == 15 * 16


def test_an_untransposed_b_is_found(plant_fault):
    plant_fault("not transposed")
    gemm = GemmF16()
    found = found_by(gemm)
    assert_found(found, "b", 4, 0, 0, (0, 1))
    assert (found.expected, found.got) == tuple(gemm.b.view(np.uint16)[[0, 1], [1, 0]])
    assert found.pattern == "here and there in all rows and columns; each 8 x 8 block is transposed"


def test_exchanged_accumulator_rows_at_the_store_are_found(plant_fault):
    plant_fault("rows of the accumulator exchanged")
    gemm = GemmF16()
    found = found_by(gemm)  # the sums differ from those in memory
    assert_found(found, "d", 0, 0, 0, (0, 0))
    right = np.zeros_like(gemm.c)
    right[np.arange(M) ^ 8 * (np.arange(M) < 64)] = gemm.c
    assert found.expected == gemm.c.view(np.uint32)[0, 0]
    assert found.got == gemm.c.view(np.uint32)[8, 0]
    assert found.pattern == "in all rows and columns; rows 0-7 and 8-15 are exchanged"
    # The lane that holds element (0, 0) of c stored it, from another register.
    observer = WriteObserver("c", 0, 4)
    example("gemm_f16").gemm_f16(simwarp.Device(observers=[observer]), gemm.a, gemm.b)
    (write,) = observer.writes
    assert (write.place.lane, write.value) == (found.lane, found.expected)


def test_exchanged_rows_of_a_bit_matrix_are_found(plant_fault):
    plant_fault("rows of A exchanged")
    gemm = GemmB1()
    found = found_by(gemm)
    words = tile(gemm.a, 0, 0, 16, 256)
    differ = words[0, :32] != words[8, :32]
    bit = int(differ.argmax())
    assert_found(found, "a", 0, 0, bit, (0, bit))
    assert (found.expected, found.got) == (words[0, bit], words[8, bit])
    assert found.wrong == 2 * np.count_nonzero(words[:8] != words[8:])
    assert found.pattern.endswith("rows 0-7 and 8-15 are exchanged")


def test_xor_instead_of_and_is_found(plant_fault):
    plant_fault("XOR taken for AND")
    gemm = GemmB1()
    found = found_by(gemm)
    a, b = tile(gemm.a, 0, 0, 16, 256).astype(int), tile(gemm.b, 0, 0, 256, 8).astype(int)
    right, wrong = a @ b, (a[:, :, None] != b).sum(axis=1)
    row, column = next(at for at in ((0, 0), (0, 1), (8, 0), (8, 1)) if right[at] != wrong[at])
    assert_found(found, "d", 0, row // 8 * 2 + column, 0, (row, column))
    assert (found.expected, found.got) == (right[row, column], wrong[row, column])
    assert found.wrong == np.count_nonzero(right != wrong)


def test_a_too_small_leading_dimension_is_found(plant_fault):
    plant_fault("leading dimension too small")
    gemm = GemmS8()
    found = found_by(gemm)
    bytes_of_a = gemm.a.view(np.uint8)
    in_memory = bytes_of_a.reshape(-1)
    column = next(c for c in range(16) if in_memory[32 + c] != bytes_of_a[1, c])
    assert_found(found, "a", 4 + column // 4, 0, column % 4 * 8, (1, column))
    assert (found.expected, found.got) == (bytes_of_a[1, column], in_memory[32 + column])
    assert found.pattern.startswith("all in rows 1-15")


# ---- in the model ----------------------------------------------------------------------------------


@pytest.fixture
def round_to_nearest(monkeypatch):
    """Make the simulator round tensor-core sums to nearest instead of truncating them."""
    rule_of = simwarp.products.rule_of
    monkeypatch.setattr(simwarp.products, "rule_of", lambda *form: replace(rule_of(*form), rounding="rn"))


ROW, COLUMN = np.indices((16, 8))


def sums_about_one():
    """Operands with sums 1 + 2^-26 (row + 1) (column + 1), and the truncated sums of a chip.

    On an H200 (docs/silicon.md) the product beside 1 is cut off at 2^-25, the sum at 2^-23.
    """
    a, b = np.ones((16, 2), np.float16), np.ones((2, 8), np.float16)
    a[:, 1], b[1] = 2.0**-13 * (ROW[:, 0] + 1), 2.0**-13 * (COLUMN[0] + 1)
    return a, b, (ROW + 1) * (COLUMN + 1) // 2


def first_product(a, b):
    device = simwarp.Device()
    with record_fragments(device, "mma") as recorded:
        example("gemm_f16").gemm_f16(device, a, b)
    return recorded.executions(block=0, warp=0)[0]


def test_rounding_instead_of_truncation_is_reported(round_to_nearest):
    a, b, quarters = sums_about_one()  # of the last place that a sum keeps
    cut, rounded = quarters // 4, np.rint(quarters / 4).astype(int)
    with pytest.raises(FragmentDifference) as caught:
        first_product(a, b).check("d", (1 + 2.0**-23 * cut).astype(np.float32))
    found = caught.value
    row, column = (int(i) for i in np.argwhere(cut != rounded)[0])
    assert_found(found, "d", row % 8 * 4 + column // 2, row // 8 * 2 + column % 2, 0, (row, column))
    one = np.float32(1).view(np.uint32)
    assert (found.expected, found.got) == (one + cut[row, column], one + rounded[row, column])
    assert found.wrong == np.count_nonzero(cut != rounded)
    assert found.pattern.endswith("each is one unit in the last place further from zero: another rounding")


def test_truncation_is_not_reported():
    a, b, quarters = sums_about_one()
    first_product(a, b).check("d", (1 + 2.0**-23 * (quarters // 4)).astype(np.float32))


@pytest.fixture(scope="module")
def silicon():
    """Output of gemm_f16 on its own operands, recorded on a GPU by `simwarp record kernels`."""
    return lab.recorded("kernels").arrays["gemm_f16.product.0"]


def last_products(operands):
    """The last product of each tile of c, with the row and column of the tile."""
    device = simwarp.Device()
    with record_fragments(device, "mma") as recorded:
        example("gemm_f16").gemm_f16(device, *operands)
    return [(e, 16 * (n // 4), 8 * (n % 4)) for n, e in enumerate(recorded.executions(warp=0)[-8:])]


def test_silicon_sums_differ_from_rounded_sums(silicon, round_to_nearest):
    wrong = 0
    for execution, row, column in last_products(example("gemm_f16").draw(0)):
        with pytest.raises(FragmentDifference) as caught:
            execution.check("d", silicon[row : row + 16, column : column + 8])
        wrong += caught.value.wrong
    assert wrong > 32 * 32 / 2  # of six consecutive sums, most are inexact


def test_silicon_agrees_with_the_correct_twin(silicon):
    for execution, row, column in last_products(example("gemm_f16").draw(0)):
        execution.check("d", silicon[row : row + 16, column : column + 8])


# ---- the twins -------------------------------------------------------------------------------------


@pytest.mark.at_most(3)
@pytest.mark.slow_cases("leading dimension too small")
@pytest.mark.parametrize("name", FAULTS)
def test_the_correct_twin_is_not_reported(plant, name):
    plant(FAULTS[name], FAULTS[name].old)
    GEMMS[FAULTS[name].kernel]().check()


def test_the_twins_are_right_and_every_product_is_checked():
    for name, products in (("gemm_f16", 2 * 4 * 8 * 8), ("gemm_b1", 2 * 4 * 8 * 2), ("gemm_s8", 5 * 3 * 3)):
        gemm = GEMMS[name]()
        assert len(list(gemm.products())) == products
    np.testing.assert_array_equal(GemmB1().c, GemmB1().right)
