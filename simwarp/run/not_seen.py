"""The limits of the checks of a launch without findings, as far as they are cheap to find."""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from reference.errors import SimwarpError
from reference.values import shortened
from simwarp.checks import KINDS
from simwarp.chips.chips import multiprocessors_of
from simwarp.device.device import Device
from simwarp.device.module import linked
from simwarp.faults import KernelFault
from simwarp.program.exits import RETURNS
from simwarp.program.liveness import registers_in
from simwarp.ptx.instructions import TABLE
from simwarp.ptx.mangled_names import parameter_types, plain, readable
from simwarp.ptx.syntax import Address, Instruction, Register, Symbol
from simwarp.run.arguments import Argument
from simwarp.run.binding import Given
from simwarp.run.parameters import without_literals
from simwarp.run.values import Out

if TYPE_CHECKING:
    from simwarp.run.work import Work

_SHORT = 1_000_000
"""The most thread-instructions of a launch that is run again without optimisation."""
_STEPS = 50_000
"""The most steps of that run."""
_UNINITIALISED = ("registers", "uninitialised")
_REMOVED = (*_UNINITIALISED, "bounds")
"""Faults that vanish with what an optimiser removes."""

_OTHER_STATEMENT = re.compile(
    r"(return|goto|using|extern|typedef|else|case|default|break|continue|delete|throw|struct|class|enum|union|"
    r"namespace|template|static|public|private|protected|friend|do|asm)\b|#|.*\b(__shared__|__constant__|__device__)\b",
    re.DOTALL,
)
_DECLARATION = re.compile(
    r"(?:[A-Za-z_][\w:]*(?:\s*<[^;]*>)?[\s*&]+)+([A-Za-z_]\w*(?:\s*\[[^\]]*\])*\s*(?:[,=].*)?)", re.DOTALL
)
_SHARED = re.compile(r"__shared__[^;=()]*?\b([A-Za-z_]\w*)\s*(?:\[[^;]*)?;")
_LABELS = re.compile(r"(?:\w+\s*:(?!:)\s*)+")
_WEAK = ("volatile", "relaxed", "acquire")
"""Modifiers of loads that poll what other threads write."""
_FLOATS = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64")


@shortened
@dataclass(frozen=True)
class NotSeen:
    """A limit of the checks of one launch.

    Attributes
    ----------
    kind : str
        "optimised": the optimiser removed a read of a variable without a value, an access beside it, or a
        shared variable with all its accesses. "aliases": arrays overlap. "equal bits": all elements of an
        input are equal. "order": the result may depend on the order of threads. "tail": no thread lies
        beyond the end of the data. "exits": threads returned ahead of a barrier.
    text : str
        The limit, and a way to check beyond it.

    Examples
    --------
    >>> print(NotSeen("tail", "n is 128, the number of threads: no thread lies beyond the end; try 127"))
    n is 128, the number of threads: no thread lies beyond the end; try 127
    """

    kind: str
    text: str

    def __str__(self) -> str:
        return self.text


def find_not_seen(
    device: Any, work: Work, arguments: Sequence[Argument], changed: Sequence[str], executed: int
) -> tuple[NotSeen, ...]:
    """The limits of the checks of a simulated launch, the most important first; () after a fault."""
    if not isinstance(device, Device) or device.faults:
        return ()
    limits = (
        ("optimised", _optimised(device, work, executed) or _removed(work)),
        ("aliases", _aliases(work, arguments, changed)),
        ("equal bits", _equal_bits(work, arguments, changed)),
        ("order", _order(work) if device.schedule == "lowest pc" else None),
        ("tail", _tail(work, arguments)),
        ("exits", _returned(device, work, executed)),
    )
    return tuple(NotSeen(kind, text) for kind, text in limits if text)


# ---- variables that the optimiser removed -----------------------------------------------------------------


def _optimised(device: Device, work: Work, executed: int) -> str | None:
    """Run a short launch again without optimisation, if the source declares variables without a value."""
    fault = unoptimised_fault(work, device.compute_capability) if executed <= _SHORT else None
    if fault is None:
        return None
    place = getattr(fault, "place", None)
    line = (place.source_text if place is not None else "") or ""
    names = [name for name in _without_value(work) if re.search(rf"\b{name}\b", line)]
    where = str(fault).splitlines()[0]
    if names and place is not None and fault.check in _UNINITIALISED:
        source = work.source
        file = source.path if place.source_file == source.name and source.path else place.source_file
        where = f"{file}:{place.source_line}: {names[0]} is read before it is written"
    return f"{where}; the optimiser removed this: compile with -G to see all of it"


def unoptimised_fault(work: Work, cc: tuple[int, int], budget: int = _STEPS) -> KernelFault | None:
    """The first use of a variable without a value, or access beside it, in a build without optimisation."""
    build = work.source.unoptimised
    if build is None or not _without_value(work) or not _is_repeatable(work):
        return None
    try:
        return _fault_of(work.of(build()), cc, _REMOVED, budget)
    except SimwarpError:
        return None


def _fault_of(work: Work, cc: tuple[int, int], kinds: Sequence[str], budget: int) -> KernelFault | None:
    """The first fault of some kinds in another launch."""
    device = Device(
        cc=cc,
        multiprocessors=multiprocessors_of(cc),
        checks={kind: "raise" if kind in kinds else "off" for kind in KINDS},
        instruction_budget=budget,
        stdout=io.StringIO(),
    )
    try:
        work.launch(device)
    except KernelFault as fault:
        return fault if fault.check in kinds else None
    except SimwarpError:
        return None
    return None


def _removed(work: Work) -> str | None:
    """A shared variable of the kernel that only a build without optimisation has."""
    names = [name for name in _SHARED.findall(_body(work)) if not _has_shared(work.source.ptx, name)]
    build = work.source.unoptimised
    try:
        ptx = build().ptx if names and build is not None else ""
    except SimwarpError:
        return None
    name = next((name for name in names if _has_shared(ptx, name)), None)
    if name is None:
        return None
    return f"the optimiser removed {name} with all its accesses: compile with -G to see them"


def _has_shared(ptx: str, name: str) -> bool:
    """True if PTX has a shared variable of that name in the source."""
    return re.search(rf"\.shared\b[^;\n]*(?:\b|{len(name)}){name}(?:_\d+)?\b", ptx) is not None


def _body(work: Work) -> str:
    """The source from a kernel's head to the end of its body."""
    name = re.escape(plain(readable(work.kernel.name)).rpartition("::")[2])
    text = without_literals(work.source.text)
    found = re.search(rf"\b{name}\s*\([^()]*\)\s*\{{", text)
    if found is None:
        return ""
    depth = 0
    for brace in re.finditer(r"[{}]", text[found.end() - 1 :]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[found.start() : found.end() + brace.start()]
    return text[found.start() :]


def _without_value(work: Work) -> tuple[str, ...]:
    """The names of variables that the source declares without a value."""
    return tuple(name for text in work.source.files.values() for name in _declared(text))


@lru_cache(maxsize=32)
def _declared(text: str) -> tuple[str, ...]:
    """The variables that C++ declares without a value, members of structures included."""
    code, before = re.sub(r"^[ \t]*#.*$", "", without_literals(text), flags=re.MULTILINE), ""
    while code != before:
        before, code = code, re.sub(r"\([^()]*\)", " @ ", code)
    found: list[str] = []
    for part in re.split(r"[;{}]", code):
        statement = _LABELS.sub("", part.strip())
        declared = (
            None
            if _OTHER_STATEMENT.match(statement) or "@" in statement
            else _DECLARATION.fullmatch(statement)
        )
        if declared:
            found += [name for part in declared[1].split(",") if "=" not in part and (name := _name(part))]
    return tuple(found)


def _name(declarator: str) -> str:
    found = re.match(r"[\s*&]*([A-Za-z_]\w*)", declarator)
    return found[1] if found else ""


def _is_repeatable(work: Work) -> bool:
    """True if all arguments are values of the host, which a second device can take."""
    return all(
        isinstance(value, np.ndarray | np.generic | Out | int | float | bool | bytes)
        for value in _given(work)
    )


def _given(work: Work) -> list[Any]:
    """The values of a launch's arguments, without their names."""
    args: Any = work.args
    values = cast("Sequence[Any]", list(args.values()) if hasattr(args, "values") else list(args))
    return [value.value if isinstance(value, Given) else value for value in values]


# ---- arguments --------------------------------------------------------------------------------------------


def _aliases(work: Work, arguments: Sequence[Argument], changed: Sequence[str]) -> str | None:
    """Arrays that overlap on the host but not here, and one array for a restricted parameter and another."""
    arrays: list[Any] = [value for value in _given(work) if isinstance(value, np.ndarray)]
    overlapping = any(a is not b and np.may_share_memory(a, b) for a, b in combinations(arrays, 2))
    if overlapping and changed:
        return "arguments overlap, but each is copied by itself: pass one array, and offsets into it"
    restricted = _restricted(work)
    for a, b in combinations([argument for argument in arguments if argument.is_array], 2):
        if a.value.pointer == b.value.pointer and {a.name, b.name} & {*changed}:
            marked = next((argument for argument in (a, b) if argument.position in restricted), None)
            if marked is not None:
                what = f"parameters {a.position} and {b.position} are one array"
                return f"{what}, and {marked.name} is __restrict__: compilers may reorder their accesses"
    return None


def _restricted(work: Work) -> set[int]:
    """The positions of the kernel's parameters that the source declares ``__restrict__``."""
    name = re.escape(plain(readable(work.kernel.name)).rpartition("::")[2])
    found = re.search(rf"\b{name}\s*\(([^()]*)\)\s*\{{", without_literals(work.source.text))
    return {i for i, part in enumerate(found[1].split(",")) if "restrict" in part} if found else set()


def _equal_bits(work: Work, arguments: Sequence[Argument], changed: Sequence[str]) -> str | None:
    """A message about the first input array whose elements are all equal; None if there is none."""
    types = parameter_types(work.kernel.name)
    for argument in arguments:
        before: Any = argument.before
        is_input = argument.position < len(types) and "const" in types[argument.position]
        if (
            before is None
            or not is_input
            or argument.name in changed
            or before.size < 2
            or before.dtype.hasobject
        ):
            continue
        flat = before.reshape(-1)
        if (flat == flat[0]).all():
            what = f"{argument.name} is {flat[0]} everywhere"
            return f"{what}: equal bits hide races and wrong indices; let its elements differ"
    return None


def _tail(work: Work, arguments: Sequence[Argument]) -> str | None:
    """A bound of the kernel's comparisons that equals the number of threads."""
    threads = {work.grid[0] * work.block[0], math.prod(work.grid) * math.prod(work.block)}
    bounds = _compared(work)
    for argument in arguments:
        name = work.kernel.parameters[argument.position].name
        if not argument.is_array and name in bounds and np.ndim(argument.value) == 0:
            value: Any = argument.value
            if np.asarray(value).dtype.kind in "iu" and int(value) in threads and int(value) > 1:
                what = f"{argument.name} is {value}, the number of threads"
                return f"{what}: no thread lies beyond the end; try {int(value) - 1}"
    return None


def _compared(work: Work) -> set[str]:
    """The parameters that are compared directly, such as n in ``i < n``."""
    loaded: dict[str, str] = {}
    found: set[str] = set()
    for instruction in work.kernel.instructions:
        operands = instruction.operands
        if instruction.opcode.startswith("ld.param") and isinstance(operands[0], Register):
            address = operands[1]
            if isinstance(address, Address) and isinstance(address.base, Symbol):
                loaded[operands[0].name] = address.base.name
        elif _compares(instruction.opcode):
            found |= {loaded[o.name] for o in operands[1:] if isinstance(o, Register) and o.name in loaded}
    return found


# ---- early returns ----------------------------------------------------------------------------------------


def _returned(device: Device, work: Work, executed: int) -> str | None:
    """Run a short launch again with the check of early returns, if its kernel has one ahead of a barrier."""
    if device.checks.action("exits") != "off" or executed > _SHORT or not _is_repeatable(work):
        return None
    ways = linked(work.source.ptx, work.kernel.name).ways_out
    if not any(RETURNS in way.values() for both in ways.values() for way in both):
        return None
    fault = _fault_of(work, device.compute_capability, ("exits",), _STEPS)
    if fault is None:
        return None
    place = str(fault).partition(": ")[0]
    what = "an idiom that works since Volta, or a barrier in a condition"
    return f"threads returned ahead of the barrier at {place}: {what}; --checks exits=raise shows both places"


def _compares(opcode: str) -> bool:
    """True if an opcode is that of a comparison."""
    entry = TABLE.find(opcode)
    return entry is not None and "compare" in entry[0].traits


# ---- order ------------------------------------------------------------------------------------------------


def _order(work: Work) -> str | None:
    """An instruction whose result depends on the order of threads."""
    for instruction, why in _ordered(work.kernel.instructions):
        line = instruction.source
        where = (
            f"{line.file}:{line.line}"
            if line is not None and line.file in work.source.files
            else "the kernel"
        )
        return f"one order of threads ran, and {where} {why}: compare schedules (--schedules 4)"
    return None


def _ordered(instructions: Sequence[Instruction]) -> Iterator[tuple[Instruction, str]]:
    """Yield instructions whose result depends on the order of threads, each with a description."""
    named = Counter(name for i in instructions for name in registers_in((*i.operands, i.guard)))
    for instruction in instructions:
        head, *parts = instruction.opcode.split(".")
        if head in ("atom", "red") and "add" in parts and parts[-1] in _FLOATS:
            yield instruction, "adds floats atomically, with a rounding that depends on it"
        elif head == "atom" and any(named[name] > 1 for name in registers_in(instruction.operands[:1])):
            yield instruction, "uses the old value of an atomic operation"
        elif head == "ld" and "shared" not in parts and any(part in _WEAK for part in parts):
            yield instruction, "reads what other threads write meanwhile"
