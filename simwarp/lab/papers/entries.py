"""An entry for each figure and table of a paper: what makes it on which device, and its printed numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from reference.errors import SchemeError
from simwarp.lab.network_studies import Facts, Progress
from simwarp.lab.papers.data import Data

Kind: TypeAlias = Literal["figure", "table", "section"]
Device: TypeAlias = Literal["sim", "cuda"]
Numbers: TypeAlias = Mapping[str, float]
Printed: TypeAlias = Mapping[tuple[Any, ...], Numbers]
"""Key of a row → printed numbers by column. A column of the same name in our rows is compared."""

DEVICES: tuple[Device, ...] = ("sim", "cuda")
_ROMAN = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X")


@dataclass(frozen=True)
class Made:
    """What a maker gives: rows, what they count, and at which sizes and on which data that was."""

    rows: list[Facts]
    sizes: str
    data: str = ""


@dataclass
class Making:
    """What a maker may use; ``device`` is a GPU, None for the simulator."""

    data: Data
    progress: Progress
    device: Any = None
    kept: dict[Any, Any] = field(default_factory=dict[Any, Any])
    """What several entries of a run share, such as the rows of one script."""


Maker: TypeAlias = Callable[[Making], Made]


@dataclass(frozen=True)
class Item:
    """Figures that show one thing on several chips, or a table, or what a section says in its text.

    Attributes
    ----------
    kind, numbers
        As printed: ``("figure", ("9", "10"), …)``.
    makers : mapping
        By device. An entry without one has a ``note``: what it shows, and where that is here.
    keys : tuple of str
        The columns that name a row; ``printed`` has them as its keys.
    reasons : mapping of str to str
        Column → why our number differs by more than a fifth from the printed one.
    reasons_on_gpu : mapping of str to str
        The same of times on a GPU, where counts of the simulator differ for another reason.
    """

    kind: Kind
    numbers: tuple[str, ...]
    title: str
    makers: Mapping[Device, Maker] = field(default_factory=dict[Device, Maker])
    keys: tuple[str, ...] = ()
    printed: Printed = field(default_factory=dict[tuple[Any, ...], Numbers])
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    reasons_on_gpu: Mapping[str, str] = field(default_factory=dict[str, str])
    note: str = ""

    def reason(self, column: str, device: Device) -> str:
        """Why a column differs from print on a device; empty if no reason is known.

        >>> item = Item("table", ("1",), "x", reasons={"ms": "counts"}, reasons_on_gpu={"ms": "the chip"})
        >>> item.reason("ms", "sim"), item.reason("ms", "cuda"), item.reason("GB", "cuda")
        ('counts', 'the chip', '')
        """
        found = {**self.reasons, **self.reasons_on_gpu} if device == "cuda" else self.reasons
        return found.get(column, "")

    @property
    def name(self) -> str:
        """As the paper's text names it.

        >>> Item("figure", ("9", "10"), "products").name
        'figures 9, 10'
        """
        return f"{self.kind}{'s' * (len(self.numbers) > 1)} {', '.join(self.numbers)}"

    @property
    def slug(self) -> str:
        """The name of its file."""
        return "-".join((self.kind, *self.numbers))

    def has(self, kind: Kind, number: str) -> bool:
        """Whether it is the figure or the table of a number, Roman or not.

        >>> Item("table", ("IV",), "machines").has("table", "4")
        True
        """
        names = {number.strip().upper()}
        if number.isascii() and number.isdigit() and int(number) < len(_ROMAN):
            names.add(_ROMAN[int(number)])
        return kind == self.kind and not names.isdisjoint(each.upper() for each in self.numbers)


@dataclass(frozen=True)
class Paper:
    """A paper and its entries, in the order of its text."""

    name: str
    title: str
    items: Sequence[Item]

    def item(self, kind: Kind, number: str) -> Item:
        """The entry of a figure or table; raises SchemeError for one that the paper does not have."""
        for item in self.items:
            if item.has(kind, number):
                return item
        known = ", ".join(number for item in self.items if item.kind == kind for number in item.numbers)
        raise SchemeError(
            f"{self.name} has no {kind} {number}\nits {kind}s are {known or 'none'}\nchoose one of them"
        )

    def made_on(self, device: Device) -> Iterator[Item]:
        """The entries that a device makes."""
        return (item for item in self.items if device in item.makers)

    def maker(self, item: Item, device: Device) -> Maker:
        """What makes an entry on a device; SchemeError says which device does, or what stands for it."""
        if device in item.makers:
            return item.makers[device]
        named = f"{item.name} of {self.name}: {item.title}"
        if item.makers:
            other = next(iter(item.makers))
            raise SchemeError(f"{named}\n{device} does not make it, {other} does\ngive --device {other}")
        raise SchemeError(
            f"{named}\nno device makes it: {item.note}\nsimwarp paper {self.name} lists what is made"
        )
