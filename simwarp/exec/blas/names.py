"""The C functions of the library: each routine of the table by its Fortran and its CBLAS name."""

from __future__ import annotations

from collections.abc import Iterator

from gpu.blas3.table import LETTERS, PREFIXES, ROWS, Row

_REAL = {"s": "float", "d": "double", "c": "float", "z": "double"}


def exported() -> list[str]:
    """The names of all functions of the library, without those of its own.

    >>> exported()[:2]
    ['sgemm_', 'cblas_sgemm']
    """
    names = [f"{prefix}{row.name}" for prefix, row in _routines()]
    return [form.format(name) for name in names for form in ("{}_", "cblas_{}")]


def c_functions() -> str:
    """The C source of the functions, which ``blas.c`` includes."""
    parts = [part for prefix, row in _routines() for part in (_fortran(prefix, row), _cblas(prefix, row))]
    return "/* Written by simwarp/exec/blas/names.py. */\n" + "\n".join(parts)


def _routines() -> Iterator[tuple[str, Row]]:
    """The letter of the dtype and the row of each routine."""
    return ((prefix, row) for row in ROWS.values() for prefix in PREFIXES if prefix in row.prefixes)


def _fortran(prefix: str, row: Row) -> str:
    """The function of Fortran's interface: every argument is an address, lengths of letters come last."""
    kinds = {name: _fortran_type(name) for name in row.positions}
    letters = [name for name in row.positions if name in LETTERS]
    fields = {name: f"*{name}" if kinds[name] in ("const char *", "const int *") else name for name in kinds}
    return _function(
        f"{prefix}{row.name}_",
        ", ".join(f"{kind}{name}" for name, kind in kinds.items()),
        ", ".join([*kinds, *["(size_t) 1"] * len(letters)]),
        ", ".join([*kinds.values(), *["size_t"] * len(letters)]),
        f"{prefix}{row.name}",
        row,
        {name: f"upper({value})" if name in LETTERS else value for name, value in fields.items()},
    )


def _fortran_type(name: str) -> str:
    if name in LETTERS:
        return "const char *"
    return "const int *" if name in ("m", "n", "k") or name.startswith("ld") else "const void *"


def _cblas(prefix: str, row: Row) -> str:
    """The function of CBLAS: flags are numbers, real scalars are values, and the order comes first."""
    kinds = {"order": "int "} | {name: _cblas_type(prefix, row, name) for name in row.positions}
    fields = {name: f"&{name}" if kind in ("float ", "double ") else name for name, kind in kinds.items()}
    fields = {name: f"letter({value})" if name in LETTERS else value for name, value in fields.items()}
    return _function(
        f"cblas_{prefix}{row.name}",
        ", ".join(f"{kind}{name}" for name, kind in kinds.items()),
        ", ".join(kinds),
        ", ".join(kinds.values()),
        f"{prefix}{row.name}",
        row,
        fields,
    )


def _cblas_type(prefix: str, row: Row, name: str) -> str:
    if name in ("a", "b", "c"):
        return "const void *"
    if name not in ("alpha", "beta"):
        return "int "
    return "const void *" if prefix in "cz" and name not in row.real else f"{_REAL[prefix]} "


def _function(
    name: str, given: str, passed: str, types: str, routine: str, row: Row, fields: dict[str, str]
) -> str:
    """A function that offers its call to Python, and else passes it to the next BLAS."""
    size = fields | ({} if "m" in fields else {"m": fields["n"]})
    if "k" not in size:  # sums are as long as A is wide
        size["k"] = f"call.side == 'L' ? {size['m']} : {size['n']}"
    last = size.pop("k")
    settings = "".join(f"    call.{field} = {value};\n" for field, value in size.items())
    return (
        f"void {name}({given})\n"
        "{\n"
        f"    static _Atomic(void *) found;\n"
        f'    struct call call = {{.routine = "{routine}", .order = COLUMNS}};\n'
        f"{settings}    call.k = {last};\n"
        "    if (takes(&call))\n"
        "        return;\n"
        f'    void (*next)({types}) = next_of(&found, "{name}");\n'
        "    if (next) {\n"
        "        is_inside++;\n"
        f"        next({passed});\n"
        "        is_inside--;\n"
        "    } else\n"
        f'        must_take(&call, "{name}");\n'
        "}\n"
    )
