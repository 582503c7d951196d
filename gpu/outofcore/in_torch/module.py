"""`outofcore`: a model of PyTorch whose passes run out of core."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import numpy as np

from gpu.machine import Machine
from gpu.outofcore.in_torch.layers import Sequence, is_sequential, leaves, sequence_of, tensors_of
from gpu.outofcore.in_torch.norms import check_counts, norms_of, running_of, update
from gpu.outofcore.in_torch.pytorch import torch
from gpu.outofcore.networks.layers import Network
from gpu.outofcore.networks.options import TrainingOptions
from gpu.outofcore.networks.passes import Forward, Passes
from gpu.outofcore.networks.plan import TrainingPlan
from gpu.outofcore.networks.trainer import planned
from gpu.outofcore.run import machine_of
from reference.errors import DtypeError, SchemeError, ShapeError


def outofcore(
    module: Any,
    memory_budget: int | None = None,
    *,
    device: Machine | None = None,
    options: TrainingOptions | None = None,
) -> OutOfCore:
    """Wrap a sequential model so that its passes run in pieces; the data need not fit on the device.

    The model is trained by torch's autograd and optimizers, its loss is any that torch computes. Activations
    go to the host's memory and back as `Trainer` moves them.

    Parameters
    ----------
    module : torch.nn.Sequential
        Of Conv2d, Linear, BatchNorm2d, MaxPool2d, AvgPool2d, Flatten, Identity, Dropout that drops nothing,
        others of its kind, and ReLU, Tanh and Sigmoid behind the first three. Its parameters are float32.
    memory_budget : int, optional
        The bytes of the device that may be used. Default: all that are free.
    device : Machine, optional
        Its first device computes. Default: a new `gpu.CudaMachine`.
    options : TrainingOptions, optional

    Returns
    -------
    OutOfCore
        It has the layers of ``module``, not copies, under the same names: so ``parameters()``,
        ``state_dict()``, ``train()`` and ``eval()`` of both are about the same tensors.

    Raises
    ------
    SchemeError
        For a layer, or a setting of one, that is not supported; the message has its place.
    NoGpuError
        If no ``device`` is given and no GPU can be used.

    Examples
    --------
    >>> import torch, simwarp
    >>> from torch.nn import Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential
    >>> model = Sequential(Conv2d(1, 8, 3, padding=1), ReLU(), MaxPool2d(2), Flatten(), Linear(128, 10))
    >>> x, labels = torch.rand(6, 1, 8, 8), torch.arange(6)
    >>> optimizer = torch.optim.SGD(model.parameters(), 0.1)
    >>> with outofcore(model, 40_000, device=simwarp.Machine()) as wrapped:
    ...     losses = []
    ...     for _ in range(3):
    ...         optimizer.zero_grad()
    ...         loss = torch.nn.functional.cross_entropy(wrapped(x), labels)
    ...         loss.backward()
    ...         optimizer.step()
    ...         losses.append(loss.item())
    >>> losses[0] > losses[1] > losses[2]
    True
    """
    return OutOfCore(module, memory_budget, device=device, options=options)


class OutOfCore(torch.nn.Module):
    """A sequential model whose passes run out of core; `outofcore` makes it.

    Memory is taken by the first pass, and given back by `close`, at the end of a ``with`` block, and whenever
    a pass fails. A backward pass belongs to the latest forward pass: the next one overwrites what it needs.
    Each size of a batch has a plan; another size takes the memory anew.

    Parameters
    ----------
    module, memory_budget, device, options
        As of `outofcore`.

    Attributes
    ----------
    training : bool
        As of any module of torch.
    """

    def __init__(
        self,
        module: Any,
        memory_budget: int | None,
        *,
        device: Machine | None,
        options: TrainingOptions | None,
    ) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        if not isinstance(module, torch.nn.Module) or not is_sequential(module):
            raise SchemeError(
                f"the model is a {type(module).__name__}\ntorch.nn.Sequential is needed\nput layers into one"
            )
        list(leaves(module))  # raises for a layer with hooks
        for name, child in module._modules.items():
            self.add_module(name, child)
        sequence_of(self._modules)
        self.training = module.training
        self._machine = machine_of(device, "outofcore")
        self._budget, self._options = memory_budget, options or TrainingOptions()
        self._plans: dict[tuple[Network, int], TrainingPlan] = {}
        self._passes: Passes | None = None

    def __enter__(self) -> OutOfCore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free all memory, even what a pending backward pass needs; the next forward pass allocates it."""
        if self._passes is not None:
            self._passes.close()
            self._passes = None

    def explain(self, shape: tuple[int, ...]) -> TrainingPlan:
        """The plan for images of a shape, (N, C, H, W) or (N, F); printed, it is a table."""
        _, network = self._described(shape, image_gradient=False)
        return self._plan(network, shape[0])

    def forward(self, x: Any) -> Any:
        """Compute the result for images of float32, (N, C, H, W), or (N, F) if the first layer is ``Linear``.

        Raises
        ------
        ShapeError, DtypeError
            For images that do not fit, and for parameters that are not float32.
        SchemeError
            If a layer changed, or its mode, so that it is not supported.
        LaunchError
            For a budget that does not hold the smallest pieces; the message has the least one.
        MachineError
            If the machine fails; all memory is then given back.
        """
        if not isinstance(x, torch.Tensor) or x.dtype != torch.float32:
            given = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
            raise DtypeError(f"the images are {given}\na tensor of float32 is needed\nconvert them")
        shape = tuple(x.shape)
        sequence, network = self._described(shape, image_gradient=torch.is_grad_enabled() and x.requires_grad)
        norms, tensors = norms_of(sequence, network), tensors_of(sequence, network)
        running = running_of(norms)
        if running is None:
            check_counts(norms, network, shape[0])
        run = _Run(self._opened(network, shape[0]), tuple(tensors), running)
        try:
            y = _InPieces.apply(run, x, *tensors.values())
            with torch.no_grad():
                update(norms, run.moments)
        except BaseException:
            self.close()
            raise
        y = y.flatten(1) if sequence.is_flat else y
        return y if sequence.activation is None else sequence.activation(y)

    def _described(self, shape: tuple[int, ...], *, image_gradient: bool) -> tuple[Sequence, Network]:
        """Convert the model in its current state, for images of a shape."""
        if len(shape) not in (2, 4) or not shape[0]:
            raise ShapeError(
                f"the images have shape {shape}\n(N, C, H, W) or (N, F) is needed, and one image or more\n"
                "reshape them"
            )
        is_flat = len(shape) == 2
        sequence = sequence_of(self._modules, is_flat=is_flat)
        channels, height, width = (shape[1], 1, 1) if is_flat else shape[1:]
        return sequence, Network((channels, height, width), sequence.layers, None, image_gradient)

    def _plan(self, network: Network, batch: int) -> TrainingPlan:
        """The cached plan for batches of ``batch`` images."""
        plan = self._plans.get((network, batch))
        if plan is None:
            plan = planned(network, batch, self._machine, self._budget, self._options)
            self._plans[network, batch] = plan
        return plan

    def _opened(self, network: Network, batch: int) -> Passes:
        """The passes for a network and batch size; passes for others are closed."""
        if self._passes is not None and (self._passes.plan.network, self._passes.plan.batch) != (
            network,
            batch,
        ):
            self.close()
        if self._passes is None:
            self._passes = Passes(self._machine, self._plan(network, batch))
        return self._passes


class _Run:
    """The state that one forward pass shares with its backward pass.

    ``names`` are of the parameters; ``running`` has the running means and variances, if layers normalize.
    """

    def __init__(self, passes: Passes, names: tuple[str, ...], running: Any) -> None:
        self._passes, self._names, self._running = passes, names, running
        self._done = Forward(0, np.empty(0), {})

    @property
    def moments(self) -> Any:
        """Mean and variance of the batch by the name of each batch normalization that uses them."""
        return self._done.moments

    def forward(self, x: Any, tensors: tuple[Any, ...]) -> Any:
        """Compute the model's result, on the device of the images."""
        shapes = self._passes.plan.network.parameters
        parameters = {
            name: np.full(shapes[name], name.endswith(".w"), np.float32) if w is None else _array(w)
            for name, w in zip(self._names, tensors, strict=True)
        }
        images = _array(x).reshape(-1, *self._passes.plan.network.image)
        self._done = self._passes.forward(images, parameters, self._running)
        return torch.from_numpy(self._done.result).to(x.device)

    def backward(self, gradient: Any, needed: tuple[bool, ...]) -> tuple[Any, ...]:
        """The gradients with respect to the images and parameters; None for those not needed."""
        if self._running:
            raise SchemeError(
                "a forward pass with running means has no backward pass\n"
                "only one with the batch's means has\n"
                "call train() before the forward pass"
            )
        gradients, images = self._passes.backward(self._done.number, _array(gradient))
        found = (images, *(gradients[name] for name in self._names))
        return tuple(
            torch.from_numpy(one) if is_needed else None for one, is_needed in zip(found, needed, strict=True)
        )


class _InPieces(torch.autograd.Function):
    """A forward pass in pieces, as a differentiable function for autograd."""

    @staticmethod
    def forward(ctx: Any, run: _Run, x: Any, *tensors: Any) -> Any:
        """Compute the model's result for the images ``x``."""
        ctx.run = run
        ctx.like = tuple(None if one is None else (one.shape, one.device) for one in (x, *tensors))
        return run.forward(x, tensors)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        """Compute the gradients with respect to the images and the parameters."""
        if torch.is_grad_enabled():
            raise SchemeError(
                "create_graph=True asks for gradients of gradients\nthe backward pass has no gradient\n"
                "call backward without it"
            )
        found = ctx.run.backward(gradient, ctx.needs_input_grad[1:])
        pairs = zip(found, ctx.like, strict=True)
        return None, *(None if one is None else one.reshape(like[0]).to(like[1]) for one, like in pairs)


def _array(tensor: Any) -> Any:
    return tensor.detach().cpu().numpy()
