"""PTX text, line by line, and the registers that it names."""

from __future__ import annotations

from simwarp.ptx.rows import Form, OperandSpec
from simwarp.testing.fuzz.program import Operand


class Lines:
    """The body of a kernel while it is written.

    Attributes
    ----------
    registers : dict
        The class of each register that is not one of the program's own.
    lines : list of str
    guard : str
        The predicate that the next instructions stand under, or "".
    """

    def __init__(self) -> None:
        self.registers: dict[str, str] = {}
        self.lines: list[str] = []
        self.guard = ""
        self._labels = 0

    def write(self, text: str) -> None:
        """An instruction."""
        self.lines.append(f"\t{f'@{self.guard} ' if self.guard else ''}{text};")

    def mark(self, label: str) -> None:
        """A place to branch to."""
        self.lines.append(f"{label}:")

    def label(self) -> str:
        """A name for a place."""
        self._labels += 1
        return f"L{self._labels}"

    def new(self, kind: str) -> str:
        """A register of a class that nobody else uses."""
        name = f"%{'q' if kind == 'pred' else 't'}{len(self.registers)}"
        self.registers[name] = kind
        return name

    def give(self, opcode: str, kind: str, *sources: object) -> str:
        r"""An instruction whose result goes to a new register of a class.

        Examples
        --------
        >>> text = Lines()
        >>> text.give("add.u32", "b32", "%r0", 1)
        '%t0'
        >>> text.lines
        ['\tadd.u32 %t0, %r0, 1;']
        """
        target = self.new(kind)
        self.write(f"{opcode} {target}, {', '.join(map(str, sources))}")
        return target


def literal(kind: str, bits: int) -> str:
    """The literal of some bits, for an operand of a PTX type.

    Examples
    --------
    >>> literal("f32", 0x3F800000), literal("s16", 0xFFFF), literal("u32", 0xFFFF)
    ('0f3F800000', '-1', '0xFFFF')
    """
    if kind in ("f32", "f64"):
        return f"0f{bits:08X}" if kind == "f32" else f"0d{bits:016X}"
    if kind[0] == "s" and bits >> int(kind[1:]) - 1:
        return str(bits - (1 << int(kind[1:])))  # ptxas takes 0x80000000 for a positive s32
    return str(bits) if bits < 10 else f"0x{bits:X}"


def written(operand: Operand, form: Form, spec: OperandSpec) -> str:
    """A source operand of an instruction as PTX writes it.

    Examples
    --------
    >>> from simwarp.testing.fuzz.vocabulary import find
    >>> row, form = find("add.rn.f32")
    >>> written(0x3F800000, form, row.sources[0]), written("%r1", form, row.sources[1])
    ('0f3F800000', '%r1')
    """
    if isinstance(operand, int):
        return literal(form.T if spec.kind == "B" else form.resolve(spec.kind), operand)
    return vector(operand)


def vector(operand: Operand) -> str:
    """A register, or several in braces.

    Examples
    --------
    >>> vector(("%r0", "%r1")), vector(("%r0",)), vector("%r0")
    ('{%r0, %r1}', '%r0', '%r0')
    """
    names = operand if isinstance(operand, tuple) else (str(operand),)
    return f"{{{', '.join(names)}}}" if len(names) > 1 else "".join(names)
