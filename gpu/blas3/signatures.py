"""SciPy's signatures of level-3 BLAS, as a table, and what their integers mean."""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import Any

from gpu.blas3.arguments import refuse
from reference.errors import SchemeError

_REQUIRED = ("alpha", "a", "b")
_DEFAULTS: dict[str, Any] = {"beta": 0.0, "c": None}
"""Of everything else the default is 0."""

POSITIONAL: dict[str, tuple[str, ...]] = {
    "gemm": ("alpha", "a", "b", "beta", "c", "trans_a", "trans_b", "overwrite_c"),
    "symm": ("alpha", "a", "b", "beta", "c", "side", "lower", "overwrite_c"),
    "hemm": ("alpha", "a", "b", "beta", "c", "side", "lower", "overwrite_c"),
    "syrk": ("alpha", "a", "beta", "c", "trans", "lower", "overwrite_c"),
    "herk": ("alpha", "a", "beta", "c", "trans", "lower", "overwrite_c"),
    "syr2k": ("alpha", "a", "b", "beta", "c", "trans", "lower", "overwrite_c"),
    "her2k": ("alpha", "a", "b", "beta", "c", "trans", "lower", "overwrite_c"),
    "trmm": ("alpha", "a", "b", "side", "lower", "trans_a", "diag", "overwrite_b"),
    "trsm": ("alpha", "a", "b", "side", "lower", "trans_a", "diag", "overwrite_b"),
}
"""The arguments in SciPy's order."""
KEYWORDS = ("device", "tile", "memory_budget", "options", "statistics")
"""Arguments that SciPy does not have."""

_FLAGS: dict[str, tuple[str, str]] = {
    "trans": ("trans_a", "NTC"),
    "trans_a": ("trans_a", "NTC"),
    "trans_b": ("trans_b", "NTC"),
    "side": ("side", "LR"),
    "lower": ("uplo", "UL"),
    "diag": ("diag", "NU"),
}
"""Our name of each flag, and its letter for each of SciPy's integers."""


def signature_of(kind: str) -> Signature:
    """The signature of a routine.

    >>> str(signature_of("trsm")).partition(", *")[0]
    '(alpha, a, b, side=0, lower=0, trans_a=0, diag=0, overwrite_b=0'
    """
    names = POSITIONAL[kind]
    parameters = [
        Parameter(
            name,
            Parameter.POSITIONAL_OR_KEYWORD,
            default=Parameter.empty if name in _REQUIRED else _DEFAULTS.get(name, 0),
        )
        for name in names
    ]
    parameters += [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in KEYWORDS]
    return Signature(parameters)


def flags_of(routine: str, given: dict[str, Any]) -> dict[str, str]:
    """The flags' letters from SciPy's integers.

    >>> flags_of("dsymm", {"alpha": 1.0, "side": 1, "lower": 0})
    {'side': 'R', 'uplo': 'U'}
    """
    flags: dict[str, str] = {}
    for name, value in given.items():
        if name not in _FLAGS:
            continue
        argument, letters = _FLAGS[name]
        if value not in range(len(letters)):
            meaning = ", ".join(f"{number} for {letter}" for number, letter in enumerate(letters))
            refuse(SchemeError, routine, argument, f"{name}={value!r}", meaning, "choose one of them")
        flags[argument] = letters[int(value)]
    return flags
