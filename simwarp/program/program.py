"""A linked kernel: registers are slots, labels are step numbers, instructions are bound to rows.

`simwarp.program.link` builds a `Program` from syntax; `simwarp.engine` runs it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from simwarp.elements import declared_shape, name_element
from simwarp.program.barrier_regions import with_several_counts
from simwarp.program.exits import ways_out
from simwarp.program.liveness import EVERY_REGISTER, live_registers
from simwarp.program.postdominators import reconvergence
from simwarp.program.steps import Routine, Step
from simwarp.program.waits import Unheeded, unheeded
from simwarp.ptx import kinds
from simwarp.ptx.mangled_names import plain_variable
from simwarp.ptx.syntax import Immediate, Register, Variable

BARRIERS = 16
"""The barriers of a block."""


class HostFunction(NamedTuple):
    """The bytes of the arguments and results of a function that `engine.schedule.host_functions` runs."""

    arguments: tuple[int, ...]
    returns: tuple[int, ...] = ()


HOST_FUNCTIONS = {
    "vprintf": HostFunction((8, 8), (4,)),
    "__assertfail": HostFunction((8, 8, 4, 8, 8)),
    "malloc": HostFunction((8,), (8,)),
    "free": HostFunction((8,)),
}


@dataclass(eq=False)
class Program:
    """A kernel and the device functions that it can reach, as a list of steps.

    Attributes
    ----------
    start : int
        The kernel's first step; device functions come before it, so that "lowest step first"
        lets lanes return from a call before the others continue.
    registers : list of str
        The name of each register slot.
    types : list of str
        Its PTX type.
    parameters : list of Variable
    parameter_offsets : dict of str to int
        Offset of each parameter in the parameter space.
    shared_size, dynamic_shared_at : int
        Bytes of static shared memory, and the offset of the dynamic part.
    shared_variables : dict of str to (int, int)
        Start and end of each shared variable; dynamic ones end with the block's window.
    local_size : int
        Bytes of local memory per thread, without recursion.
    max_threads, max_cluster : int or None
        Most threads per block and blocks per cluster; None if the kernel does not limit them.
    required_block, cluster : (x, y, z) or None
        The threads per block, and the blocks per cluster, that the kernel requires.
    explicit_cluster : bool
        Whether each launch must be in clusters.
    max_registers, min_blocks : int or None
        Most registers per thread, and blocks per multiprocessor to aim at; None if the kernel does not say.
    routines : dict of str to Routine
    addresses : dict of int to str
        Function address → name of the function.
    debug : bool
        Whether it was compiled without optimisation (``-G``).
    """

    name: str
    steps: list[Step]
    registers: list[str]
    parameters: list[Variable]
    types: list[str] = field(default_factory=list[str])
    parameter_offsets: dict[str, int] = field(default_factory=dict[str, int])
    start: int = 0
    shared_size: int = 0
    dynamic_shared_at: int = 0
    local_size: int = 0
    max_threads: int | None = None
    required_block: tuple[int, int, int] | None = None
    cluster: tuple[int, int, int] | None = None
    max_cluster: int | None = None
    explicit_cluster: bool = False
    max_registers: int | None = None
    min_blocks: int | None = None
    routines: dict[str, Routine] = field(default_factory=dict[str, Routine])
    addresses: dict[int, str] = field(default_factory=dict[int, str])
    shared_variables: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    debug: bool = False

    def routine_at(self, number: int) -> Routine:
        """The kernel or device function that a step belongs to."""
        return self._in_order[bisect_right(self._in_order, number, key=lambda r: r.first) - 1]

    def steps_of(self, routine: Routine) -> list[Step]:
        """The steps of the kernel or of a device function."""
        later = [other.first for other in self.routines.values() if other.first > routine.first]
        return self.steps[routine.first : min(later, default=len(self.steps))]

    def shared_place(self, offset: int) -> str:
        """Describe a byte of a block's shared memory: its variable, if it is in one, and the offset."""
        for name, (first, end) in self.shared_variables.items():
            if first <= offset < end:
                return f"byte {offset - first} of {plain_variable(name)} in shared memory"
        return f"byte {offset} of the block's shared memory"

    def shared_element(self, offset: int, width: int, shared_size: int, sources: Mapping[str, str]) -> str:
        """The element of a shared variable at an offset; "" if there is none, or its shape is not known."""
        for name, (first, end) in self.shared_variables.items():
            if first <= offset < min(end, shared_size):
                plain, size = plain_variable(name), min(end, shared_size) - first
                if (shape := declared_shape(plain, size, sources)) is not None:
                    return name_element(plain, shape, offset - first, width)
        return ""

    @cached_property
    def _in_order(self) -> list[Routine]:
        return sorted(self.routines.values(), key=lambda r: r.first)

    @cached_property
    def recursive(self) -> bool:
        """Whether one of the program's functions is recursive."""
        return any(routine.recursive for routine in self.routines.values())

    @cached_property
    def calls_heap(self) -> bool:
        """Whether the program may call ``malloc`` or ``free``."""
        names = {step.call.function for step in self.steps if step.call is not None}
        return bool(names & {"malloc", "free", ""})

    @cached_property
    def copies_asynchronously(self) -> bool:
        """Whether the program issues ``cp.async`` copies, or waits for them."""
        return any(step.kind in (kinds.ASYNC_COPY, kinds.ASYNC_GROUP) for step in self.steps)

    @cached_property
    def has_volatile_accesses(self) -> bool:
        """Whether the program has volatile or relaxed accesses to memory that are not atomic."""
        words = ("volatile", "relaxed", "mmio")
        plain = (step.form for step in self.steps if step.kind.access and not step.kind.updates)
        return any(form.has(word) for form in plain for word in words)

    @cached_property
    def changes_register_counts(self) -> bool:
        """Whether the program has a ``setmaxnreg``, which releases or requests registers."""
        return any(step.kind is kinds.REGISTER_COUNT for step in self.steps)

    @cached_property
    def launches_dependents(self) -> bool:
        """Whether the program may execute ``griddepcontrol.launch_dependents``."""
        return any("grid" in step.row.traits and not step.form.has("wait") for step in self.steps)

    @cached_property
    def waits_for_grids(self) -> bool:
        """Whether the program may execute ``griddepcontrol.wait``."""
        return any("grid" in step.row.traits and step.form.has("wait") for step in self.steps)

    @cached_property
    def has_mbarriers(self) -> bool:
        """Whether the program uses mbarriers, barrier objects in shared memory."""
        return any(step.kind is kinds.MBARRIER or step.barrier is not None for step in self.steps)

    @cached_property
    def mixed_barriers(self) -> frozenset[int]:
        """The barriers of a block that may be used with several thread counts."""
        return with_several_counts(self)

    @cached_property
    def whole_barriers(self) -> frozenset[int]:
        """The steps that wait for all threads of a block, at a barrier that is a number in the text."""
        return frozenset(step.number for step in self.steps if self._is_whole(step))

    def _is_whole(self, step: Step) -> bool:
        if step.kind is not kinds.BARRIER or len(step.sources) != 1 or step.form.has("arrive"):
            return False
        number = step.instruction.operands[0]
        if not isinstance(number, Immediate) or number.value >= BARRIERS:
            return False
        return number.value not in self.mixed_barriers

    @cached_property
    def unheeded_tests(self) -> Unheeded:
        """The mbarrier tests whose results order nothing, and those that lanes pass after a false result."""
        return unheeded(self)

    @cached_property
    def has_transfers(self) -> bool:
        """Whether the program has operations of the asynchronous proxy: bulk copies and reductions."""
        return any(step.kind.transfers for step in self.steps)

    @cached_property
    def has_warpgroup_products(self) -> bool:
        """Whether the program issues ``wgmma`` products, or waits for them."""
        return any(step.kind in (kinds.WARPGROUP_PRODUCT, kinds.WARPGROUP_ORDER) for step in self.steps)

    @cached_property
    def reserves_shared(self) -> bool:
        """Whether the program reads special registers that locate the reserved part of shared memory."""
        operands = (operand for step in self.steps for operand in step.instruction.operands)
        return any(isinstance(o, Register) and o.name.startswith("%reserved_smem") for o in operands)

    @cached_property
    def live(self) -> list[int]:
        """The live registers at each step, one bit per slot; all registers if there are device functions."""
        if len(self.routines) > 1:
            return [EVERY_REGISTER] * (len(self.steps) + 1)
        return live_registers(self.steps, self.registers)

    @cached_property
    def exchanges(self) -> bool:
        """Whether lanes read registers of other lanes: shuffles, votes, matrix products."""
        others = (kinds.WARP, kinds.WARPGROUP_PRODUCT)
        return any(step.kind in others or step.kind.fragments for step in self.steps)

    @cached_property
    def reconvergence(self) -> dict[int, int]:
        """Branch step → the step where lanes that diverge there reconverge: its immediate post-dominator."""
        return reconvergence(self.steps)

    @cached_property
    def ways_out(self) -> dict[int, tuple[dict[int, int], dict[int, int]]]:
        """Step where lanes leave for good → its edges that avoid all barriers, and all warp operations."""
        block, warp = ways_out(
            self,
            lambda step: step.kind is kinds.BARRIER and not step.form.has("arrive"),
            lambda step: step.kind.masked,
        )
        return {at: (block.get(at, {}), warp.get(at, {})) for at in (block | warp)}
