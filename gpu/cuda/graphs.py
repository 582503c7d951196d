"""Launches of several kernels as one CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence, Set
from ctypes import c_char, c_uint64
from functools import lru_cache, partial
from itertools import islice
from threading import Lock
from typing import Any, TypeAlias

from gpu.cuda.capture import CAPTURES, GRAPH, CudaGraph
from gpu.cuda.driver import bindings as driver
from gpu.cuda.driver import checked, refuse
from gpu.cuda.kernels import Buffer, CudaKernel, Packing
from gpu.cuda.launch import configuration, let_overlap, set_cluster_of
from gpu.cuda.tensor_map import encoded
from gpu.device import LaunchPlan
from reference.devices.tensor_map import TensorMap
from reference.errors import LaunchError

_MOST_MAPS = 64
"""Encoded tensor maps that a launch keeps for each argument."""


def _mapped(tensor: TensorMap, capability: tuple[int, int], address: int) -> bytes:
    """Encode a tensor map for an address."""
    return encoded(tensor.at(address), capability)


class BoundLaunch:
    """A `LaunchPlan` with its kernel loaded and a parameter buffer of its own."""

    def __init__(self, kernel: CudaKernel, plan: LaunchPlan, capability: tuple[int, int] = (9, 0)) -> None:
        kinds = zip(kernel.places, kernel.types or ["b"] * len(kernel.places), strict=True)
        zeros = [0 if kind else bytes(size) for (_, size), kind in kinds]
        given = [value is None or isinstance(value, TensorMap) for value in plan.args]
        args = zip(plan.args, given, zeros, strict=False)
        values = [zero if from_call else value for value, from_call, zero in args]
        packing, self._buffer = Packing(kernel, values), Buffer(kernel.places)
        packing.write(self._buffer.bytes, values)
        slots = [i for i, from_call in enumerate(given) if from_call]
        self._addresses, self._others = list[tuple[int, Any]](), list[tuple[int, Any, int, Any]]()
        for number, slot in enumerate(slots):
            offset, size = kernel.places[slot]
            if plan.args[slot] is None and zeros[slot] == 0 and size == 8:
                self._addresses.append((number, c_uint64.from_buffer(self._buffer.bytes, offset)))
                continue
            tensor = plan.args[slot]
            mapped = None if tensor is None else lru_cache(_MOST_MAPS)(partial(_mapped, tensor, capability))
            cell = (c_char * size).from_buffer(self._buffer.bytes, offset)
            self._others.append((number, cell, size, mapped))
        self.given, self.plan = len(slots), plan
        self._function, self._grid, self._block = kernel.function, plan.grid, plan.block
        self._shared, self.cluster, self.dependent = plan.shared, plan.cluster, plan.dependent
        self.cooperative = plan.cooperative
        if plan.shared or plan.cluster:
            self.cluster = kernel.launcher.admit(plan.grid, plan.shared, plan.cluster)

    def write(self, given: Sequence[int | bytes], before: Sequence[int | bytes] = ()) -> None:
        """Write into the buffer the addresses, maps and structures of a call.

        ``before`` are those that the buffer has, of which the equal ones are not written again.
        """
        for number, cell in self._addresses:
            if not before or given[number] != before[number]:
                cell.value = given[number]
        for number, cell, size, mapped in self._others:
            if before and given[number] == before[number]:
                continue
            data: Any = given[number] if mapped is None else mapped(given[number])
            if len(data) != size:
                raise LaunchError(
                    f"a structure has {len(data)} bytes\nthe parameter has {size}\n"
                    "pass a structure of that size"
                )
            cell.raw = data

    def start(self, queue: Any) -> None:
        """Launch the kernel by itself, in a stream, with the parameters in the buffer."""
        config = configuration(
            self._grid,
            self._block,
            self._shared,
            queue,
            self.cluster,
            cooperative=self.cooperative,
            dependent=self.dependent,
        )
        (status,) = driver.cuLaunchKernelEx(config, self._function, self._buffer.pointers, 0)
        if status:
            refuse(GRAPH, status)

    def node(self) -> Any:
        """The parameters of a graph's kernel node; the driver reads the buffer whenever they are set."""
        params = driver.CUDA_KERNEL_NODE_PARAMS()
        params.func, params.sharedMemBytes = self._function, self._shared
        params.gridDimX, params.gridDimY, params.gridDimZ = self._grid
        params.blockDimX, params.blockDimY, params.blockDimZ = self._block
        params.kernelParams, params.extra = self._buffer.pointers, 0
        return params


_Node: TypeAlias = tuple[Any, Any, BoundLaunch, int, int]
"""A node of a graph, its parameters and launch, and which of a call's arrays the launch takes: first, end."""


class BoundChain:
    """Launches in order, as one CUDA graph, which costs the host less than a single launch.

    A chain with a cooperative launch is launched one by one. Parameters equal to those of the last call are
    not written again; those of ``settled`` launches, by their numbers, are written once.
    """

    def __init__(self, launches: Sequence[BoundLaunch], settled: Set[int] = frozenset()) -> None:
        self._launches = launches  # the nodes hold the buffers' addresses, but do not keep the buffers alive
        self._lock = Lock()
        self._last: tuple[int | bytes, ...] | None = None
        self._count = sum(launch.given for launch in launches)
        self._cooperative = any(launch.cooperative for launch in launches)
        if self._cooperative:
            return
        graph = checked(GRAPH, driver.cuGraphCreate(0))
        self._nodes: list[_Node] = []
        end = 0
        for launch in launches:
            last, params = [node for node, *_ in self._nodes[-1:]], launch.node()
            before = [] if launch.dependent else last
            node = checked(GRAPH, driver.cuGraphAddKernelNode(graph, before or None, len(before), params))
            if last and launch.dependent:
                let_overlap(graph, last[0], node)
            if launch.cluster is not None:
                set_cluster_of(node, launch.cluster)
            start, end = end, end + launch.given
            self._nodes.append((node, params, launch, start, end))
        self._changing = [node for number, node in enumerate(self._nodes) if number not in settled]
        self._graph = CudaGraph()
        self._executable = self._graph.instantiate(graph)
        self._change, self._launch = driver.cuGraphExecKernelNodeSetParams, driver.cuGraphLaunch

    def __call__(self, arrays: Sequence[Sequence[Any]], queue: Any = 0, *, captured: bool = False) -> None:
        """Launch in a stream, each with its arrays, or bytes of structures; others may capture the stream."""
        given = tuple([x if x.__class__ is bytes else x.pointer for each in arrays for x in each])
        if len(given) != self._count:
            raise LaunchError(
                f"{GRAPH}: {len(given)} arrays\nits launches take {self._count}\ngive each its own"
            )
        if CAPTURES.graph is not None:
            kept = [tuple(each) for each in arrays]
            plans = zip([launch.plan for launch in self._launches], kept, strict=True)
            CAPTURES.graph.keep(partial(self, kept), (x for each in kept for x in each), plans)
            with self._lock:
                self._one_by_one(given, CAPTURES.queue)
        elif captured:
            with self._lock:
                self._one_by_one(given, queue)
        else:
            self.launch(given, queue)

    def launch(self, given: tuple[int | bytes, ...], queue: Any) -> None:
        """Launch in a stream that is not captured, with addresses and structures in their order."""
        with self._lock:
            if self._cooperative:
                self._one_by_one(given, queue)
                return
            if given != self._last:
                self._update(given)
            (status,) = self._launch(self._executable, queue)
        if status:
            refuse(GRAPH, status)

    def _one_by_one(self, given: tuple[int | bytes, ...], queue: Any) -> None:
        """Make the launches one by one, in the stream that is being captured."""
        self._last = None  # the graph's parameters are no longer those in the buffers
        rest = iter(given)
        for launch in self._launches:
            launch.write(list(islice(rest, launch.given)))
        for launch in self._launches:
            launch.start(queue)

    def _update(self, given: tuple[int | bytes, ...]) -> None:
        """Set the parameters that changed, for the next launches; launches under way keep theirs."""
        last = self._last
        self._last = None  # until the graph has them all
        for node, params, launch, start, end in self._nodes if last is None else self._changing:
            part, before = given[start:end], () if last is None else last[start:end]
            if before == part:
                continue
            launch.write(part, before)
            (status,) = self._change(self._executable, node, params)
            if status:
                refuse(GRAPH, status)
        self._last = given
