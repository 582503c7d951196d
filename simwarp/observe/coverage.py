"""Instruction coverage: the executed rows and forms, and the classes of their operand values."""

from __future__ import annotations

from collections import Counter
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from simwarp.observe.line_counts import CountingObserver
from simwarp.observe.operand_classes import classes
from simwarp.observe.overwritten import Overwritten
from simwarp.ptx.instructions import ROWS
from simwarp.ptx.kinds import ATOMIC, PURE, REDUCTION, STORE, WARP
from simwarp.ptx.rows import storage

if TYPE_CHECKING:
    from simwarp.engine.events import Chunk, Launch, Mask
    from simwarp.program.program import Step
    from simwarp.ptx.rows import OperandSpec

_COMPUTING = {PURE, WARP, STORE, ATOMIC, REDUCTION}
"""The kinds of row whose operand values are classified."""
_HALVES = {"f16x2": "f16", "bf16x2": "bf16", "u16x2": "u16", "s16x2": "s16"}
_UNWRITTEN = ("carry", "rank")
"""Kinds of operand that a PTX instruction does not spell out."""


class Coverage(CountingObserver):
    """Counts executed rows and forms, and records the classes of their operands.

    ``rows`` and ``forms`` count thread-instructions, by row (see `simwarp.ptx.rows`) and by opcode.
    ``operands[row, name]`` has the classes of an operand's values in executing lanes, see
    `simwarp.observe.operand_classes`.

    >>> import simwarp
    >>> device = simwarp.Device(observe="coverage")
    >>> kernel = device.load('''
    ... .version 9.0 .target sm_90 .address_size 64
    ... .visible .entry down() {
    ...     .reg .b32 %i;
    ...     mov.u32 %i, %tid.x; add.s32 %i, %i, -1; ret; }
    ... ''').kernel("down")
    >>> kernel((1, 1, 1), (2, 1, 1))
    >>> coverage = device.report.coverage
    >>> coverage.forms["add.s32"], sorted(coverage.operands["add", "a"]), coverage.operands["add", "b"]
    (2, ['one', 'zero'], {'minus one'})
    """

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.forms: Counter[str] = Counter()
        self.operands: dict[tuple[str, str], set[str]] = {}
        self._row_of: dict[str, str] = {}
        self._overwritten: Overwritten | None = None

    def on_launch(self, launch: Launch) -> None:
        """Track the registers that the program's instructions both read and overwrite."""
        self._overwritten = Overwritten(launch.program)

    def on_step(self, chunk: Chunk, step: Step, mask: Mask) -> None:
        """Count the lanes of a step and classify its operand values."""
        count = int(np.count_nonzero(mask))
        if count:
            self.rows[step.row.name] += count
            self.forms[step.instruction.opcode] += count
            self._row_of[step.instruction.opcode] = step.row.name
            if step.kind in _COMPUTING:
                self._classify(chunk, step, mask)
        if self._overwritten is not None:
            self._overwritten.note(chunk, step, mask)

    def _classify(self, chunk: Chunk, step: Step, mask: Mask) -> None:
        """Record the classes of the source operands' values before the step."""
        registers = chunk.registers if self._overwritten is None else self._overwritten.before(chunk, step)
        if registers is None:
            return
        before: Any = copy(chunk)  # a copy, whose registers may be replaced while the chunk keeps its own
        before.registers, before.mask, before.partial = registers, mask, {}
        specs = [spec for spec in step.row.sources if not spec.memory]
        for spec, read in zip(specs, step.sources, strict=False):
            if spec.kind not in _UNWRITTEN:
                met = self.operands.setdefault((step.row.name, spec.name), set())
                value = read(before)
                elements: list[Any] = value if step.form.vector > 1 else [value]
                for element in elements:
                    _note(met, _kind(step, spec), element, mask)

    def to_json(self) -> dict[str, Any]:
        """The executed rows, with counts, forms and operand classes, and the names of the other rows."""
        return {
            "rows": {
                name: {
                    "section": ROWS[name].section,
                    "fidelity": ROWS[name].fidelity,
                    "count": self.rows[name],
                    "forms": {f: n for f, n in sorted(self.forms.items()) if self._row_of[f] == name},
                    "operands": {
                        operand: sorted(met) for (row, operand), met in self.operands.items() if row == name
                    },
                }
                for name in ROWS
                if name in self.rows
            },
            "not_met": [name for name in ROWS if name not in self.rows],
        }


def _note(met: set[str], kind: str, value: Any, mask: Mask) -> None:
    """Add the classes of an operand's values in the lanes of ``mask`` to ``met``."""
    word, half = storage(kind), _HALVES.get(kind)
    value = np.asarray(value)
    if value.dtype != word:
        value = value.view(word)
    for part in [value] if half is None else [value & 0xFFFF, value >> 16]:
        for name, test in classes(half or kind).items():
            if name not in met and np.any(test(part) & mask):
                met.add(name)


def _kind(step: Step, spec: OperandSpec) -> str:
    """The type of an operand; the instruction's own type for an untyped operand of its width (``.b32``)."""
    kind = step.form.resolve(spec.kind)
    same_width = spec.kind == "B" and step.form.T != "pred"
    return step.form.T if same_width else kind
