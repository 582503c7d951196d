"""Level-3 BLAS as a table: signature, checks, calls and docs of a routine are derived from its row.

>>> row = ROWS["syrk"]
>>> row.arguments
('alpha', 'a', 'beta', 'c', 'trans', 'lower', 'overwrite_c')
>>> row.result, row.is_triangle, row.letters(is_real=False)
('c', True, {'uplo': 'UL', 'trans_a': 'NT'})
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

Form: TypeAlias = Literal["general", "symmetric", "rank_k", "triangular"]
"""The products of tiles: op(A) op(B), with a symmetric A, of an update, or with a triangular A in place."""
Name: TypeAlias = Literal["a", "b", "c"]

LETTERS = {"side": "LR", "uplo": "UL", "trans_a": "NTC", "trans_b": "NTC", "diag": "NU"}
"""The flags of the Fortran interface: their letters, in the order of SciPy's integers."""
_FLAG = {"trans": "trans_a", "lower": "uplo"}
"""SciPy's names of flags that differ."""


@dataclass(frozen=True)
class Row:
    """A routine of level 3, without the letter of its dtype.

    Without M among its arguments the result is square, and only one triangle of it is written; without K sums
    are as long as A is wide.
    """

    name: str
    fortran: str  # the arguments of the Fortran interface, in its order
    flags: str  # SciPy's names of the flags, in SciPy's order
    form: Form
    computed: str  # the formula for docs
    example: str  # the operands of the docstring's example, after an alpha of 2
    answer: str  # the numbers that the example prints
    hermitian: bool = False  # whether the routine conjugates; its dtypes are then complex
    real: tuple[str, ...] = ()  # scalars that are real even if matrices are complex

    @cached_property
    def positions(self) -> tuple[str, ...]:
        """The argument names of the Fortran interface, in order."""
        return tuple(self.fortran.split())

    @cached_property
    def result(self) -> Name:
        """The name of the matrix that the routine writes."""
        return "c" if "c" in self.positions else "b"

    @cached_property
    def inputs(self) -> tuple[Name, ...]:
        """The input operands: A, or A and B; B even if the routine overwrites it."""
        return ("a", "b") if "b" in self.positions else ("a",)

    @cached_property
    def is_triangle(self) -> bool:
        """True if the routine writes only one triangle of a square result."""
        return "m" not in self.positions

    @cached_property
    def has_k(self) -> bool:
        """True if the routine has an argument K; otherwise K is the order of A."""
        return "k" in self.positions

    @cached_property
    def products(self) -> int:
        """The number of matrix products that the routine adds up."""
        return 2 if self.form == "rank_k" and "b" in self.positions else 1

    @cached_property
    def prefixes(self) -> str:
        """The BLAS prefix letters of the dtypes that the routine has."""
        return "cz" if self.hermitian else "sdcz"

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """The routine's argument names in the order of SciPy's signature."""
        added = ("beta", "c") if self.result == "c" else ()
        return "alpha", *self.inputs, *added, *self.flags.split(), f"overwrite_{self.result}"

    def letters(self, *, is_real: bool) -> dict[str, str]:
        """The routine's flags, each with its valid letters."""
        letters = {flag: LETTERS[flag] for flag in LETTERS if flag in self.positions}
        if self.form == "rank_k" and not is_real:
            letters["trans_a"] = "NC" if self.hermitian else "NT"
        return letters

    def numbers(self, letters: Mapping[str, str]) -> dict[str, int]:
        """SciPy's flags for letters.

        >>> ROWS["trsm"].numbers({"side": "R", "uplo": "U"})
        {'side': 1, 'lower': 0}
        """
        names = {name: flag_of(name) for name in self.flags.split()}
        return {name: LETTERS[flag].index(letters[flag]) for name, flag in names.items() if flag in letters}


def flag_of(name: str) -> str:
    """The name used here for a flag of SciPy."""
    return _FLAG.get(name, name)


_ON_A_SIDE = "side uplo m n alpha a lda b ldb beta c ldc"
_UPDATE = "uplo trans_a n k alpha a lda beta c ldc"
_UPDATE_OF_TWO = "uplo trans_a n k alpha a lda b ldb beta c ldc"
_IN_PLACE = "side uplo trans_a diag m n alpha a lda b ldb"
_PAIR = "[[2.0, 0.0], [0.0, 4.0]], [[1.0], [1.0]]"
_COLUMN = "[[1.0], [2.0]]"
_COLUMNS = "[[1.0], [2.0]], [[3.0], [4.0]]"

# fmt: off
_TABLE = (
    Row("gemm", "trans_a trans_b m n k alpha a lda b ldb beta c ldc", "trans_a trans_b", "general",
        "alpha op(A) op(B) + beta C", _PAIR, "[4.0, 8.0]"),
    Row("gemmt", "uplo trans_a trans_b n k alpha a lda b ldb beta c ldc", "trans_a trans_b lower", "general",
        "one triangle of alpha op(A) op(B) + beta C",
        "[[1.0], [2.0]], [[3.0, 4.0]]", "[6.0, 8.0, 0.0, 16.0]"),
    Row("symm", _ON_A_SIDE, "side lower", "symmetric",
        "alpha A B + beta C, or alpha B A + beta C, with A symmetric", _PAIR, "[4.0, 8.0]"),
    Row("hemm", _ON_A_SIDE, "side lower", "symmetric",
        "alpha A B + beta C, or alpha B A + beta C, with A Hermitian", _PAIR, "[4.0, 8.0]", hermitian=True),
    Row("syrk", _UPDATE, "trans lower", "rank_k",
        "one triangle of alpha A Aᵀ + beta C, or of alpha Aᵀ A + beta C", _COLUMN, "[2.0, 4.0, 0.0, 8.0]"),
    Row("herk", _UPDATE, "trans lower", "rank_k",
        "one triangle of alpha A Aᴴ + beta C, or of alpha Aᴴ A + beta C", _COLUMN, "[2.0, 4.0, 0.0, 8.0]",
        hermitian=True, real=("alpha", "beta")),
    Row("syr2k", _UPDATE_OF_TWO, "trans lower", "rank_k",
        "one triangle of alpha (A Bᵀ + B Aᵀ) + beta C, or of the form with AᵀB",
        _COLUMNS, "[12.0, 20.0, 0.0, 32.0]"),
    Row("her2k", _UPDATE_OF_TWO, "trans lower", "rank_k",
        "one triangle of alpha A Bᴴ + conj(alpha) B Aᴴ + beta C, or of the form with AᴴB",
        _COLUMNS, "[12.0, 20.0, 0.0, 32.0]", hermitian=True, real=("beta",)),
    Row("trmm", _IN_PLACE, "side lower trans_a diag", "triangular",
        "alpha op(A) B, or alpha B op(A), with A triangular",
        "[[1.0, 2.0], [0.0, 4.0]], [[1.0], [1.0]]", "[6.0, 8.0]"),
    Row("trsm", _IN_PLACE, "side lower trans_a diag", "triangular",
        "X of op(A) X = alpha B, or of X op(A) = alpha B, with A triangular",
        "[[1.0, 2.0], [0.0, 4.0]], [[4.0], [4.0]]", "[4.0, 2.0]"),
)
# fmt: on
ROWS = {row.name: row for row in _TABLE}
"""The routines of level 3."""
PREFIXES = {"s": "float32", "d": "float64", "c": "complex64", "z": "complex128"}
NAMES = tuple(prefix + row.name for row in ROWS.values() for prefix in row.prefixes)
"""The BLAS names of all routines."""
