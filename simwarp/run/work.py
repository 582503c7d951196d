"""A kernel and everything that its launch needs, except the device."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from gpu.cuda.driver import is_raised_here
from reference.devices.launch import Dim
from simwarp.faults import KernelFault
from simwarp.ptx.syntax import Function
from simwarp.run.arguments import Argument, convert
from simwarp.run.binding import Arguments
from simwarp.run.source import Source
from simwarp.run.variables import put, settings, unset, with_values


@dataclass(frozen=True)
class Work:
    """A kernel and everything that its launch needs, except the device."""

    source: Source
    kernel: Function
    grid: Dim
    block: Dim
    args: Arguments = ()  # a sequence, or a mapping by name or position
    shared: int = 0  # bytes of dynamic shared memory
    cooperative: bool = False
    cluster: Dim | None = None
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Values of ``__constant__`` and ``__device__`` variables."""

    def launch(self, device: Any) -> list[Argument]:
        """Copy the arguments to a device, launch the kernel, and wait for it."""
        arguments = self.prepare(device)
        self.start(device, arguments)
        return arguments

    def prepare(self, device: Any) -> list[Argument]:
        """Copy the launch's arguments to a device."""
        names, types = self.source.parameters(self.kernel), self.source.types(self.kernel)
        return convert(device, self.kernel, self.args, names, types)

    def start(
        self, device: Any, arguments: Sequence[Argument], begins: Callable[[], object] = lambda: None
    ) -> None:
        """Launch the kernel with arguments of a device, and wait for it; ``begins`` is called just before."""
        values = settings(self.source.module, self.variables, self.source.variable_type)
        loadable = self.source.loadable
        module = device.load(loadable)
        if hasattr(module, "variable"):
            put(module, values)
        elif values:
            text = with_values(loadable.text, self.source.module, values)
            module = device.load(loadable._replace(text=text))
        kernel = module.kernel(self.kernel.name)
        options: dict[str, Any] = {
            "shared": self.shared,
            "cooperative": self.cooperative,
            "cluster": self.cluster,
        }
        begins()
        with hardware_faults(device):
            kernel(self.grid, self.block, *(a.value for a in arguments), **options)
            device.synchronize()

    def of(self, source: Source) -> Work:
        """The same launch, of the kernel with this name in another source."""
        return replace(self, source=source, kernel=source.entries[self.kernel.name])

    @property
    def notes(self) -> tuple[str, ...]:
        """Possible mistakes: ``__constant__`` variables that the kernel reads and that have no value."""
        given = settings(self.source.module, self.variables, self.source.variable_type)
        return tuple(
            f"{name} is zero: the kernel reads this __constant__ variable, which was not set"
            for name in unset(self.source.module, self.kernel, given)
        )


@contextmanager
def hardware_faults(device: Any) -> Generator[None]:
    """Convert the exception of a failed launch on a GPU to a `KernelFault`."""
    try:
        yield
    except Exception as error:
        if not is_raised_here(error):
            raise
        raise KernelFault(
            f"the kernel failed on {device.name}",
            str(error),
            "run it on simwarp.Device(), which finds the line",
        ) from error
