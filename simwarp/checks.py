"""The checks for faults of a kernel: each kind of fault is raised, collected or ignored.

==================  ============================================================================
``bounds``          accesses outside every allocation, writes to read-only memory
``alignment``       addresses that are not a multiple of the access's width
``freed``           use after free, double free, shared memory of a block that may not be there
``registers``       uses of uninitialised registers
``uninitialised``   uses of uninitialised shared, global or local memory
``division``        integer divisions by zero whose result is used
``barriers``        divergent, skipped, mismatched and over-subscribed barriers
``members``         a lane outside its own member mask; lanes of a mask that never arrive
``sources``         a shuffle that reads an inactive or exited lane
``races``           two unordered accesses of the same bytes, one of them a write
``copies``          memory touched while an asynchronous copy of it is in flight, copies that a map forbids
``textures``        a handle that is not one of a texture or surface, or not one for the instruction
``proxies``         memory that an ordinary instruction wrote, read by a copy or product without a proxy fence
``dependents``      a dependent launch that touches what the launch before it does, before its wait
``products``        registers used while a warpgroup's product of them is in flight, or without a fence
``deadlock``        all remaining lanes wait for one another
``runaway``         infinite loops
``unreachable``     control that runs off the end of a function, where its compiler left no return
``exits``           lanes that returned before a barrier or ``.sync`` operation that names them
==================  ============================================================================

``exits`` is an idiom that works on every GPU since Volta, and is off unless requested by name.

Each finding has a severity. An *error* is raised, collected or ignored by the action of its kind. A *note* is
not proof of a mistake: it is collected and never raised, and only looked for where its kind is ``strict``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, TypeAlias, get_args

from reference.errors import SchemeError
from simwarp.faults import KernelFault, MemoryFault, Place, Race

Action: TypeAlias = Literal["raise", "report", "off"]

KINDS = (
    "bounds",
    "alignment",
    "freed",
    "registers",
    "uninitialised",
    "division",
    "barriers",
    "members",
    "sources",
    "races",
    "copies",
    "textures",
    "proxies",
    "dependents",
    "products",
    "deadlock",
    "runaway",
    "unreachable",
    "exits",
)
STRICT = ("exits",)
"""Kinds that are off unless requested by name."""

NOTED = ("races",)
"""Kinds that have notes, which ``strict`` asks for."""
_STRICT = "strict"

ENDING = ("deadlock", "runaway")
"""Kinds that end a launch even if they are collected."""
_MORE = 'the launch ended here; checks="report" shows what else'

POISONING = frozenset(("bounds", "alignment", "freed", "registers", "uninitialised"))
"""Kinds after which lanes continue with undefined values, if the fault is not raised."""


class Checks:
    """The action for the faults of each kind, and the collected faults.

    ``checks`` is "raise", "report" or "off" for all kinds except `STRICT`; or the action of each kind, by
    default "raise", for `STRICT` "off". "strict", for all kinds or one of `NOTED`, raises errors and adds
    notes; "report+strict" collects both. ``faults`` has each fault and note once, with its ``count``: two are
    the same if their class, severity, kind of access (read or write), kernel, lines (of CUDA C++, else of
    PTX) and allocation are the same. An unknown kind or action raises SchemeError.

    >>> checks = Checks({"races": "report", "uninitialised": "off"})
    >>> checks.action("races"), checks.action("uninitialised"), checks.action("bounds")
    ('report', 'off', 'raise')
    >>> checks = Checks({"races": "report+strict"})
    >>> checks.action("races"), checks.strict("races")
    ('report', True)
    >>> Checks({"races": "ignore"})
    Traceback (most recent call last):
    ...
    reference.errors.SchemeError: checks: 'ignore' is not an action (given for races)
    choose among raise, report, off, strict, report+strict
    """

    def __init__(self, checks: str | Mapping[str, str] = "raise") -> None:
        self._actions: dict[str, str] = {kind: "off" if kind in STRICT else "raise" for kind in KINDS}
        self._strict: set[str] = set()
        for kind, action in (for_all(checks) if isinstance(checks, str) else checks).items():
            if kind not in KINDS:
                raise SchemeError(f"checks: {kind!r} is not a kind\nchoose among {', '.join(KINDS)}")
            of_errors, strict = _parts(action)
            if of_errors not in get_args(Action):
                words = (*get_args(Action), _STRICT, f"report+{_STRICT}")
                raise SchemeError(
                    f"checks: {action!r} is not an action (given for {kind})\nchoose among {', '.join(words)}"
                )
            if strict and kind not in NOTED:
                raise SchemeError(
                    f"checks: {kind} has no notes (given {action!r})\n{_STRICT} is for {', '.join(NOTED)}"
                )
            self._actions[kind] = of_errors
            self._strict |= {kind} if strict else set()
        self.faults: list[KernelFault] = []
        self._known: dict[object, KernelFault] = {}

    def action(self, kind: str) -> str:
        """The action for faults of a kind; faults without a kind are always raised."""
        return self._actions.get(kind, "raise")

    def strict(self, kind: str) -> bool:
        """True if the user asked for notes of this kind."""
        return kind in self._strict and self.action(kind) != "off"

    @property
    def errors(self) -> list[KernelFault]:
        """The collected faults that are errors."""
        return [fault for fault in self.faults if fault.severity == "error"]

    @contextmanager
    def without(self, kind: str) -> Generator[None]:
        """Switch a kind off inside a ``with`` block.

        >>> checks = Checks()
        >>> with checks.without("races"):
        ...     checks.action("races")
        'off'
        >>> checks.action("races")
        'raise'
        """
        before, self._actions = self._actions, {**self._actions, kind: "off"}
        try:
            yield
        finally:
            self._actions = before

    def found(self, fault: KernelFault) -> None:
        """Raise, collect or ignore a fault, by the action of its kind; a note is never raised."""
        action = self.action(fault.check)
        if action == "off":
            return
        if action == "raise" and fault.severity == "error":
            if fault.check not in ENDING and not fault.more:
                fault.more = _MORE
                fault.add_note(_MORE)
            raise fault
        self.keep(fault)

    def keep(self, fault: KernelFault) -> None:
        """Collect a fault, or increase the count of an equal fault that was collected before."""
        places = _line(fault.place), _line(getattr(fault, "other", None))
        key = type(fault), fault.severity, places, _manner(fault), getattr(fault, "allocation", "")
        known = self._known.setdefault(key, fault)
        if known is fault:
            self.faults.append(fault)
        else:
            known.count += fault.count

    def clear(self) -> None:
        """Remove the collected faults."""
        self.faults.clear()
        self._known.clear()


def for_all(action: str) -> dict[str, str]:
    """The same action for every kind of check except `STRICT`; a strict action only for kinds with notes."""
    of_errors, strict = _parts(action)
    ordinary = [kind for kind in KINDS if kind not in STRICT]
    return {kind: action if strict and kind in NOTED else of_errors for kind in ordinary}


def read_checks(texts: Sequence[str]) -> str | dict[str, str]:
    """Read the argument of `Checks` from command-line options: one action, or pairs ``kind=action``.

    Several words of which one is not a pair raise SchemeError.

    >>> read_checks(["report"]), read_checks(["races=report,bounds=off", "freed=off"])
    ('report', {'races': 'report', 'bounds': 'off', 'freed': 'off'})
    """
    words = [word for text in texts for word in text.split(",") if word]
    if len(words) == 1 and "=" not in words[0]:
        return words[0]
    pairs = [word.partition("=") for word in words]
    if not all(equals for _, equals, _ in pairs):
        raise SchemeError(
            f"checks: {','.join(words)} is neither one action nor pairs kind=action\n"
            "give for example report, or races=report,uninitialised=off"
        )
    return {kind: action for kind, _, action in pairs}


def _parts(action: str) -> tuple[str, bool]:
    """The action for errors, and whether notes are added: of "strict", raise and True."""
    if action == _STRICT:
        return "raise", True
    of_errors, plus, added = str(action).partition("+")
    return (of_errors, True) if plus and added == _STRICT and of_errors == "report" else (action, False)


def _manner(fault: KernelFault) -> object:
    """The kinds of access in a fault; they distinguish faults of one source line."""
    if isinstance(fault, Race):
        return fault.earlier, fault.later
    return fault.what.replace(fault.element, "") if isinstance(fault, MemoryFault) else None


def _line(place: Place | None) -> object:
    """The line that identifies a location: of the CUDA C++ source if known, else of the PTX."""
    if place is None:
        return None
    source = place.source_file, place.source_line
    return place.kernel, source if place.source_line is not None else (place.line, place.text)
