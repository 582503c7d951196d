"""A function in LLVM's text, written by Python: named results, loops, conditions and early returns."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager


class Function:
    """The text of a function; ``returns`` and parameters as LLVM writes them."""

    def __init__(self, name: str, parameters: str, returns: str = "i32", internal: bool = True) -> None:
        kept = "internal " * internal
        self._head = f"define {kept}{returns} @{name}({parameters}) #0 {{"
        self._returns = returns
        self._variables: list[str] = []
        self._lines: list[str] = []
        self._count = 0

    @property
    def text(self) -> str:
        """The function's text."""
        return "\n".join([self._head, "entry:", *self._variables, *self._lines, "  unreachable", "}", ""])

    def _name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def emit(self, text: str) -> str:
        """Add an instruction; returns the name of its result."""
        name = f"%{self._name()}"
        self._lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """Add an instruction without a result."""
        self._lines.append(f"  {text}")

    def give(self, value: object) -> None:
        """Return a value, None from a function without one; what follows is not reached."""
        self.do("ret void" if value is None else f"ret {self._returns} {value}")
        self._lines.append(f"{self._name()}:")

    # ---- memory ----------------------------------------------------------------------------------------

    def variable(self, kind: str, value: object) -> str:
        """A variable with a value; returns its address."""
        name = f"%{self._name()}"
        self._variables.append(f"  {name} = alloca {kind}")
        self.do(f"store {kind} {value}, ptr {name}")
        return name

    def at(self, table: str, index: object, kind: str = "i64") -> str:
        """The address of an element of a table."""
        return self.emit(f"getelementptr {kind}, ptr {table}, i64 {index}")

    def load(self, address: str, kind: str = "i64", align: int = 0) -> str:
        """The value at an address."""
        return self.emit(f"load {kind}, ptr {address}" + f", align {align}" * bool(align))

    def store(self, value: object, address: str, kind: str = "i64", align: int = 0) -> None:
        """Store a value at an address."""
        self.do(f"store {kind} {value}, ptr {address}" + f", align {align}" * bool(align))

    def word(self, table: str, index: object) -> str:
        """Word ``index`` of a table."""
        return self.load(self.at(table, index))

    def pointer(self, table: str, index: object) -> str:
        """Word ``index`` of a table, an address."""
        return self.load(self.at(table, index), "ptr")

    # ---- control ---------------------------------------------------------------------------------------

    @contextmanager
    def when(self, condition: str) -> Generator[None]:
        """Execute what follows if a condition is true."""
        inside, behind = self._name(), self._name()
        self.do(f"br i1 {condition}, label %{inside}, label %{behind}")
        self._lines.append(f"{inside}:")
        yield
        self.do(f"br label %{behind}")
        self._lines.append(f"{behind}:")

    @contextmanager
    def loop(self, end: object, start: object = 0) -> Generator[str]:
        """Execute what follows for each number from ``start`` on, up to ``end``."""
        counter, head, inside, behind = self.variable("i64", 0), self._name(), self._name(), self._name()
        self.store(start, counter)
        self.do(f"br label %{head}")
        self._lines.append(f"{head}:")
        number = self.load(counter)
        more = self.emit(f"icmp slt i64 {number}, {end}")
        self.do(f"br i1 {more}, label %{inside}, label %{behind}")
        self._lines.append(f"{inside}:")
        yield number
        self.store(self.emit(f"add i64 {number}, 1"), counter)
        self.do(f"br label %{head}")
        self._lines.append(f"{behind}:")
