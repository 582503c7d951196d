"""Wrong arguments of level-3 BLAS, by name and position."""

from typing import Any

import numpy as np
import pytest

from gpu.blas3.arguments import call_of, operand
from gpu.blas3.table import ROWS
from gpu.host_memory import overlap
from reference.errors import DtypeError, FormatError, SchemeError, ShapeError


def matrix(rows: int, columns: int, dtype: Any = "float64", order: Any = "F") -> Any:
    return np.ones((rows, columns), dtype, order=order)


@pytest.mark.parametrize(
    ("routine", "given", "flags", "error", "text"),
    [
        (
            "dgemm",
            {"a": (2, 3), "b": (4, 5), "c": (2, 5)},
            {},
            ShapeError,
            "dgemm, argument 9 .b.: shape .4, 5",
        ),
        ("dgemm", {"a": (2, 3), "b": (3, 5), "c": (5, 2)}, {}, ShapeError, "argument 12 .c."),
        ("dgemm", {"a": (3, 2), "b": (3, 5), "c": (3, 5)}, {"trans_a": "T"}, ShapeError, "argument 12 .c."),
        ("dsymm", {"a": (3, 2), "b": (3, 5), "c": (3, 5)}, {}, ShapeError, "argument 6 .a."),
        ("dsymm", {"a": (3, 3), "b": (3, 5), "c": (3, 5)}, {"side": "R"}, ShapeError, "argument 6 .a."),
        ("dsyrk", {"a": (3, 2), "c": (3, 2)}, {}, ShapeError, "argument 9 .c."),
        ("dsyr2k", {"a": (3, 2), "b": (2, 3), "c": (3, 3)}, {}, ShapeError, "argument 8 .b."),
        ("dtrsm", {"a": (3, 3), "b": (4, 3)}, {}, ShapeError, "argument 8 .a."),
    ],
)
def test_a_wrong_shape_is_refused_by_position(
    routine: str, given: dict[Any, Any], flags: dict[str, Any], error: Any, text: str
) -> None:
    with pytest.raises(error, match=text):
        call_of(routine, 1.0, 1.0, {name: matrix(*shape) for name, shape in given.items()}, flags)


def test_a_wrong_dtype_names_the_right_routine() -> None:
    with pytest.raises(DtypeError, match=r"argument 7 \(a\): dtype float32[\s\S]*call sgemm"):
        operand("dgemm", "a", matrix(2, 2, "float32"))
    with pytest.raises(DtypeError, match="another routine"):
        operand("zhemm", "a", matrix(2, 2, "float64"))
    with pytest.raises(DtypeError, match="another routine"):
        operand("dgemm", "a", matrix(2, 2, "int32"))


@pytest.mark.parametrize(
    "x", [np.ones((4, 6))[::2, ::2], np.ones((4, 4))[::-1], np.broadcast_to(1.0, (3, 3))]
)
def test_neither_rows_nor_columns_contiguous_is_refused(x: Any) -> None:
    with pytest.raises(FormatError, match=r"argument 9 \(b\): strides"):
        operand("dgemm", "b", x)


def test_a_vector_is_not_a_matrix() -> None:
    with pytest.raises(ShapeError, match=r"shape \(3,\)"):
        operand("dgemm", "a", np.ones(3))


def test_a_list_is_converted() -> None:
    assert operand("sgemm", "a", [[1, 2]]).dtype == np.float32


@pytest.mark.parametrize(
    ("routine", "alpha", "beta", "text"),
    [
        ("dsyrk", 1j, 0.0, r"argument 5 \(alpha\)"),
        ("zherk", 1j, 0.0, r"argument 5 \(alpha\)"),
        ("zherk", 1.0, 1j, r"argument 8 \(beta\)"),
        ("dsyrk", "two", 0.0, "a number is needed"),
        ("dsyrk", 1.0, None, "a number is needed"),
    ],
)
def test_a_wrong_scalar_is_refused(routine: str, alpha: Any, beta: Any, text: str) -> None:
    dtype = "complex128" if routine[0] == "z" else "float64"
    with pytest.raises(DtypeError, match=text):
        call_of(routine, alpha, beta, {"a": matrix(2, 2, dtype), "c": matrix(2, 2, dtype)}, {})


@pytest.mark.parametrize(("routine", "trans"), [("zsyrk", "C"), ("zherk", "T")])
def test_a_transpose_that_an_update_lacks_is_refused(routine: str, trans: Any) -> None:
    x: Any = {"a": matrix(2, 2, complex), "c": matrix(2, 2, complex)}
    with pytest.raises(SchemeError, match=r"argument 2 \(trans_a\)"):
        call_of(routine, 1.0, 0.0, x, {"trans_a": trans})


def test_a_result_that_shares_memory_with_an_operand_is_refused() -> None:
    whole = matrix(8, 8)
    with pytest.raises(FormatError, match="shares memory with a"):
        call_of("dgemm", 1.0, 0.0, {"a": whole[:4, :4], "b": matrix(4, 4), "c": whole[3:7, 3:7]}, {})
    with pytest.raises(FormatError, match="shares memory with a"):
        call_of("dtrsm", 1.0, 0.0, {"a": whole, "b": whole}, {})


def test_parts_of_one_matrix_that_interleave_do_not_share_memory() -> None:
    whole = matrix(8, 8)
    assert not overlap(whole[:4], [whole[4:]])
    assert overlap(whole[:5], [whole[4:]])


def test_a_read_only_result_is_refused() -> None:
    c = matrix(2, 2)
    c.flags.writeable = False
    with pytest.raises(FormatError, match="read-only"):
        call_of("dgemm", 1.0, 0.0, {"a": matrix(2, 2), "b": matrix(2, 2), "c": c}, {})


def test_positions_are_those_of_the_fortran_interface() -> None:
    assert {routine: len(row.positions) for routine, row in ROWS.items()} == {
        "gemm": 13, "gemmt": 13, "symm": 12, "hemm": 12, "syrk": 10, "herk": 10, "syr2k": 12, "her2k": 12,
        "trmm": 11, "trsm": 11,
    }  # fmt: skip
