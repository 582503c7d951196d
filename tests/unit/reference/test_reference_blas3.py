"""Level-3 BLAS by definition: against SciPy's BLAS and fractions, every flag, ragged sizes, errors."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.linalg import blas

from reference import DtypeError, NotANumberError, SchemeError, ShapeError
from reference.blas3 import ROUTINES, error_of, gemm, gemmt, her2k, herk, symm, syrk, trmm, trsm

RNG = np.random.default_rng(3)
PREFIX = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
REAL = ("float32", "float64")


def matrix(dtype, *shape):
    x = RNG.standard_normal(shape)
    return (x + 1j * RNG.standard_normal(shape) if dtype.startswith("c") else x).astype(dtype)


def number(dtype):
    return (
        complex(RNG.standard_normal(), RNG.standard_normal())
        if dtype.startswith("c")
        else float(RNG.standard_normal())
    )


def triangular(dtype, order):
    """Of a modest condition."""
    return matrix(dtype, order, order) + np.eye(order, dtype=dtype) * 3 * order


def of_dtypes(*names):
    """Routines and their dtypes: Hermitian ones of BLAS are complex."""
    return [(name, dtype) for name in names for dtype in PREFIX if name[0] != "h" or dtype not in REAL]


def flags_of(**values):
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def of_scipy(name, dtype, *arguments, **flags):
    """The same call of SciPy, whose flags are numbers."""
    numbers = {"N": 0, "T": 1, "C": 2}
    given = {
        **{key: numbers[flags[key]] for key in ("trans_a", "trans_b") if key in flags},
        **({"side": int(flags["side"] == "R")} if "side" in flags else {}),
        **({"lower": int(flags["uplo"] == "L")} if "uplo" in flags else {}),
        **({"diag": int(flags["diag"] == "U")} if "diag" in flags else {}),
    }
    if "trans" in flags:
        given["trans_a" if name in ("trmm", "trsm") else "trans"] = numbers[flags["trans"]]
    return getattr(blas, PREFIX[dtype] + name)(*arguments, **given)


@pytest.mark.parametrize("dtype", PREFIX)
def test_gemm_equals_scipy(dtype):
    for flags in flags_of(trans_a="NTC", trans_b="NTC"):
        a = matrix(dtype, *((5, 7) if flags["trans_a"] == "N" else (7, 5)))
        b = matrix(dtype, *((7, 3) if flags["trans_b"] == "N" else (3, 7)))
        arguments = number(dtype), a, b, number(dtype), matrix(dtype, 5, 3)
        assert error_of("gemm", of_scipy("gemm", dtype, *arguments, **flags), *arguments, **flags) <= 1


@pytest.mark.parametrize(("name", "dtype"), of_dtypes("symm", "hemm"))
def test_symmetric_products_equal_scipy(name, dtype):
    for flags in flags_of(side="LR", uplo="UL"):
        a, b = matrix(dtype, *(2 * ((6,) if flags["side"] == "L" else (4,)))), matrix(dtype, 6, 4)
        arguments = number(dtype), a, b, number(dtype), matrix(dtype, 6, 4)
        assert error_of(name, of_scipy(name, dtype, *arguments, **flags), *arguments, **flags) <= 1


@pytest.mark.parametrize(("name", "dtype"), of_dtypes("syrk", "herk", "syr2k", "her2k"))
def test_rank_k_updates_equal_scipy(name, dtype):
    hermitian = name.startswith("he")
    for flags in flags_of(uplo="UL", trans="NC" if hermitian else "NT"):
        shape = (5, 8) if flags["trans"] == "N" else (8, 5)
        operands = [matrix(dtype, *shape) for _ in range(2 if "2" in name else 1)]
        alpha = number("float64") if name == "herk" else number(dtype)
        beta = number("float64") if hermitian else number(dtype)
        arguments = alpha, *operands, beta, matrix(dtype, 5, 5)
        result = of_scipy(name, dtype, *arguments, **flags)
        assert error_of(name, result, *arguments, **flags) <= 1, flags


@pytest.mark.parametrize("dtype", PREFIX)
@pytest.mark.parametrize("name", ["trmm", "trsm"])
def test_triangular_routines_equal_scipy(name, dtype):
    for flags in flags_of(side="LR", uplo="UL", trans="NTC", diag="NU"):
        a = triangular(dtype, 6 if flags["side"] == "L" else 5)
        if flags["diag"] == "U":
            a /= 20
        arguments = number(dtype), a, matrix(dtype, 6, 5)
        assert error_of(name, of_scipy(name, dtype, *arguments, **flags), *arguments, **flags) <= 1, flags


def test_products_are_rounded_once():
    """Against fractions: the nearest double of the exact sum."""
    a, b, c = matrix("float64", 3, 40), matrix("float64", 40, 2), matrix("float64", 3, 2)
    alpha, beta = 0.7, -1.3
    for (i, j), found in np.ndenumerate(gemm(alpha, a, b, beta, c)):
        exact = Fraction(alpha) * sum(Fraction(x) * Fraction(y) for x, y in zip(a[i], b[:, j], strict=True))
        exact += Fraction(beta) * Fraction(c[i, j])
        assert abs(Fraction(found) - exact) <= abs(Fraction(float(np.spacing(found)))) * Fraction(51, 100)


def test_what_is_not_to_be_read_may_be_nan():
    a, b = matrix("float64", 4, 4), matrix("float64", 4, 3)
    nan = np.full((4, 3), np.nan)
    assert np.isfinite(gemm(1.0, a, b, 0.0, nan)).all()
    lower = np.where(np.tri(4, k=-1) > 0, np.nan, a)
    assert np.isfinite(symm(1.0, lower, b)).all()
    assert np.isfinite(trmm(1.0, lower, b)).all()
    unit = lower.copy()
    np.fill_diagonal(unit, np.nan)
    assert np.isfinite(trsm(1.0, unit, b, diag="U")).all()
    c = np.where(np.tri(4, k=-1) > 0, np.nan, a)
    after = syrk(1.0, b, 2.0, c)
    assert np.isnan(after[np.tri(4, k=-1) > 0]).all()
    assert np.isfinite(after[np.tri(4, k=-1) == 0]).all()


def test_hermitian_diagonals_are_real():
    a, c = matrix("complex128", 4, 3), matrix("complex128", 4, 4)
    for result in (herk(2.0, a, 1.0, c), her2k(1 + 2j, a, a, 1.0, c)):
        assert not np.diagonal(result).imag.any()


@pytest.mark.parametrize("k", [0, 1])
def test_sums_of_few_terms(k):
    c = matrix("float64", 3, 2)
    a, b = matrix("float64", 3, k), matrix("float64", k, 2)
    assert error_of("gemm", a @ b + c, 1.0, a, b, 1.0, c) <= 1
    assert gemm(1.0, matrix("float64", 0, 4), matrix("float64", 4, 2)).shape == (0, 2)


MISTAKES = {
    "a term left out": lambda a, b: a[:, 1:] @ b[1:],
    "a term twice": lambda a, b: a @ b + np.outer(a[:, 0], b[0]),
    "less precision": lambda a, b: (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float64),
    "a NaN": lambda a, b: np.where(np.eye(9) > 0, np.nan, a @ b),
    "another dtype": lambda a, b: (a @ b).astype(np.float32),
    "another shape": lambda a, b: (a @ b)[:-1],
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_result_is_beyond_the_bound(mistake):
    a, b = matrix("float64", 9, 30), matrix("float64", 30, 9)
    assert error_of("gemm", a @ b, 1.0, a, b) <= 1
    assert error_of("gemm", MISTAKES[mistake](a, b), 1.0, a, b) > 1


def test_a_wrong_solution_and_a_changed_triangle_are_beyond_the_bound():
    a, b = triangular("float64", 8), matrix("float64", 8, 4)
    x = trsm(1.5, a, b)
    assert error_of("trsm", x, 1.5, a, b) <= 1 < error_of("trsm", x * (1 + 1e-12), 1.5, a, b)
    assert error_of("trsm", x, 1.4, a, b) > 1
    c = matrix("float64", 8, 8)
    after = syrk(1.0, b, 1.0, c)
    after[5, 2] = np.nextafter(after[5, 2], 9)
    assert error_of("syrk", after, 1.0, b, 1.0, c) == np.inf


A, B = np.ones((2, 3)), np.ones((3, 4))
REFUSED = {
    "flag": (lambda: gemm(1.0, A, B, trans_a="H"), SchemeError, "no trans_a='H'"),
    "K": (lambda: gemm(1.0, A, A), ShapeError, "K is 3 in a and 2 in b"),
    "c": (lambda: gemm(1.0, A, B, 1.0, B), ShapeError, r"c has shape \(3, 4\): the result has \(2, 4\)"),
    "no c": (lambda: gemm(1.0, A, B, 1.0), ShapeError, "c is missing"),
    "dtypes": (lambda: gemm(1.0, A, B.astype(np.float32)), DtypeError, "a float64, b float32"),
    "integers": (lambda: gemm(1.0, A.astype(int), B), DtypeError, "a is of int64"),
    "axes": (lambda: gemm(1.0, A[0], B), ShapeError, "give a matrix"),
    "square": (lambda: trmm(1.0, A, B), ShapeError, "a square matrix is needed"),
    "order": (lambda: symm(1.0, np.eye(4), B), ShapeError, "a must be of order 3"),
    "singular": (lambda: trsm(1.0, np.zeros((3, 3)), B), NotANumberError, r"a\[0, 0\] is 0"),
    "trans": (lambda: herk(1.0, A + 0j, trans="T"), SchemeError, "choose 'N' or 'C'"),
    "beta": (lambda: herk(1.0, A + 0j, 1j, np.eye(2) + 0j), DtypeError, "needs real ones"),
    "triangle": (lambda: gemmt(1.0, A, B), ShapeError, "a square matrix is needed"),
    "routine": (lambda: error_of("gemv", A, 1.0, A), SchemeError, "no routine='gemv'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_arguments_that_do_not_fit_are_refused(case):
    call, error, text = REFUSED[case]
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("dtype", PREFIX)
@pytest.mark.parametrize("uplo", "UL")
def test_gemmt_is_one_triangle_of_scipys_gemm(dtype, uplo):
    a, b, c = matrix(dtype, 5, 3), matrix(dtype, 5, 3), matrix(dtype, 5, 5)
    alpha, beta = number(dtype), number(dtype)
    kept = np.tri(5, dtype=bool) if uplo == "L" else np.tri(5, dtype=bool).T
    found = gemmt(alpha, a, b, beta, c, uplo=uplo, trans_b="C")
    whole = of_scipy("gemm", dtype, alpha, a, b, beta, c, trans_b="C")
    expected = np.where(kept, whole, c).astype(dtype)
    assert error_of("gemmt", expected, alpha, a, b, beta, c, uplo=uplo, trans_b="C") <= 1
    assert (found[~kept] == c[~kept]).all()
    expected[~kept] += 1
    assert error_of("gemmt", expected, alpha, a, b, beta, c, uplo=uplo, trans_b="C") == np.inf
    expected[~kept] = c[~kept]
    expected[kept] *= 1 + 1e-3
    assert error_of("gemmt", expected, alpha, a, b, beta, c, uplo=uplo, trans_b="C") > 1


def test_all_ten_routines_are_there():
    assert [*ROUTINES] == ["gemm", "gemmt", "symm", "hemm", "syrk", "herk", "syr2k", "her2k", "trmm", "trsm"]
