"""Attributes and shared memory of a launch on an NVIDIA GPU, and its refusals."""

from __future__ import annotations

import math
from typing import Any

from gpu.cuda.driver import bindings as driver
from gpu.cuda.driver import refuse
from reference.devices.launch import Dim, Extent, cluster_of
from reference.errors import LaunchError

_MOST_IN_CLUSTER = 16
"""Most blocks of a cluster that a GPU may allow, with the opt-in that `Function.admit` makes."""
_PORTABLE = 8
"""Most blocks of a cluster that every GPU with clusters allows."""


class Function:
    """A kernel's function in the driver, and its limits so far.

    ``cluster`` has the blocks per cluster that the kernel requires; ``most_shared``, the bytes of dynamic
    shared memory that the driver allows its launches so far.
    """

    def __init__(self, name: str, function: Any) -> None:
        self.name, self._function, self._driver = name, function, driver
        self._which = which = driver.CUfunction_attribute
        self.most_shared = self._attribute(which.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        width = self._attribute(which.CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH)
        height = self._attribute(which.CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT)
        depth = self._attribute(which.CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH)
        self.cluster: Dim | None = (width, height, depth) if width else None
        self._portable = True

    def admit(self, grid: Dim, shared: int, cluster: Extent | None) -> Dim | None:
        """Ask the driver for a launch's memory and cluster; returns the cluster, or None.

        LaunchError if the driver refuses.
        """
        if shared > self.most_shared:
            self._ask_for_shared(shared)
        found = cluster_of(self.name, grid, cluster, self.cluster, self._most_in_cluster())
        if found is not None and self._portable and math.prod(found) > _PORTABLE:
            which = self._which.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            (status,) = self._driver.cuFuncSetAttribute(self._function, which, 1)
            if status:
                refuse(f"kernel {self.name}: clusters of {found}", status)
            self._portable = False
        return found

    def _ask_for_shared(self, shared: int) -> None:
        """Allow launches with ``shared`` bytes of dynamic shared memory."""
        which = self._which.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        (status,) = self._driver.cuFuncSetAttribute(self._function, which, shared)
        if status:
            static = self._attribute(self._which.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
            raise LaunchError(
                f"kernel {self.name}: {shared} bytes of dynamic shared memory, beside {static} static ones\n"
                f"the GPU refuses so many ({status.name})\ngive the block less"
            )
        self.most_shared = shared

    def _attribute(self, which: Any) -> int:
        """An attribute of the function; 0 if the driver does not know it."""
        status, value = self._driver.cuFuncGetAttribute(which, self._function)
        return 0 if status else int(value)

    def _most_in_cluster(self) -> int:
        """The most blocks of a cluster on the current GPU."""
        driver = self._driver
        _, device = driver.cuCtxGetDevice()
        which = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH
        status, clusters = driver.cuDeviceGetAttribute(which, device)
        return _MOST_IN_CLUSTER if not status and clusters else 0


def configuration(
    grid: Dim,
    block: Dim,
    shared: int,
    queue: Any,
    cluster: Dim | None,
    cooperative: bool,
    dependent: bool,
) -> Any:
    """The configuration of a launch, with its attributes, for ``cuLaunchKernelEx``."""
    which = driver.CUlaunchAttributeID
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block
    config.sharedMemBytes, config.hStream = shared, queue
    attributes = list[Any]()
    if cluster is not None:
        attributes.append(driver.CUlaunchAttribute())
        attributes[-1].id = which.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        _set_cluster(attributes[-1].value, cluster)
    if cooperative:
        attributes.append(driver.CUlaunchAttribute())
        attributes[-1].id = which.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        attributes[-1].value.cooperative = 1
    if dependent:
        attributes.append(driver.CUlaunchAttribute())
        attributes[-1].id = which.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attributes[-1].value.programmaticStreamSerializationAllowed = 1
    config.attrs, config.numAttrs = attributes, len(attributes)
    return config


def set_cluster_of(node: Any, cluster: Dim) -> None:
    """Set the cluster dimensions of a kernel node in a graph."""
    value = driver.CUkernelNodeAttrValue()
    _set_cluster(value, cluster)
    which = driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    (status,) = driver.cuGraphKernelNodeSetAttribute(node, which, value)
    if status:
        refuse(f"a graph of kernels: clusters of {cluster}", status)


def let_overlap(graph: Any, before: Any, node: Any) -> None:
    """Let a graph's kernel node start when the blocks of the one before it allow it to."""
    edge = driver.CUgraphEdgeData()
    edge.from_port = driver.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
    edge.type = driver.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
    (status,) = driver.cuGraphAddDependencies(graph, [before], [node], [edge], 1)
    if status:
        refuse("a graph of kernels: a dependent launch", status)


def _set_cluster(value: Any, cluster: Dim) -> None:
    """Write a cluster into the value of an attribute."""
    value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = cluster
