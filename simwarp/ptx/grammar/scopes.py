"""Name lookup in a function body, by its nested ``{ }`` scopes.

A scope may declare a name again. The first declaration in a function keeps the name, the second becomes
``name@2``, the third ``name@3``: PTX names cannot contain an ``@``.

Source: PTX ISA 9.0, sections 4.4 (identifiers), 9.7.12.1 (``{}``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from simwarp.faults import PtxSyntaxError
from simwarp.ptx.syntax import Register, Symbol


@dataclass
class Scope:
    """The registers, variables and labels that are declared between one pair of braces.

    Attributes
    ----------
    parent : Scope or None
        The enclosing scope.
    lines : dict of str to int
        Name → the line of its declaration.
    labels : dict of str to str
        Label → its unique name.
    hidden : list of (str, Register or Symbol or None)
        The names declared here, and what each meant outside.
    """

    parent: Scope | None = None
    lines: dict[str, int] = field(default_factory=dict[str, int])
    labels: dict[str, str] = field(default_factory=dict[str, str])
    hidden: list[tuple[str, Register | Symbol | None]] = field(
        default_factory=list[tuple[str, "Register | Symbol | None"]]
    )

    def label(self, name: str) -> str:
        """The unique name of a visible label; ``name`` itself if no label of that name is visible."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.parent
        return name


class Names:
    """The names declared in one function body, by scope.

    Attributes
    ----------
    visible : dict of str to Register or Symbol
        Written name → register or variable, for visible ones. Labels are not included: a label
        may be used before it is declared.
    has_renamed_labels : bool
        Whether the unique name of some label differs from the written one.
    """

    def __init__(self) -> None:
        self.visible: dict[str, Register | Symbol] = {}
        self.scope = Scope()
        self.has_renamed_labels = False
        self._times: dict[str, int] = {}

    def enter(self) -> None:
        """Open a scope of declarations, at an opening brace."""
        self.scope = Scope(self.scope)

    def leave(self) -> None:
        """Close the scope, at a closing brace: names that it hid become visible again."""
        for name, before in reversed(self.scope.hidden):
            if before is None:
                del self.visible[name]
            else:
                self.visible[name] = before
        if self.scope.parent is not None:
            self.scope = self.scope.parent

    def declare(self, name: str, line: int, kind: type[Register | Symbol]) -> str:
        """Declare a register or variable; returns its unique name."""
        unique = self._unique(name, line)
        if self.scope.parent is not None:
            self.scope.hidden.append((name, self.visible.get(name)))
        self.visible[name] = kind(unique)
        return unique

    def label(self, name: str, line: int) -> str:
        """Declare a label; returns its name, made unique within the function."""
        unique = self._unique(name, line)
        self.scope.labels[name] = unique
        self.has_renamed_labels |= unique != name
        return unique

    def _unique(self, name: str, line: int) -> str:
        """A declared name, made unique within the function."""
        lines = self.scope.lines
        if name in lines:
            raise PtxSyntaxError(
                f"line {line}: {name} is already declared in line {lines[name]}: expected another name\n"
                "rename one of the two, or put braces around its uses"
            )
        lines[name] = line
        times = self._times[name] = self._times.get(name, 0) + 1
        return name if times == 1 else f"{name}@{times}"
