"""`Trainer`: training of a network within a device's memory budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.cuda_machine import CudaMachine
from gpu.machine import Machine
from gpu.outofcore.networks import checkpoint as checkpoints
from gpu.outofcore.networks.checks import (
    check_count,
    check_segments,
    images_of,
    labels_of,
    parameters_of,
)
from gpu.outofcore.networks.engines import Engines, step_rates
from gpu.outofcore.networks.host_copies import write_array
from gpu.outofcore.networks.layers import SGD, Network
from gpu.outofcore.networks.memory import HostMemory
from gpu.outofcore.networks.moments import batch_moments, put_moments
from gpu.outofcore.networks.options import TrainingOptions
from gpu.outofcore.networks.phases import LABELS, LOSS, Key
from gpu.outofcore.networks.plan import TrainingPlan
from gpu.outofcore.networks.planner import training_plan
from gpu.outofcore.networks.rehearsal import predict
from gpu.outofcore.networks.slabs import Slabs
from gpu.outofcore.rates import rates_of
from gpu.outofcore.run import budget_of, machine_of
from gpu.outofcore.statistics import Statistics
from reference.errors import LaunchError, SchemeError, ShapeError

Array = npt.NDArray[Any]
IMAGES = Key("x", 0)


@dataclass(frozen=True)
class TrainingProgress:
    """The progress of a training after a step.

    Attributes
    ----------
    step, steps : int
        Steps done, and those of the whole training.
    loss : float
        Of the step's batch, before its update.
    statistics : Statistics
        Of the step.

    Examples
    --------
    >>> TrainingProgress(3, 10, 0.5, Statistics()).step
    3
    """

    step: int
    steps: int
    loss: float
    statistics: Statistics


class Trainer:
    """Trains a network whose activations need not fit on the device.

    All memory, one slab of the device and one page-locked slab of the host, is taken at the first step and
    given back by `close`, at the end of a ``with`` block, and whenever a step fails.

    Parameters
    ----------
    network : Network
    batch : int
        The images of a step.
    device : Machine, optional
        Its first device computes: a `simwarp.Machine` or a `gpu.CudaMachine`. Default: a new one of all GPUs.
    sgd : SGD, optional
    memory_budget : int, optional
        The bytes of the device that may be used. Default: all that are free.
    options : TrainingOptions, optional
    seed : int
        Of the first weights and of the order of images in `train`.
    parameters : mapping of str to ndarray of float32, optional
        The first weights and biases by the names of ``network.parameters``. Default: drawn.

    Attributes
    ----------
    steps : int
        Steps done.
    statistics : Statistics
        Of the last step: bytes, seconds, and the seconds that the model predicts.

    Raises
    ------
    NoGpuError
        If no ``device`` is given and no GPU can be used.
    LaunchError
        For a budget that does not hold the smallest pieces; the message has the least one.
    ShapeError, SchemeError
        For a batch, parameters or segments that do not fit the network.

    Notes
    -----
    On simulated machines weights do not depend on the plan: gradients by parameters are summed image by image
    and row by row in double precision, and rounded once, in the update. On GPUs those by filters are rounded
    for each piece.

    Examples
    --------
    >>> import simwarp
    >>> from gpu.outofcore import Conv, Dense, Flatten, MaxPool, Network
    >>> net = Network((1, 8, 8), (Conv(8, activation="relu"), MaxPool(), Flatten(), Dense(10)))
    >>> x = np.random.default_rng(0).random((4, 1, 8, 8), np.float32)
    >>> labels = np.array([1, 2, 3, 4])
    >>> with Trainer(net, 4, device=simwarp.Machine(), sgd=SGD(0.1), memory_budget=40_000) as trainer:
    ...     losses = [trainer.step(x, labels) for _ in range(3)]
    >>> losses[0] > losses[1] > losses[2]
    True
    """

    def __init__(
        self,
        network: Network,
        batch: int,
        *,
        device: Machine | None = None,
        sgd: SGD | None = None,
        memory_budget: int | None = None,
        options: TrainingOptions | None = None,
        seed: int = 0,
        parameters: Mapping[str, Array] | None = None,
    ) -> None:
        device = machine_of(device, "Trainer")
        self.steps, self.statistics = 0, Statistics()
        self._machine, self._sgd, self._seed = device, sgd or SGD(), check_count("seed", seed, 0)
        images = check_count("batch", batch, 1)
        if network.loss is None:
            raise SchemeError(
                "the network has no loss\na training step begins its backward pass with the loss\ngive one"
            )
        self._plan = planned(network, images, device, memory_budget, options or TrainingOptions())
        self._state: checkpoints.State = {}
        if parameters is not None:
            self._state = _at_rest(parameters_of(parameters, network), network)
        self._slabs = Slabs(device, self._plan)

    def explain(self) -> TrainingPlan:
        """The plan of a step; printed, it is a table."""
        return self._plan

    @property
    def parameters(self) -> dict[str, Array]:
        """Copies of all weights and biases, by name."""
        states = self._states()
        return {name: states[name][0].copy() for name in self._plan.network.parameters}

    # ------------------------------------------------------------------------------------------ memory

    def __enter__(self) -> Trainer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free all memory; a later step allocates it anew."""
        if self._slabs.host is not None:
            state = self._states()
            self._state = {name: (w.copy(), velocity.copy()) for name, (w, velocity) in state.items()}
        self._slabs.close()

    def _opened(self) -> HostMemory:
        """The host's memory; allocates the slabs if there are none."""
        return self._slabs.open(self.steps % 2, self._fill)

    def _fill(self, host: HostMemory) -> None:
        """Write parameters and velocities to new memory of the host."""
        for name, arrays in self._states().items():
            for target, array in zip(host.state(name), arrays, strict=True):
                target[...] = array

    def _states(self) -> checkpoints.State:
        """Parameters and velocities before the next step."""
        host = self._slabs.host
        if host is None:
            # parameters are drawn when first needed: explaining a plan does not need them
            if not self._state:
                self._state = _at_rest(self._plan.network.initial(self._seed), self._plan.network)
            return self._state
        return {name: host.state(name) for name in self._shapes}

    @property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of parameters and running moments, of which a state has pairs."""
        return self._plan.network.parameters | self._plan.network.running

    # ------------------------------------------------------------------------------------------- steps

    def step(self, x: Array, labels: npt.ArrayLike) -> float:
        """Train on one batch.

        Parameters
        ----------
        x : array of float32, (batch, channels, height, width)
        labels : array_like of integers, (batch,)

        Returns
        -------
        float
            The loss before the update, the mean over the images. A NaN stays one.

        Raises
        ------
        ShapeError, DtypeError, RangeError
            For images or labels that do not fit.
        MachineError
            If the machine fails. Parameters are then as before the step, and all memory is given back.
        """
        network, batch = self._plan.network, self._plan.batch
        x = images_of(x, network)
        if len(x) != batch:
            raise ShapeError(f"{len(x)} images\na step of this Trainer takes {batch}\ngive as many")
        classes = labels_of(labels, batch, network.classes)
        try:
            host = self._opened()
            write_array(host.tensor(IMAGES), x)
            host.tensor(LABELS)[...] = classes
            begin, loads = self._machine.seconds(), not self._slabs.holds_parameters
            self._slabs.run(lambda work, loads: work.step(self._sgd, loads=loads))
            self._run_means(host)
            host.current = (self.steps + 1) % 2
            self.steps += 1
        except BaseException:
            self.close()
            raise
        self._count(self._machine.seconds() - begin, loads)
        return float(host.tensor(LOSS).mean())

    def _run_means(self, host: HostMemory) -> None:
        """Add the batch to the running means and variances, in the state after the step."""
        for stage, moments in batch_moments(self._plan, host):
            name = f"{stage.name}.running"
            for before, after, new in zip(
                host.state(name), host.state(name, after=True), moments, strict=True
            ):
                after[...] = (1 - stage.momentum) * before.astype(np.float64) + stage.momentum * new

    def _count(self, seconds: float, loads: bool) -> None:
        """Set the statistics of a step; ``loads``: whether it loaded the resident parameters."""
        timeline = predict(self._plan, loads=True) if loads else self._plan.timeline
        self.statistics = Statistics(timeline.nbytes("in"), timeline.nbytes("out"), seconds, timeline.seconds)

    def logits(self, x: Array) -> Array:
        """Compute the results of the last layer, batch by batch.

        Parameters
        ----------
        x : array of float32, (count, channels, height, width)

        Returns
        -------
        array of float32, (count, classes)

        Raises
        ------
        ShapeError, DtypeError, MachineError
            As `step`.
        """
        network, batch = self._plan.network, self._plan.batch
        x = images_of(x, network)
        found = np.empty((len(x), network.classes), np.float32)
        try:
            host = self._opened()
            put_moments(self._plan, host, {name: host.state(name) for name in network.running})
            images, logits = host.tensor(IMAGES), host.tensor(Key("x", len(network.stages)))
            for start in range(0, len(x), batch):
                part = x[start : start + batch]
                images[: len(part)], images[len(part) :] = part, 0.0
                self._slabs.run(lambda work, loads: work.logits(loads=loads))
                found[start : start + batch] = logits[: len(part), :, 0, 0]
        except BaseException:
            self.close()
            raise
        return found

    def train(
        self,
        x: Array,
        labels: npt.ArrayLike,
        *,
        epochs: int,
        progress: Callable[[TrainingProgress], object] | None = None,
        checkpoint: Path | str | None = None,
    ) -> list[float]:
        """Train on images in an order drawn from the seed for each epoch, continuing after earlier steps.

        Parameters
        ----------
        x : array of float32, (count, channels, height, width)
            An epoch has count // batch steps; the images that are left over change from epoch to epoch.
        labels : array_like of integers, (count,)
        epochs : int
            Those of the whole training, with the steps done already.
        progress : callable, optional
            Gets a `TrainingProgress` after each step.
        checkpoint : path, optional
            Written at the end of each epoch: to a temporary name, and renamed.

        Returns
        -------
        list of float
            The loss of each step of this call.

        Raises
        ------
        ShapeError, DtypeError, RangeError, MachineError
            As `step`.
        InputFileError
            For a checkpoint that cannot be written.
        """
        x = images_of(x, self._plan.network)
        classes = labels_of(labels, len(x), self._plan.network.classes)
        batch, losses = self._plan.batch, list[float]()
        epochs = check_count("epochs", epochs, 0)
        each = len(x) // batch
        if not each:
            raise ShapeError(
                f"{len(x)} images\na step of this Trainer takes {batch}\ngive more images, or a smaller batch"
            )
        try:
            while self.steps < epochs * each:
                epoch, index = divmod(self.steps, each)
                order = np.random.default_rng((self._seed, epoch)).permutation(len(x))
                chosen = order[index * batch : (index + 1) * batch]
                losses.append(self.step(x[chosen], classes[chosen]))
                if checkpoint is not None and index == each - 1:
                    self.save(checkpoint)
                if progress is not None:
                    progress(TrainingProgress(self.steps, epochs * each, losses[-1], self.statistics))
        except BaseException:
            self.close()
            raise
        return losses

    # ------------------------------------------------------------------------------------- checkpoints

    def save(self, path: Path | str) -> None:
        """Write a checkpoint: parameters, velocities and steps, in NumPy's npz format without pickle.

        Raises
        ------
        InputFileError
            If it cannot be written; a file that is there stays as it is.
        """
        checkpoints.save(path, checkpoints.Checkpoint(self._training, self.steps, self._states()))

    def load(self, path: Path | str) -> None:
        """Continue from a checkpoint of the same network, batch, optimizer and seed, under any plan.

        Raises
        ------
        InputFileError
            For a file that cannot be read, is corrupt, or is of another training.
        """
        checkpoint = checkpoints.load(path, self._training, self._shapes)
        self.close()
        self.steps, self._state = checkpoint.steps, checkpoint.state

    @property
    def _training(self) -> dict[str, Any]:
        """The description of the training in a checkpoint."""
        network = self._plan.network
        return {
            "network": network.digest,
            "batch": self._plan.batch,
            "sgd": asdict(self._sgd),
            "seed": self._seed,
        }


def _at_rest(parameters: Mapping[str, Array], network: Network) -> checkpoints.State:
    """Parameters with velocities of 0, running means of 0 and variances of 1."""
    running = {
        name: (np.zeros(shape, np.float32), np.ones(shape, np.float32))
        for name, shape in network.running.items()
    }
    return {name: (w, np.zeros_like(w)) for name, w in parameters.items()} | running


def planned(
    network: Network, batch: int, device: Machine, memory_budget: int | None, options: TrainingOptions
) -> TrainingPlan:
    """The plan of a training step; from the options' segments, if they have any."""
    budget, rates = budget_of(device, memory_budget), options.rates
    is_gpu = isinstance(device, CudaMachine)
    engines = Engines(is_gpu, is_gpu and options.transforms, options.math == "tf32")
    if isinstance(device, CudaMachine):
        rates = rates or step_rates(device, network, batch, budget, engines)
    rates = rates or rates_of(device)
    if options.segments is None:
        return training_plan(network, batch, budget, rates, options, engines)
    resident = options.parameters != "host"
    plan = TrainingPlan(
        network,
        batch,
        options.segments,
        options.on_device,
        resident,
        options.depth,
        budget,
        rates,
        engines,
    )
    check_segments(plan, accumulation=options.accumulation)
    if options.parameters == "auto" and plan.device.nbytes > budget:
        plan = replace(plan, resident=False)
    if plan.device.nbytes > budget:
        raise LaunchError(
            f"training with a budget of {budget} bytes\nthe segments need {plan.device.nbytes}\n"
            f"pass memory_budget={plan.device.nbytes} or more, or smaller pieces"
        )
    return plan
