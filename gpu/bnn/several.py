"""Batches split over several devices, and ensembles of networks whose logits are summed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from math import ceil
from typing import Any, TypeVar

import numpy as np

from gpu.bnn.images import checked_images
from gpu.bnn.network import PreparedNetwork, empty_answer, prepare
from gpu.device import Device, check_device, is_array, name_of
from gpu.host import choose_device, key_of_memory
from reference.errors import DtypeError, SchemeError, ShapeError
from reference.types.network import Answer, EnsembleAnswer, Network

Made = TypeVar("Made")


class _Threads:
    """One host thread per device; the work of a device runs in its thread only."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self.devices = devices
        self._threads = ThreadPoolExecutor(len(devices), "device")

    def all(self, works: Sequence[Callable[[], Made]]) -> list[Made]:
        """Run each device's function in its thread and wait for all; return the results in order."""
        running = list[Future[Made]]()
        try:
            # with few images there are fewer works than devices
            for device, work in zip(self.devices, works, strict=False):
                running.append(self._threads.submit(_on, device, work))
            wait(running)
        except BaseException:  # on Ctrl-C, wait until the threads have finished their part
            wait(running)
            raise
        return [each.result() for each in running]


def _on(device: Device, work: Callable[[], Made]) -> Made:
    """Call ``work`` with the device current in this thread; return its result."""
    with device.current():
        return work()


class PreparedSplit:
    """A network on several devices, which share each batch; made by `prepare_split`.

    Attributes
    ----------
    parts : list of PreparedNetwork
        On each device.

    Examples
    --------
    See `prepare_split`.
    """

    def __init__(self, network: Network, devices: Sequence[Device], **options: Any) -> None:
        self.network, self._threads = network, _Threads(devices)
        makes = [partial(prepare, network, device=device, **options) for device in devices]
        self.parts: list[PreparedNetwork] = self._threads.all(makes)

    def run(self, images: Any, *, pieces: int | None = None) -> Answer:
        """Run the network on host images; each device gets an equal share and its own host thread.

        Parameters
        ----------
        images : (N, *network.input.shape)
            As of `PreparedNetwork.run`, on the host.
        pieces : int, optional
            Of each device's part, as of `PreparedNetwork.run`.

        Returns
        -------
        Answer
            NumPy arrays, in the order of the images: what one device gives.

        Raises
        ------
        ShapeError, DtypeError, SchemeError, NotANumberError, RangeError
            As of `PreparedNetwork.run`; for images on a device.

        Examples
        --------
        See `prepare_split`.
        """
        images = _of_host(checked_images(self.network.input, images))
        whole = empty_answer(self.network, len(images))
        size = ceil(len(images) / len(self.parts))
        works = [
            partial(part.run_part, images, whole, slice(first, first + size), pieces=pieces)
            for part, first in zip(self.parts, range(0, len(images), size), strict=False)
        ]
        self._threads.all(works)
        return whole


class PreparedEnsemble:
    """Networks whose logits are summed, on one device or several; made by `prepare_ensemble`.

    Attributes
    ----------
    members : list of PreparedNetwork

    Examples
    --------
    See `prepare_ensemble`.
    """

    def __init__(self, networks: Sequence[Network], devices: Sequence[Device], **options: Any) -> None:
        used = devices[: len(networks)]
        self._threads, self._turns = _Threads(used), len(used)
        prepares = [
            [partial(prepare, network, device=device, **options) for network in networks[i :: len(used)]]
            for i, device in enumerate(used)
        ]
        self.members: list[PreparedNetwork] = self._dealt(prepares)

    def run(self, images: Any, *, pieces: int | None = None) -> EnsembleAnswer:
        """Run all networks on the same host images, all devices at the same time.

        Parameters
        ----------
        images : (N, *input.shape)
            As of `PreparedNetwork.run`, on the host.
        pieces : int, optional
            As of `PreparedNetwork.run`.

        Returns
        -------
        EnsembleAnswer
            NumPy arrays, as of `reference.bnn.run_ensemble`.

        Raises
        ------
        ShapeError, DtypeError, SchemeError, NotANumberError, RangeError
            As of `PreparedNetwork.run`; for images on a device.

        Examples
        --------
        See `prepare_ensemble`.
        """
        images = _of_host(images)
        runs = [partial(member.run, images, pieces=pieces) for member in self.members]
        answers = self._dealt([runs[i :: self._turns] for i in range(self._turns)])
        members = np.stack([answer.logits for answer in answers])
        total = members[0].copy()
        for logits in members[1:]:
            total += logits
        return EnsembleAnswer(members, total, total.argmax(axis=1))

    def _dealt(self, works: Sequence[Sequence[Callable[[], Made]]]) -> list[Made]:
        """Run each device's functions in turn; return the results in the order of the networks."""
        made = self._threads.all([partial(_in_turn, of_device) for of_device in works])
        return [made[i % self._turns][i // self._turns] for i in range(sum(map(len, works)))]


def _in_turn(works: Sequence[Callable[[], Made]]) -> list[Made]:
    return [work() for work in works]


def _of_host(images: Any) -> Any:
    if is_array(images):
        raise DtypeError(
            f"images are on {images.device.name}\nthose for several devices come from the host\ndownload them"
        )
    return images


def _distinct(devices: Sequence[Device]) -> list[Device]:
    """Check that no device occurs twice, since each has a thread."""
    if not isinstance(devices, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DtypeError(
            f"devices= is {name_of(devices)}\nit must be a sequence of devices, GPUs or simulated ones\n"
            "pass [gpu.CudaDevice(0), gpu.CudaDevice(1)], or [simwarp.Device(), simwarp.Device()]"
        )
    for number, device in enumerate(devices):
        check_device(device, f"devices[{number}]")
    if len({key_of_memory(device) for device in devices}) < len(devices):
        raise SchemeError(
            "devices= names a device twice\neach device has one host thread\nname each device once"
        )
    if not devices:
        raise SchemeError("devices= is empty\nat least one device is needed\nname one")
    return list(devices)


def prepare_split(
    network: Network,
    devices: Sequence[Device],
    *,
    way: str = "layers",
    schemes: Mapping[str, str] | None = None,
) -> PreparedSplit:
    """Put a network's weights on several devices, which share each batch.

    Each device has a host thread, which prepares and runs its part.

    Parameters
    ----------
    network : Network
    devices : sequence of Device
        Each once. Devices that are equally fast are best, as each has as many images.
    way : {"layers", "whole"}
        As of `prepare`.
    schemes : mapping of str to str, optional
        As of `prepare`.

    Returns
    -------
    PreparedSplit

    Raises
    ------
    SchemeError

    Examples
    --------
    >>> import simwarp
    >>> from reference import pack
    >>> from reference.bnn import BitPlanes, Dense, Network
    >>> weights, one = pack(np.ones((8, 1)), layout="row"), np.ones(1, np.float32)
    >>> network = Network("ones of a byte", BitPlanes((1,)), (Dense(weights),), one, one)
    >>> both = prepare_split(network, [simwarp.Device(), simwarp.Device()])
    >>> both.run(np.array([[0], [3], [255]], np.uint8)).sums.ravel()
    array([-8, -4,  8], dtype=int32)
    """
    return PreparedSplit(network, _distinct(devices), way=way, schemes=schemes)


def prepare_ensemble(
    networks: Sequence[Network],
    *,
    devices: Sequence[Device] | None = None,
    way: str = "layers",
    schemes: Mapping[str, str] | None = None,
) -> PreparedEnsemble:
    """Distribute the networks of an ensemble over devices, in order: the first network on the first device.

    With fewer devices than networks they begin again at the first one; a device runs its networks in turn.

    Parameters
    ----------
    networks : sequence of Network
        They take the same images and tell the same classes apart. What the vote of a network weighs belongs
        to its scale and offset.
    devices : sequence of Device, optional
        Each once. Default: the first CUDA device.
    way : {"layers", "whole"}
        As of `prepare`.
    schemes : mapping of str to str, optional
        As of `prepare`, for every network.

    Returns
    -------
    PreparedEnsemble

    Raises
    ------
    ShapeError
        For no networks, and those of different numbers of classes.
    SchemeError, NoGpuError

    Examples
    --------
    >>> import simwarp
    >>> from reference import pack
    >>> from reference.bnn import BitPlanes, Dense, Network
    >>> weights, one = pack(np.ones((8, 1)), layout="row"), np.ones(1, np.float32)
    >>> ones = Network("ones of a byte", BitPlanes((1,)), (Dense(weights),), one, one)
    >>> both = prepare_ensemble([ones, ones], devices=[simwarp.Device(), simwarp.Device()])
    >>> both.run(np.array([[3]], np.uint8)).logits
    array([[-6.]], dtype=float32)
    """
    classes = [len(network.scale) for network in networks]
    if len(set(classes)) != 1:
        raise ShapeError(
            f"an ensemble of networks with {classes} classes\ntheir logits are added\n"
            "give one network or more, with the same classes"
        )
    chosen = [choose_device(None)] if devices is None else _distinct(devices)
    return PreparedEnsemble(networks, chosen, way=way, schemes=schemes)


def run_ensemble(
    networks: Sequence[Network],
    images: Any,
    *,
    way: str = "layers",
    schemes: Mapping[str, str] | None = None,
    devices: Sequence[Device] | None = None,
) -> EnsembleAnswer:
    """Run an ensemble of networks on images; the answer equals that of `reference.bnn.run_ensemble`.

    For several runs, `prepare_ensemble` once.

    Parameters
    ----------
    networks : sequence of Network
    images : (N, *input.shape)
        As of `PreparedEnsemble.run`.
    way : {"layers", "whole"}
        As of `prepare`.
    schemes : mapping of str to str, optional
        As of `prepare_ensemble`.
    devices : sequence of Device, optional
        As of `prepare_ensemble`.

    Returns
    -------
    EnsembleAnswer
        The logits of each network, their sum, and classes.

    Raises
    ------
    ShapeError, DtypeError, NotANumberError, RangeError, SchemeError, NoGpuError

    Examples
    --------
    >>> import simwarp
    >>> from reference import pack
    >>> from reference.bnn import BitPlanes, Dense, Network
    >>> weights, one = pack(np.ones((8, 1)), layout="row"), np.ones(1, np.float32)
    >>> ones = Network("ones of a byte", BitPlanes((1,)), (Dense(weights),), one, one)
    >>> run_ensemble([ones] * 3, np.array([[255]], np.uint8), devices=[simwarp.Device()]).logits
    array([[27.]], dtype=float32)
    """
    return prepare_ensemble(networks, devices=devices, way=way, schemes=schemes).run(images)
