"""Matching of arguments to parameters: by name, by position, the others in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from reference.values import shortened
from simwarp.device.parameters import signature
from simwarp.faults import LaunchError
from simwarp.ptx.syntax import Function


@shortened
@dataclass(frozen=True)
class Given:
    """An argument of a launch with its parameter (name or position) and a label.

    Attributes
    ----------
    value
    key : str, int or None
        The parameter's name or position; None for the first parameter that no other argument names.
    label : str
        Its name in outputs and faults.
    """

    value: Any
    key: str | int | None = None
    label: str = ""


Arguments: TypeAlias = "Sequence[Any] | Mapping[str | int, Any]"


def bind(kernel: Function, names: Sequence[str], args: Arguments) -> list[Given]:
    """Sort the arguments into the order of the parameters; raise LaunchError unless each has one."""
    bound: dict[int, Given] = {}
    waiting: list[Given] = []
    for given in givens(args):
        if given.key is None:
            waiting.append(given)
            continue
        position = _position(kernel, names, given.key)
        if position in bound:
            twice = f"parameter {given.key!r} of kernel {signature(kernel)} is given twice"
            raise LaunchError(f"{twice}\n{_known(kernel, names)}")
        bound[position] = given
    count = len(kernel.parameters)
    free = [position for position in range(count) if position not in bound]
    if len(free) != len(waiting):
        left = [names[position] or str(position) for position in free[len(waiting) :]] if names else []
        raise LaunchError(
            f"kernel {signature(kernel)} takes {count} arguments, {len(bound) + len(waiting)} given"
            f"{'; none for ' + ', '.join(left) if left else ''}\n"
            f"give one for each parameter, in their order{': ' + ', '.join(names) if names else ''}"
        )
    bound |= zip(free, waiting, strict=True)
    return [bound[position] for position in range(count)]


def givens(args: Arguments) -> list[Given]:
    """Convert a sequence or mapping of arguments to a list of `Given`."""
    if isinstance(args, Mapping):
        return [Given(value, key, key if isinstance(key, str) else "") for key, value in args.items()]
    return [one if isinstance(one, Given) else Given(one) for one in args]


def _position(kernel: Function, names: Sequence[str], key: object) -> int:
    """The position of a parameter, given its name or position; raise LaunchError if it does not exist."""
    if isinstance(key, int) and not isinstance(key, bool):
        if 0 <= key < len(kernel.parameters):
            return key
        raise LaunchError(f"kernel {signature(kernel)} has no parameter {key}\n{_known(kernel, names)}")
    if not names and kernel.parameters:
        raise LaunchError(
            f"argument {key!r} of kernel {signature(kernel)}: the names of its parameters are not known\n"
            f"{_known(kernel, names)}"
        )
    if key not in names or key == "":
        raise LaunchError(f"kernel {signature(kernel)} has no parameter {key!r}\n{_known(kernel, names)}")
    return names.index(cast("str", key))


def _known(kernel: Function, names: Sequence[str]) -> str:
    """The part of an error message that lists the valid names or positions."""
    if not kernel.parameters:
        return "it takes no arguments"
    if not names:
        last = len(kernel.parameters) - 1
        return f"give the arguments in order, or by position, 0{f' to {last}' if last else ''}"
    return f"its parameters are {', '.join(name or f'{i} (no name)' for i, name in enumerate(names))}"
