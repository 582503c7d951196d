"""The type of a finding, from any source: a kernel, a host call, the compiler, a comparison."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, cast

from reference.values import shortened
from simwarp import messages
from simwarp.faults import KernelFault
from simwarp.places import Note, Place

_OF_COMPILER = re.compile(r"(?P<file>[^\s():]+)\((?P<line>\d+)\): *(?i:warning)[^:]*: *(?P<what>.+)")
_NOWHERE = Place()
_KEPT = (int, str, tuple, Place)
"""The types of fields of a fault that plain data can hold."""


@shortened
@dataclass(frozen=True)
class Finding:
    """A finding, as all outputs print it; ``check`` is "" if no check can turn it off.

    >>> from simwarp.faults import OutOfBounds, Place
    >>> place = Place(source_file="my.cu", source_line=5)
    >>> found = Finding.of(OutOfBounds("read of x[100], past its end", place=place, element="x[100]"))
    >>> found.kind, found.check, found.severity, found.element
    ('out of bounds', 'bounds', 'error', 'x[100]')
    >>> print(found)
    my.cu:5: out of bounds: read of x[100], past its end
    """

    what: str  # the event, without its location
    name: str  # name of the finding's class, such as that of a `simwarp.faults.KernelFault`
    check: str = ""
    """A kind of `simwarp.checks`, or "schedules", "unwritten", "expected", "calls", "compiler"."""
    severity: str = "error"  # "error"; or "note" for a finding that does not prove a mistake
    place: Place = _NOWHERE
    notes: tuple[Note, ...] = ()  # other locations that belong to the finding
    element: str = ""  # an array's element, such as ``t[127]``; "" if unknown
    values: str = ""
    advice: str = ""
    more: str = ""  # the option that shows more; "" if there is nothing more to show
    count: int = 1
    # fields that only the finding's class has
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def of(cls, fault: KernelFault) -> Finding:
        """Convert a fault to a finding."""
        own = {name: value for name, value in vars(fault).items() if name not in _COMMON}
        return cls(
            name=type(fault).__name__,
            fields={name: value for name, value in own.items() if isinstance(value, _KEPT)},
            **{name: getattr(fault, name) for name in _COMMON},
        )

    @property
    def kind(self) -> str:
        """The kind of finding in words, made from its name."""
        return messages.words_of(self.name)

    @property
    def rule(self) -> str:
        """The identifier of the rule: the check, or the kind of a fault that no check can turn off."""
        return self.check or self.kind.replace(" ", "-")

    def __str__(self) -> str:
        return messages.plain(self)

    def lines(self, paths: Mapping[str, str] = MappingProxyType({})) -> list[messages.Line]:
        """The message and the count as styled pieces; ``paths`` maps file names to the paths to show."""
        times: list[messages.Line] = [[(f"  {self.count} times", "quiet")]] if self.count > 1 else []
        return [*messages.message(self, paths), *times]

    def to_json(self) -> dict[str, Any]:
        """The finding with all its fields as plain data."""
        common = {name: _plain(getattr(self, name)) for name in _COMMON}
        own = {name: _plain(value) for name, value in self.fields.items()}
        return {"class": self.name, "kind": self.kind, **common, **own, "message": str(self)}


_COMMON = (
    "check",
    "severity",
    "count",
    "element",
    "notes",
    "what",
    "values",
    "advice",
    "place",
    "more",
)
"""The fields that every finding has, in the order of its plain data."""


def of_compiler(log: str) -> list[Finding]:
    """The warnings in a compiler's log, as findings of severity "note".

    >>> [(found.place.source_line, found.what) for found in of_compiler(
    ...     'k.cu(5): warning #549-D: variable "v" is used before its value is set')]
    [(5, 'variable "v" is used before its value is set')]
    """
    return [
        Finding(
            at["what"],
            "CompilerWarning",
            "compiler",
            "note",
            Place(source_file=at["file"], source_line=int(at["line"])),
        )
        for at in _OF_COMPILER.finditer(log)
    ]


def errors(found: Iterable[Finding]) -> list[Finding]:
    """The findings whose severity is "error"."""
    return [one for one in found if one.severity == "error"]


def _plain(value: Any) -> Any:
    """Convert places and notes to dictionaries, and tuples to lists."""
    if isinstance(value, Place | Note):
        return asdict(value)
    return [_plain(item) for item in cast("tuple[Any]", value)] if isinstance(value, tuple) else value
