"""Which fields of a sparse tensor's dataclass hold what they are declared to hold."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from reference.errors import DtypeError, FormatError


def check_fields(tensor: Any) -> None:
    """Refuse fields of other types than a format declares: None or a list for an array, for instance.

    What the arrays hold, and whether they fit one another, is not looked at, so they may lie on a device.

    Parameters
    ----------
    tensor : Csf, Fibers, MmCsf, BCsf, FCoo, HiCoo or PerMode

    Raises
    ------
    FormatError
        For what is not a tuple, no tuple of integers, or no integer.
    DtypeError
        For what is not an array.

    Examples
    --------
    >>> from reference.types import PerMode
    >>> check_fields(PerMode(None, (2, 3)))
    Traceback (most recent call last):
    ...
    reference.errors.FormatError: PerMode: tensors is None
    a tuple is needed
    build the tensor anew, from a Coo
    """
    for field in fields(tensor):
        name, declared = field.name, str(field.type)
        value: Any = getattr(tensor, name)
        is_tuple = _is_tuple(value)
        if declared == "Any":
            _check_array(tensor, name, value)
        elif declared == "int":
            _check(tensor, name, value, _is_integer(value), "an integer")
        elif declared == "tuple[int, ...]":
            is_right = is_tuple and all(map(_is_integer, value))
            _check(tensor, name, value, is_right, "a tuple of integers")
        else:
            _check(tensor, name, value, is_tuple, "a tuple")
            for at, array in enumerate(value if declared == "tuple[Any, ...]" else ()):
                _check_array(tensor, f"{name}[{at}]", array)


def _is_tuple(value: object) -> bool:
    return isinstance(value, tuple)


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _check(tensor: object, name: str, value: object, is_right: bool, needed: str) -> None:
    if not is_right:
        shown = repr(value)
        raise FormatError(
            f"{type(tensor).__name__}: {name} is {shown if len(shown) <= 80 else type(value).__name__}\n"
            f"{needed} is needed\nbuild the tensor anew, from a Coo"
        )


def _check_array(tensor: object, name: str, value: object) -> None:
    if not (hasattr(value, "shape") and hasattr(value, "dtype")) or isinstance(value, type):
        raise DtypeError(
            f"{type(tensor).__name__}: {name} is {type(value).__name__}\n"
            "an array is needed\nbuild the tensor anew, from a Coo"
        )
