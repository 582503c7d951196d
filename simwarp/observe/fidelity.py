"""Fidelity: the share of a run that is bit-exact with hardware, and the cost of its matrix products.

exact         the PTX ISA defines every bit of the result
bounded       the PTX ISA bounds the error, in units of the last place or relative to the result
open          the PTX ISA leaves the result open, or the order of atomic operations
contractable  a multiplication and an addition of its product, both without rounding modifiers:
              ``ptxas`` may fuse them, with one rounding in place of two (PTX ISA 9.7.3.3)

Matrix instructions without a native tensor-core instruction on the chip are listed with their lowering.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from simwarp.checks import KINDS, STRICT
from simwarp.lanes import WARP_SIZE
from simwarp.observe.line_counts import CountingObserver, LineCounts, line_of, listed
from simwarp.observe.matrix_counts import MatrixInstructions
from simwarp.observe.registers import destination
from simwarp.program.liveness import registers_in
from simwarp.program.program import Program
from simwarp.ptx.kinds import MATRIX

if TYPE_CHECKING:
    from simwarp.engine.events import Chunk, Launch, Mask
    from simwarp.faults import KernelFault
    from simwarp.program.program import Step
    from simwarp.ptx.syntax import Instruction

_KINDS = ("exact", "bounded", "open", "contractable")
_MEANING = {
    "bounded": "off by at most",
    "open": "the PTX ISA leaves the result open:",
    "contractable": "ptxas may fuse a product with its sum:",
}
_FUSED = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64")
_ROUNDINGS = {"rn", "rz", "rm", "rp"}
_OF_CHIP = ("%clock", "%globaltimer", "%smid", "%nsmid", "%warpid", "%nwarpid", "%gridid", "%pm")
"""Special registers whose values differ between runs or chips."""
_STOPPED = "stopped by a fault"
_LISTED = 8
"""The most bounds or lines that the summary lists."""


class Fidelity(CountingObserver):
    r"""Counts thread-instructions by the fidelity of their results.

    ``counts`` has each kind: "exact", "bounded", "open" and "contractable"; ``bounds`` the bounded ones by
    error bound, such as "2 ulp"; ``lines`` the lines of each kind except "exact"; ``matrix`` counts matrix
    instructions by warp.

    >>> import simwarp
    >>> device = simwarp.Device(observe="fidelity")
    >>> kernel = device.load('''
    ... .version 9.0 .target sm_90 .address_size 64
    ... .visible .entry some() {
    ...     .reg .f32 %f<4>;
    ...     mov.f32 %f0, 0f3F800000; mul.f32 %f1, %f0, %f0;
    ...     add.f32 %f2, %f1, %f0;
    ...     rcp.approx.f32 %f3, %f2; ret; }
    ... ''').kernel("some")
    >>> kernel((1, 1, 1), (1, 1, 1))
    >>> print(str(device.report.fidelity).replace("), ", "),\n"))
    5 thread-instructions: 2 exact, 1 bounded (off by at most 1 ulp),
    2 contractable (ptxas may fuse a product with its sum: ptx:5, ptx:6)
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(_KINDS, 0))
        self.bounds: Counter[str] = Counter()
        self.lines = {kind: LineCounts(f"{kind} instructions") for kind in _KINDS[1:]}
        self.matrix = MatrixInstructions()
        self._contractable: frozenset[int] = frozenset()
        self._open: frozenset[int] = frozenset()
        self._cc = (0, 0)
        self._faulty = False
        self._launched = 0
        self._unchecked: set[str] = set()

    def on_launch(self, launch: Launch) -> None:
        """Find the steps that ptxas may fuse, and those that read clocks or the warp's location."""
        self._launched += 1
        self._contractable, self._cc = contractable(launch.program), launch.cc
        steps = launch.program.steps
        self._open = frozenset(step.number for step in steps if reads_the_chip(step.instruction))
        kinds = (kind for kind in KINDS if kind not in STRICT)
        self._unchecked |= {kind for kind in kinds if launch.checks.action(kind) == "off"}

    def on_fault(self, fault: KernelFault) -> None:
        """Record that results may differ from hardware after a fault."""
        self._faulty |= fault.severity == "error"

    def on_end(self, launch: Launch) -> None:
        """Record that the launch ended without a fault."""
        self._launched -= 1

    def on_step(self, chunk: Chunk, step: Step, mask: Mask) -> None:
        """Count the thread-instructions of a step by the fidelity of its results."""
        count = int(np.count_nonzero(mask))
        if not count:
            return
        kind = "contractable" if step.number in self._contractable else step.row.fidelity
        kind = "open" if step.number in self._open else kind
        self.counts[kind] += count
        if kind in self.lines:
            self.lines[kind].add(line_of(step.instruction), count)
        if kind == "bounded":
            self.bounds[step.row.bound] += count
        if step.kind is MATRIX:
            self.matrix.add(step.instruction.opcode, self._cc, count // WARP_SIZE, line_of(step.instruction))

    def to_json(self) -> dict[str, Any]:
        """Counts, error bounds, lines by fidelity, matrix instructions, and a readable summary."""
        return {
            "text": str(self),
            "counts": dict(self.counts),
            "bounds": dict(self.bounds),
            "lines": {kind: lines.to_json() for kind, lines in self.lines.items()},
            "matrix": self.matrix.to_json(),
        }

    def __str__(self) -> str:
        return self.summary()

    def summary(self, verdict: str = "") -> str:
        """The counts in words, and whether hardware gives the same bits.

        ``verdict`` is a reason why it may not, beyond the instructions' own; "" if there is none.
        """
        if not verdict and (self._launched or self._faulty):
            verdict = _STOPPED if self._launched else "faults were found: results on hardware may differ"
        total, exact = self.counts.total(), self.counts["exact"]
        shares = f"{total:,} thread-instructions"
        if exact < total:
            parts = [
                f"{self.counts[kind]:,} {kind}{self._remark(kind)}" for kind in _KINDS if self.counts[kind]
            ]
            shares += f": {', '.join(parts)}"
        elif total and not verdict:
            shares += ", all exact"
            unchecked = ", ".join(kind for kind in KINDS if kind in self._unchecked)
            shares += f", but unchecked: {unchecked}" if unchecked else ": hardware gives the same bits"
        if "stopped" in verdict:
            verdict, shares = "", f"{verdict} after {shares}"
        return "; ".join(filter(None, (verdict, shares, str(self.matrix))))

    def _remark(self, kind: str) -> str:
        """The meaning of a kind for results on hardware, with the bounds or the lines; "" for "exact"."""
        if kind == "exact":
            return ""
        details = self.bounds if kind == "bounded" else self.lines[kind]
        return f" ({_MEANING[kind]} {listed(list(details), _LISTED)})"


# ---- contraction ---------------------------------------------------------------------------


def contractable(program: Program) -> frozenset[int]:
    """The numbers of the steps that ``ptxas`` may fuse into FMAs: products, and the additions that use one.

    An addition uses a product if the product's register reaches it unchanged on some path.

    >>> from simwarp.program.link import link
    >>> from simwarp.ptx.parse import parse
    >>> module = parse('''.version 9.0 .target sm_90
    ... .entry k() { .reg .f32 %f<3>; mov.f32 %f0, 0f3F800000;
    ... mul.f32 %f1, %f0, %f0; sub.f32 %f2, %f0, %f1; add.rn.f32 %f2, %f1, %f1; ret; }''')
    >>> sorted(contractable(link(module, module.entries["k"])))
    [1, 2]
    """
    numbers: set[int] = set()
    for step in program.steps:
        if _may_be_fused(step, "product") and not step.form.has("sat"):
            fed = _fed(program.steps, step)
            numbers.update(fed, [step.number] if fed else [])
    return frozenset(numbers)


def reads_the_chip(instruction: Instruction) -> bool:
    """True if an instruction reads a clock, or its warp's location on the chip."""
    return any(name.startswith(_OF_CHIP) for name in registers_in(instruction.operands[1:]))


def _may_be_fused(step: Step, trait: str) -> bool:
    """True if a step is a floating-point "product" or "sum" without a rounding modifier."""
    form = step.form
    return trait in step.row.traits and form.T in _FUSED and not _ROUNDINGS & set(form.modifiers)


def _fed(steps: list[Step], product: Step) -> set[int]:
    """The numbers of the additions and subtractions that can read the result of ``product``."""
    name, fed, seen = destination(product), set[int](), set[int]()
    ahead = product.following
    while ahead:
        at = ahead.pop()
        if at in seen:
            continue
        seen.add(at)
        step = steps[at]
        read = registers_in(step.instruction.operands[1:])
        if _may_be_fused(step, "sum") and step.form.T == product.form.T and name in read:
            fed.add(at)
        if step.guard is not None or destination(step) != name:
            ahead += step.following
    return fed
