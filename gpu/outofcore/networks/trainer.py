"""`Trainer`: training of a network within a device's memory budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.cuda_machine import CudaMachine
from gpu.machine import Machine, Memory
from gpu.outofcore.networks import checkpoint as checkpoints
from gpu.outofcore.networks.checks import (
    check_count,
    check_segments,
    images_of,
    labels_of,
    parameters_of,
)
from gpu.outofcore.networks.engines import Engines, step_rates
from gpu.outofcore.networks.layers import SGD, Network
from gpu.outofcore.networks.memory import HostMemory, host_bytes
from gpu.outofcore.networks.options import TrainingOptions
from gpu.outofcore.networks.phases import LABELS, LOSS, Key
from gpu.outofcore.networks.plan import TrainingPlan
from gpu.outofcore.networks.planner import training_plan
from gpu.outofcore.networks.rehearsal import predict
from gpu.outofcore.networks.stages import Stage
from gpu.outofcore.networks.work import Work
from gpu.outofcore.rates import rates_of
from gpu.outofcore.run import budget_of
from gpu.outofcore.statistics import Statistics
from reference.errors import LaunchError, ShapeError

Array = npt.NDArray[Any]
IMAGES = Key("x", 0)


@dataclass(frozen=True)
class TrainingProgress:
    """Where a training is, after a step.

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


@dataclass
class _Slabs:
    """All memory of a training."""

    device: Memory
    host: HostMemory
    holds_parameters: bool = False


class Trainer:
    """Training of a network whose activations need not fit the device.

    All memory, one slab of the device and one page-locked slab of the host, is taken at the first step and
    given back by `close`, at the end of a ``with`` block, and whenever a step fails.

    Parameters
    ----------
    network : Network
    batch : int
        The images of a step.
    device : Machine
        Its first device computes; `simwarp.Machine`.
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
    LaunchError
        For a budget that does not hold the smallest pieces; the message has the least one.
    ShapeError, SchemeError
        For a batch, parameters or segments that do not fit the network.

    Notes
    -----
    Weights do not depend on the plan: gradients by parameters are summed image by image and row by row in
    double precision, and rounded once, in the update.

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
        device: Machine,
        sgd: SGD | None = None,
        memory_budget: int | None = None,
        options: TrainingOptions | None = None,
        seed: int = 0,
        parameters: Mapping[str, Array] | None = None,
    ) -> None:
        self.steps, self.statistics = 0, Statistics()
        self._machine, self._sgd, self._seed = device, sgd or SGD(), check_count("seed", seed, 0)
        images = check_count("batch", batch, 1)
        self._plan = _planned(network, images, device, memory_budget, options or TrainingOptions())
        self._state: checkpoints.State = {}
        if parameters is not None:
            self._state = _at_rest(parameters_of(parameters, network), network)
        self._stack = ExitStack()
        self._slabs: _Slabs | None = None

    def explain(self) -> TrainingPlan:
        """The plan of a step; printed, it is a table."""
        return self._plan

    @property
    def parameters(self) -> dict[str, Array]:
        """Copies of all weights and biases."""
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
        """Give all memory back; a later step takes it anew."""
        if self._slabs is not None:
            state = self._states()
            self._state = {name: (w.copy(), velocity.copy()) for name, (w, velocity) in state.items()}
            self._slabs = None
        self._stack.close()

    def _opened(self) -> _Slabs:
        """The slabs, taken if there are none."""
        if self._slabs is None:
            slab = np.empty(host_bytes(self._plan), np.uint8)
            host = HostMemory(self._plan, slab, self.steps % 2)
            for name, arrays in self._states().items():
                for target, array in zip(host.state(name), arrays, strict=True):
                    target[...] = array
            with ExitStack() as stack:
                self._machine.pin(slab)
                stack.callback(self._machine.unpin, slab)
                device = self._machine.allocate(0, self._plan.device.nbytes)
                stack.callback(self._machine.free, device)
                if isinstance(self._machine, CudaMachine):
                    self._machine.prepare(0, Work(self._machine, self._plan, device, host).prepared())
                self._slabs = _Slabs(device, host)
                self._stack = stack.pop_all()
        return self._slabs

    def _states(self) -> checkpoints.State:
        """Parameters and velocities before the next step."""
        if self._slabs is None:
            if not self._state:  # drawn when needed: a plan alone does not
                self._state = _at_rest(self._plan.network.initial(self._seed), self._plan.network)
            return self._state
        return {name: self._slabs.host.state(name) for name in self._shapes}

    @property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all that a state has pairs of."""
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
            raise ShapeError(f"{len(x)} images\na step has {batch}\ngive as many as the Trainer has")
        classes = labels_of(labels, batch, network.classes)
        try:
            slabs = self._opened()
            slabs.host.tensor(IMAGES)[...] = x
            slabs.host.tensor(LABELS)[...] = classes
            begin, loads = self._machine.seconds(), not slabs.holds_parameters
            self._run(slabs, lambda work, loads: work.step(self._sgd, loads=loads))
            self._run_means(slabs.host)
            slabs.host.current = (self.steps + 1) % 2
            self.steps += 1
        except BaseException:
            self.close()
            raise
        self._count(self._machine.seconds() - begin, loads)
        return float(slabs.host.tensor(LOSS).mean())

    def _run_means(self, host: HostMemory) -> None:
        """Add the batch to the running means and variances, in the state after the step."""
        for number, stage, count in self._norms():
            mean, squares = host.tensor(Key("moments", number)) / count
            variance = np.maximum(squares - mean * mean, 0.0) * (count / max(count - 1, 1))
            name = f"{stage.name}.running"
            for before, after, new in zip(
                host.state(name), host.state(name, after=True), (mean, variance), strict=True
            ):
                after[...] = (1 - stage.momentum) * before.astype(np.float64) + stage.momentum * new

    def _as_moments(self, host: HostMemory) -> None:
        """Put the sums of a batch with the running means and variances where `logits` loads them."""
        for number, stage, count in self._norms():
            mean, variance = (one.astype(np.float64) for one in host.state(f"{stage.name}.running"))
            host.tensor(Key("moments", number))[...] = mean * count, (variance + mean * mean) * count

    def _norms(self) -> Iterator[tuple[int, Stage, int]]:
        """The stages of batch normalization, and the pixels of a channel in a batch."""
        for number in self._plan.moments[0]:
            stage = self._plan.network.stages[number - 1]
            yield number, stage, self._plan.batch * stage.shape[1] * stage.shape[2]

    def _run(self, slabs: _Slabs, work: Callable[[Work, bool], Any]) -> None:
        """Run the work of a step or of logits."""
        made = Work(self._machine, self._plan, slabs.device, slabs.host)
        self._machine.run([work(made, not slabs.holds_parameters)])
        slabs.holds_parameters = True

    def _count(self, seconds: float, loads: bool) -> None:
        """Note what a step did; the first one may have loaded all parameters."""
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
            slabs = self._opened()
            self._as_moments(slabs.host)
            images, logits = slabs.host.tensor(IMAGES), slabs.host.tensor(Key("x", len(network.stages)))
            for start in range(0, len(x), batch):
                part = x[start : start + batch]
                images[: len(part)], images[len(part) :] = part, 0.0
                self._run(slabs, lambda work, loads: work.logits(loads=loads))
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
        """Train on images in an order that the seed draws anew for each epoch, from the steps done on.

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
            raise ShapeError(f"{len(x)} images\na step has {batch}\ngive more images, or a smaller batch")
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
        """Go on from a checkpoint of the same network, batch, optimizer and seed, under any plan.

        Raises
        ------
        InputFileError
            For a file that cannot be read, is corrupt, or is of another training.
        """
        found = checkpoints.load(path, self._training, self._shapes)
        self.close()
        self.steps, self._state = found.steps, found.state

    @property
    def _training(self) -> dict[str, Any]:
        """What describes the training in a checkpoint."""
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


def _planned(
    network: Network, batch: int, device: Machine, memory_budget: int | None, options: TrainingOptions
) -> TrainingPlan:
    """The plan of a step, or that of the segments that are given."""
    budget, rates = budget_of(device, memory_budget), options.rates
    engines: Engines | None = None
    if isinstance(device, CudaMachine):
        engines = "transforms" if options.transforms else "exact"
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
