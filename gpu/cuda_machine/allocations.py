"""Memory of devices: what is in use, and of each device one block that is kept for the next call.

A driver takes 0.4 ms to free a gigabyte, and clears it afterwards, which slows the copies of the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpu.cuda_machine.contexts import Contexts
from gpu.cuda_machine.driver import Driver
from gpu.cuda_machine.memory import CudaMemory
from reference.errors import DtypeError, FreedMemoryError, MachineError

_LARGEST = 2
"""The largest ratio of a kept block to the memory in it; with a budget they are equally large."""


@dataclass(eq=False)
class Block:
    """A block of device memory that the driver has allocated."""

    device: int
    nbytes: int
    address: int
    memory: CudaMemory | None = None  # its present user
    is_kept: bool = True  # it may stay allocated behind its use


class Allocations:
    """The blocks of a machine: each device's, idle ones too, have at most its budget of bytes.

    With ``keep`` the largest idle block of each device stays allocated.
    """

    def __init__(self, driver: Driver, contexts: Contexts, budgets: Sequence[int | None], keep: bool) -> None:
        self._driver, self._contexts, self._budgets, self._keep = driver, contexts, budgets, keep
        self._blocks: dict[Block, None] = {}

    def of(self, device: int) -> tuple[CudaMemory, ...]:
        """The memory of a device that is in use."""
        blocks = list(self._blocks)
        return tuple(one.memory for one in blocks if one.device == device and one.memory is not None)

    def used(self, device: int) -> int:
        """The bytes of a device that are in use."""
        return sum(memory.nbytes for memory in self.of(device))

    def idle(self, device: int) -> int:
        """The bytes of a device's allocated blocks without a user."""
        return sum(block.nbytes for block in self._idle(device))

    def allocate(self, machine: object, device: int, nbytes: int) -> CudaMemory | Any:
        """Allocate memory in a kept block or a new one; returns the driver's status if it has no room."""
        budget = self._budgets[device]
        most = nbytes if budget is not None else _LARGEST * nbytes
        block = next((one for one in self._idle(device) if nbytes <= one.nbytes <= most), None)
        if block is None:
            if budget is not None and self.used(device) + self.idle(device) + nbytes > budget:
                self.trim(device)
            block = self._new(device, nbytes)
        if not isinstance(block, Block):
            return block
        memory = CudaMemory(machine, device, nbytes, block.address)
        block.memory = memory  # Ctrl-C before this line leaves an idle block
        return memory

    def free(self, memory: object) -> None:
        """Free memory; the larger of its block and the one kept before stays allocated."""
        if not isinstance(memory, CudaMemory):
            raise DtypeError(
                f"free of a {type(memory).__name__}\nfree takes what allocate() returned\n"
                "pass the memory, not a tile"
            )
        block = next((one for one in list(self._blocks) if one.memory is memory), None)
        if block is None:
            raise FreedMemoryError(
                f"free of {memory!r}",
                "it is freed already" if memory.freed else "it is of another machine",
                "free each memory once, on its machine",
            )
        block.memory, memory.freed = None, True
        if not self._keep or memory.device in self._driver.lost:
            block.is_kept = False
        idle = sorted(self._idle(memory.device), key=lambda one: (one.is_kept, one.nbytes))
        for one in idle[:-1] if idle[-1].is_kept else idle:
            self._release(one)

    def expire(self) -> None:
        """Let no present block stay allocated behind its use."""
        for block in list(self._blocks):
            block.is_kept = False
        self.trim()

    def trim(self, device: int | None = None) -> int:
        """Free the idle blocks of one device, or of all; returns their number."""
        idle = [block for block in self._idle() if device in (None, block.device)]
        for block in idle:
            self._release(block)
        return len(idle)

    def close(self, release: Callable[..., None]) -> None:
        """Free everything; ``release`` makes a call of a device and keeps its error."""
        for block in list(self._blocks):
            if block.memory is not None:
                block.memory.freed = True
            block.memory = None
            release(block.device, self._release, block)

    def _new(self, device: int, nbytes: int) -> Any:
        """Allocate a block, if need be in place of kept ones; returns the driver's status without room."""
        found: list[Any] = []
        with self._contexts.on(device):
            try:  # Python handles Ctrl-C behind the call of extend
                found.extend(map(self._driver.api.cuMemAlloc, (nbytes,)))
                status, address = found[0]
                if not status:
                    block = Block(device, nbytes, int(address))
                    self._blocks[block] = None
                    return block
            except BaseException:
                if found and not found[0][0] and not any(self._at(device, int(found[0][1]))):
                    self._driver.api.cuMemFree(found[0][1])
                raise
        return self._new(device, nbytes) if self.trim(device) else status

    def _at(self, device: int, address: int) -> Iterator[Block]:
        """The blocks that begin at an address."""
        return (one for one in list(self._blocks) if (one.device, one.address) == (device, address))

    def _idle(self, device: int | None = None) -> list[Block]:
        """The allocated blocks of a device that have no user."""
        blocks = [one for one in list(self._blocks) if one.memory is None]
        return [one for one in blocks if device in (None, one.device)]

    def _release(self, block: Block) -> None:
        """Free an idle block; the memory of a lost device is lost with it."""
        try:
            with self._contexts.on(block.device):
                self._driver.call("cuMemFree", block.address, device=block.device)
        except MachineError:
            if block.device not in self._driver.lost:
                raise
        del self._blocks[block]
