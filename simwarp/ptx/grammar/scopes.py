"""The meaning of the names of a function body, while its ``{ }`` scopes open and close.

A scope may declare a name again. The first declaration in a function
keeps the name, the second becomes ``name@2``, the third ``name@3``: no name of PTX holds an ``@``.

Source: PTX ISA 9.0, sections 4.4 (identifiers), 9.7.12.1 (``{}``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from simwarp.faults import PtxSyntaxError
from simwarp.ptx.syntax import Register, Symbol


@dataclass
class Scope:
    """The declarations between one pair of braces.

    Attributes
    ----------
    parent : Scope or None
        The scope around it.
    lines : dict of str to int
        Where each name was declared.
    labels : dict of str to str
        The unique name of each label.
    """

    parent: Scope | None = None
    lines: dict[str, int] = field(default_factory=dict[str, int])
    labels: dict[str, str] = field(default_factory=dict[str, str])
    hidden: list[tuple[str, Register | Symbol | None]] = field(
        default_factory=list[tuple[str, "Register | Symbol | None"]]
    )

    def label(self, name: str) -> str:
        """The unique name of a label that is visible here; the name itself if there is none."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.parent
        return name


class Names:
    """The names of one function.

    Attributes
    ----------
    visible : dict of str to Register or Symbol
        The unique name of each visible register and variable. Labels are not here: a label
        may be used before it is declared.
    has_renamed_labels : bool
        Whether some label's unique name is another than the written one.
    """

    def __init__(self) -> None:
        self.visible: dict[str, Register | Symbol] = {}
        self.scope = Scope()
        self.has_renamed_labels = False
        self._times: dict[str, int] = {}

    def enter(self) -> None:
        """A brace opens."""
        self.scope = Scope(self.scope)

    def leave(self) -> None:
        """A brace closes: its names are gone, the names that they hid are back."""
        for name, before in reversed(self.scope.hidden):
            if before is None:
                del self.visible[name]
            else:
                self.visible[name] = before
        if self.scope.parent is not None:
            self.scope = self.scope.parent

    def register(self, name: str, line: int) -> str:
        """Declare a register; gives its unique name."""
        unique = self._declare(name, line)
        self._show(name, Register(unique))
        return unique

    def variable(self, name: str, line: int) -> str:
        """Declare a variable; gives its unique name."""
        unique = self._declare(name, line)
        self._show(name, Symbol(unique))
        return unique

    def label(self, name: str, line: int) -> str:
        """Declare a label; gives its unique name."""
        unique = self._declare(name, line)
        self.scope.labels[name] = unique
        self.has_renamed_labels |= unique != name
        return unique

    def _declare(self, name: str, line: int) -> str:
        lines = self.scope.lines
        if name in lines:
            raise PtxSyntaxError(
                f"line {line}: {name} is declared already, in line {lines[name]}: expected another name\n"
                "rename one of the two, or put braces around its uses"
            )
        lines[name] = line
        times = self._times[name] = self._times.get(name, 0) + 1
        return name if times == 1 else f"{name}@{times}"

    def _show(self, name: str, known: Register | Symbol) -> None:
        if self.scope.parent is not None:
            self.scope.hidden.append((name, self.visible.get(name)))
        self.visible[name] = known
