"""The report of `Device(observe=…)`: counters to assert on, plain data, and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reference.errors import SchemeError
from simwarp.observe.line_counts import CountingObserver, ReportError

if TYPE_CHECKING:
    from simwarp.chips.chips import Chip
    from simwarp.observe.banks import BankConflicts
    from simwarp.observe.coverage import Coverage
    from simwarp.observe.divergence import Divergence
    from simwarp.observe.fidelity import Fidelity
    from simwarp.observe.matrix_counts import Products
    from simwarp.observe.pipeline import Pipeline
    from simwarp.observe.roofline import Roofline
    from simwarp.observe.sectors import Sectors
    from simwarp.observe.traffic import Traffic

__all__ = ["OBSERVERS", "Report", "ReportError"]

OBSERVERS = ("coverage", "fidelity", "banks", "sectors", "divergence", "traffic", "pipeline", "products")
"""The names of all observers."""


class Report:
    """The counters of a device's observers, over all its launches since `clear`.

    Parameters
    ----------
    observe : str or sequence of str
        Names of `OBSERVERS`; or "all".

    Attributes
    ----------
    names : tuple of str
    observers : list of Observer

    Raises
    ------
    SchemeError
        For an unknown name.

    Examples
    --------
    >>> import numpy as np, simwarp
    >>> device = simwarp.Device(observe=("traffic", "fidelity"))
    >>> kernel = device.load('''
    ... .version 9.0 .target sm_90 .address_size 64
    ... .visible .entry double(.param .u64 x) {
    ...     .reg .b32 %i; .reg .f32 %f; .reg .b64 %a, %x;
    ...     ld.param.u64 %x, [x]; mov.u32 %i, %tid.x; mul.wide.u32 %a, %i, 4; add.u64 %a, %a, %x;
    ...     ld.global.f32 %f, [%a]; add.rn.f32 %f, %f, %f; st.global.f32 [%a], %f; ret; }
    ... ''').kernel("double")
    >>> kernel((1, 1, 1), (40, 1, 1), device.upload(np.ones(40, np.float32)))
    >>> device.report.traffic.loaded["global"], device.report.traffic.operations["f32"]
    (160, 40)
    >>> print(device.report.fidelity)
    320 thread-instructions, all exact: hardware gives the same bits
    >>> device.report.bank_conflicts
    Traceback (most recent call last):
    ...
    simwarp.observe.line_counts.ReportError: bank_conflicts was not observed
    this device observed traffic, fidelity
    ask for it before the launch: Device(observe=("banks",))
    """

    def __init__(self, observe: str | Sequence[str] = ()) -> None:
        names = OBSERVERS if observe == "all" else (observe,) if isinstance(observe, str) else observe
        for name in names:
            if name not in OBSERVERS:
                raise SchemeError(
                    f"observe: there is nothing called {name!r}\nthere are {', '.join(OBSERVERS)}\n"
                    'choose among them, or observe="all"'
                )
        self.names = tuple(dict.fromkeys(names))
        classes = _classes() if self.names else {}
        self._by_name: dict[str, Any] = {name: classes[name]() for name in self.names}

    @property
    def observers(self) -> list[CountingObserver]:
        """The observers that receive a launch's events."""
        return list(self._by_name.values())

    def clear(self) -> None:
        """Reset the counters of all observers of the report."""
        for observer in self.observers:
            observer.clear()

    def _find(self, name: str, asked: str) -> Any:
        if name not in self._by_name:
            raise ReportError(
                f"{asked} was not observed\nthis device observed {', '.join(self.names) or 'nothing'}\n"
                f'ask for it before the launch: Device(observe=("{name}",))'
            )
        return self._by_name[name]

    @property
    def coverage(self) -> Coverage:
        """The executed instructions, and the classes of their operand values."""
        return self._find("coverage", "coverage")

    @property
    def fidelity(self) -> Fidelity:
        """The share of executed instructions that is bit-exact."""
        return self._find("fidelity", "fidelity")

    @property
    def bank_conflicts(self) -> BankConflicts:
        """The excess wavefronts of accesses to shared memory."""
        return self._find("banks", "bank_conflicts")

    @property
    def sectors(self) -> Sectors:
        """The 32-byte sectors of global memory that accesses touched."""
        return self._find("sectors", "sectors")

    @property
    def divergence(self) -> Divergence:
        """The active lanes per warp-instruction, and the divergent branches."""
        return self._find("divergence", "divergence")

    @property
    def traffic(self) -> Traffic:
        """The bytes moved and the arithmetic operations computed."""
        return self._find("traffic", "traffic")

    @property
    def pipeline(self) -> Pipeline:
        """The timeline of the stages that asynchronous copies fill."""
        return self._find("pipeline", "pipeline")

    @property
    def products(self) -> Products:
        """The products that each warpgroup issued."""
        return self._find("products", "products")

    def roofline(self, chip: str | Chip) -> Roofline:
        """The minimum time of the traffic on a chip.

        Parameters
        ----------
        chip : str or Chip
            See `simwarp.chips.chips`.
        """
        from simwarp.observe.roofline import roofline

        return roofline(self._find("traffic", "roofline"), chip)

    def to_json(self) -> dict[str, Any]:
        """The results of every observer by name, as plain data."""
        return {name: observer.to_json() for name, observer in self._by_name.items()}

    def to_text(self) -> str:
        """The report as text tables."""
        from simwarp.draw.report import to_text

        return to_text(self.to_json())


def _classes() -> dict[str, type[CountingObserver]]:
    """The class of each observer; imported here because most devices have no observer."""
    from simwarp.observe.banks import BankConflicts
    from simwarp.observe.coverage import Coverage
    from simwarp.observe.divergence import Divergence
    from simwarp.observe.fidelity import Fidelity
    from simwarp.observe.matrix_counts import Products
    from simwarp.observe.pipeline import Pipeline
    from simwarp.observe.sectors import Sectors
    from simwarp.observe.traffic import Traffic

    classes = (Coverage, Fidelity, BankConflicts, Sectors, Divergence, Traffic, Pipeline, Products)
    return dict(zip(OBSERVERS, classes, strict=True))
