"""Binarized networks on a device, layer by layer or whole (BSTC, section 6; BTC, section 6.1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from math import ceil, prod
from typing import Any

import numpy as np

from gpu.bnn.forms import form_of, geometry_of
from gpu.bnn.images import can_be_strange, checked_images, dtypes_of, refuse_strange
from gpu.bnn.layers import Layers
from gpu.bnn.pieces import AT_ONCE, Batch, Pieces, kept
from gpu.bnn.plan import IMAGES, Launched, steps_of, values_of
from gpu.bnn.site import Site, bytes_of
from gpu.bnn.tensors import Tensors
from gpu.bnn.whole import Whole
from gpu.device import Array, Device, is_array, is_foreign
from gpu.host import choose_device, unknown
from reference.errors import DtypeError, SchemeError, ShapeError
from reference.types.layers import Conv, Dense
from reference.types.network import Answer, Network
from reference.types.network_values import follow

LARGEST = 2**31 - 1
"""The most elements of a value of all images, as kernels count in 32 bits."""

MOST_BYTES = 2**33
"""The most bytes of all values of the images that run together."""

PIECE = 20 << 20
"""Bytes of the images of a piece, unless the caller chooses; a run has launches that all pieces repeat."""

WAYS = ("layers", "whole")


class PreparedNetwork:
    """A network whose weights are on a device; made by `prepare`.

    Attributes
    ----------
    network : Network
    device : Device
    whole : gpu.bnn.whole.Whole, optional
        What ``way="whole"`` runs.

    Examples
    --------
    >>> import simwarp
    >>> from reference import pack
    >>> from reference.bnn import Dense, Network, Signs
    >>> weights = pack([[1.0, -1.0], [1.0, -1.0], [1.0, 1.0]], layout="row")
    >>> logits = np.ones(2, np.float32), np.zeros(2, np.float32)
    >>> signs = Signs((3,), np.zeros(3, np.float32))
    >>> prepared = prepare(Network("small", signs, (Dense(weights),), *logits), device=simwarp.Device())
    >>> prepared.run(np.array([[1, 2, -1]], np.float32)).sums
    array([[ 1, -3]], dtype=int32)
    """

    def __init__(
        self,
        network: Network,
        device: Device,
        schemes: Mapping[str, str],
        way: str,
        blocks: int | None,
        threads: int | None,
    ) -> None:
        self.network, self.device = network, device
        self._values = values_of(network)
        self._flag: Array = device.upload(np.zeros(1, np.int32), "flag of images")
        self._flag_waits = False
        self._batches: dict[Any, Batch] = {}
        self._last: Batch | None = None
        """One whose images were checked, and need no check when the graph is launched again."""
        self._pieces = Pieces(device, network.input, self._flag)
        steps = steps_of(network, self._values)
        self._bytes = sum(bytes_of(self._values[path]) for step in steps for path in step.writes)
        """Of what the steps give for an image."""
        self.whole: Whole | None = None
        if way == "whole":
            form = form_of(network, schemes, device)
            geometry = geometry_of(form, blocks, threads)
            self.whole = Whole(network, self._values, form, geometry, self._flag)
        self._way = self.whole or Layers(
            network, steps, Site(device, self._values, dict(schemes), self._flag)
        )

        self._tensors = Tensors(device, self._way.run, self._fitting, self._heed)

    def run(self, images: Any, *, pieces: int | None = None) -> Answer:
        """Run the network on images, of the host or of the device.

        The first run of a batch of some size compiles and loads its kernels, unless `prepare` was given the
        number of its images; the second one captures the launches, and later ones launch the graph. Buffers
        of 8 batches and pieces are kept.

        Host arrays run in pieces: while one runs, the next one is copied to the device, and the answer of the
        one before comes back. Images in page-locked memory (`Device.pinned`, PyCUDA's, torch's) are copied
        from where they are, others by way of page-locked memory.

        Parameters
        ----------
        images : (N, *network.input.shape)
            uint8 for `Pixels` and `BitPlanes`, float32 for `Reals`, either for `Signs`. An array of the
            device is read where it is, in every run. A tensor of torch, or an array of CuPy, on the device
            is read in torch's current stream, or the default one.
        pieces : int, optional
            Of a host array, equal except the last one. By default they have about 20 MiB. There are more of
            them where images are too large for 32-bit counters, or for 8 GiB of values.

        Returns
        -------
        Answer
            NumPy arrays for a host array. For an array of the device arrays of the device, which the next
            run with the same array may overwrite. For a tensor of torch, arrays of the device in memory of
            torch's allocator, which no other run overwrites.

        Raises
        ------
        ShapeError, DtypeError
            For images of another shape or dtype, and device arrays that are too large to run together.
        SchemeError
            For fewer pieces than one, and for pieces of images on the device.
        NotANumberError, RangeError
            For a NaN or an infinity; for a float that the input's integers cannot hold. For device arrays at
            the device's next synchronisation.

        Examples
        --------
        See `PreparedNetwork`.
        """
        last = self._last
        if last is not None and last.images is images and pieces is None and not self.device.capturing:
            last.graph.launch()
            return last.answer
        if pieces is not None and (is_array(images) or is_foreign(images)):
            rule = "images on the device run in one piece"
            raise SchemeError(f"pieces={pieces!r} with images on the device\n{rule}\nleave pieces out")
        if is_foreign(images):
            return self._tensors.run(images)
        images = self._checked(images)
        if is_array(images):
            self._fits(images)
            return self._of_device(images)
        whole = empty_answer(self.network, len(images))
        self.run_part(images, whole, slice(0, len(images)), pieces=pieces)
        return whole

    def run_part(self, images: Any, whole: Answer, part: slice, *, pieces: int | None = None) -> None:
        """Write the answer for a part of checked host images; errors number images among all of them."""
        start = part.start
        with closing(self._of_host(self._cut(images[part], start, pieces))) as answers:
            for answer in answers:
                until = start + len(answer.classes)
                for there, each in zip(whole, answer, strict=True):
                    there[start:until] = each
                start = until
        self.device.synchronize()

    def stream(self, batches: Iterable[Any]) -> Iterator[Answer]:
        """The answers to batches of host images, in order; copies, launches and answers overlap as in `run`.

        An answer comes when two more batches have been taken, or there are none. Batches may differ in size;
        each runs at once. A batch in page-locked memory must not change before its answer has come.

        Parameters
        ----------
        batches : iterable of (N, *network.input.shape)
            Host arrays, as of `run`; there may be no end to them.

        Yields
        ------
        Answer
            NumPy arrays.

        Raises
        ------
        ShapeError, DtypeError, NotANumberError, RangeError
            As of `run`, for a host array.

        Examples
        --------
        >>> import simwarp
        >>> from reference import pack
        >>> from reference.bnn import BitPlanes, Dense, Network
        >>> weights, one = pack(np.ones((8, 1)), layout="row"), np.ones(1, np.float32)
        >>> network = Network("ones of a byte", BitPlanes((1,)), (Dense(weights),), one, one)
        >>> prepared = prepare(network, device=simwarp.Device())
        >>> bytes_of_a_file = (np.array([[byte]], np.uint8) for byte in (0, 3, 255))
        >>> [answer.sums.item() for answer in prepared.stream(bytes_of_a_file)]
        [-8, -4, 8]
        """
        with closing(self._of_host((self._batch_of_host(batch), 0) for batch in batches)) as parts:
            for part in parts:
                yield Answer(*(each.copy() for each in part))
        self.device.synchronize()

    def values(self, images: Any) -> Iterator[tuple[str, Any]]:
        """The output of each launch, with the path of its last layer: bits as uint8, integers as int32.

        Layers inside a launch are left out; where a residual's sum is needed beside its bits, there are both.
        Paths and values are those of `reference.bnn.values`.

        Examples
        --------
        >>> import simwarp
        >>> from reference.bnn import Flatten, Network, Pixels, Pool
        >>> one, none = np.ones(1, np.int32), np.zeros(1, np.int32)
        >>> logits = np.ones(1, np.float32), np.zeros(1, np.float32)
        >>> network = Network("brightness", Pixels((2, 2, 1), one, none), (Pool("sum"), Flatten()), *logits)
        >>> image = np.array([[[[1], [2]], [[3], [4]]]], np.uint8)
        >>> prepared = prepare(network, device=simwarp.Device())
        >>> [(path, value.tolist()) for path, value in prepared.values(image)][1:]
        [('0', [[[[10]]]]), ('1', [[10]])]
        """
        images = self._checked(images)
        self._fits(images)
        given = images if is_array(images) else self.device.upload(np.ascontiguousarray(images), IMAGES)
        yield from self._way.values(given)
        if self._flagged(images):
            refuse_strange(self.network.input, given.download())

    def launches(self, images: Any) -> list[Launched]:
        """The launches of each step by itself, for measurements; a whole network has one step.

        All steps are launched once, and what they read stays on the device. Steps without a launch are left
        out. The last one makes the answer, if the last product does not.

        Parameters
        ----------
        images : device array
            As of `run`.

        Examples
        --------
        >>> import simwarp
        >>> from reference import pack
        >>> from reference.bnn import BitPlanes, Dense, Network
        >>> weights, one = pack(np.ones((8, 1)), layout="row"), np.ones(1, np.float32)
        >>> device = simwarp.Device()
        >>> prepared = prepare(Network("ones", BitPlanes((1,)), (Dense(weights),), one, one), device=device)
        >>> [step.paths for step, _, _ in prepared.launches(device.upload(np.uint8([[3]])))]
        [('input',), ('0',)]
        """
        return self._way.launches(self._fitting(images))

    def _checked(self, images: Any) -> Any:
        images = checked_images(self.network.input, images)
        if is_array(images) and images.device is not self.device:
            raise DtypeError(
                f"images are on {images.device.name}, the network on {self.device.name}\n"
                "all must be on one device\ndownload the images, or prepare the network there"
            )
        return images

    @property
    def _most(self) -> int:
        """The largest number of images that one forward pass computes together."""
        values = self._values.values()
        sizes = [prod(self.network.input.shape), *(prod(value.shape) for value in values)]
        return max(1, min(LARGEST // max(sizes), MOST_BYTES // self._bytes))

    def _fitting(self, images: Any) -> Any:
        """Checked images that run together."""
        images = self._checked(images)
        self._fits(images)
        return images

    def _fits(self, images: Any) -> None:
        if images.shape[0] > self._most:
            raise ShapeError(
                f"{images.shape[0]} images: at most {self._most} of this network run together\n"
                "give them in parts, or on the host"
            )

    def _size_of_pieces(self, images: Any, pieces: int | None) -> int:
        """The number of images in a piece of a host array."""
        if pieces is None:
            pieces = ceil(images.nbytes / PIECE)
        elif not isinstance(pieces, int) or pieces < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SchemeError(
                f"pieces={pieces!r}\nit is the number of pieces in which images run\ngive 1 or more"
            )
        alone = pieces == 1 and len(images) <= self._most
        return min(ceil(len(images) / pieces), self._most if alone else max(1, self._most // AT_ONCE))

    def _cut(self, images: Any, start: int, pieces: int | None = None) -> Iterator[tuple[Any, int]]:
        """The pieces of a host array, each with the number of its first image."""
        size = self._size_of_pieces(images, pieces)
        return ((images[at : at + size], start + at) for at in range(0, len(images), size))

    def make_ready(self, images: int) -> None:
        """Compile, load and capture all that a run of this many host images needs, by running zeros."""
        for dtype in dtypes_of(self.network.input):
            zeros = np.zeros((images, *self.network.input.shape), dtype)
            deque(self._pieces.answers(self._cut(zeros, 0), self._captured), maxlen=0)
        self.device.synchronize()

    def _batch_of_host(self, batch: Any) -> Any:
        """Check one batch of a stream of host images."""
        images = self._checked(batch)
        if is_array(images):
            raise DtypeError(
                "a batch of the stream is on the device\n"
                "batches of a stream come from the host\npass this one to run() instead"
            )
        self._fits(images)
        return images

    def _of_host(self, pieces: Iterable[tuple[Any, int]]) -> Generator[Answer]:
        """The answers for pieces of host images; each is valid until the next one is requested."""
        if self._flag_waits:  # the flag may be set by an earlier piece
            self.device.synchronize()
        return self._pieces.answers(pieces, self._again)

    def _heed(self, images: Array) -> bool:
        """Let the next synchronisation look for invalid numbers in images; says whether they can have any."""
        strange = can_be_strange(self.network.input, images)
        if strange and not self._flag_waits:
            self.device.defer(partial(self._check_flag, images))
            self._flag_waits = True
        return strange

    def _of_device(self, images: Array) -> Answer:
        """The answer for images of the device, where it stays."""
        self._heed(images)
        if self.device.capturing:
            return self._way.run(images)
        key = images.shape, images.dtype, images.pointer
        batch = kept(self._batches, key, lambda: Batch(images))
        answer = self._again(batch)
        if batch.graph is not None and not can_be_strange(self.network.input, images):
            self._last = batch
        return answer

    def _again(self, batch: Batch) -> Answer:
        """Run a batch: launch by launch the first time, the second time captured as a graph."""
        if batch.graph is None:
            if batch.answer is None:
                batch.answer = self._way.run(batch.images)
                return batch.answer
            batch.graph = self._capture(batch)
        batch.graph.launch()
        return batch.answer

    def _captured(self, batch: Batch) -> Answer:
        """Launch a batch, and capture the launches for the next run."""
        if batch.graph is not None:
            return self._again(batch)
        answer = self._way.run(batch.images)
        batch.graph = self._capture(batch)
        return answer

    def _capture(self, batch: Batch) -> Any:
        """Capture the launches of a batch, which write the batch's answer."""
        with self.device.capture() as graph:
            batch.answer = self._way.run(batch.images)
        return graph

    def _flagged(self, images: Any) -> bool:
        """True if a kernel found an invalid number in the images; clears the device flag."""
        if not can_be_strange(self.network.input, images) or not self._flag.download()[0]:
            return False
        self._flag.upload(np.zeros(1, np.int32))
        return True

    def _check_flag(self, images: Array) -> None:
        self._flag_waits = False
        if self._flagged(images):
            refuse_strange(self.network.input, images.download())


def empty_answer(network: Network, count: int) -> Answer:
    """Host arrays for the answer to a number of images."""
    shape = count, len(network.scale)
    return Answer(np.empty(shape, np.int32), np.empty(shape, np.float32), np.empty(count, np.int64))


def prepare(
    network: Network,
    *,
    way: str = "layers",
    schemes: Mapping[str, str] | None = None,
    blocks: int | None = None,
    threads: int | None = None,
    images: int | None = None,
    device: Device | None = None,
) -> PreparedNetwork:
    """Put a network's weights on a device once, for many runs.

    Layers that one launch computes are joined: an input of bits with its flattening, one of integers with the
    convolution or dense layer after it, these with their threshold, thresholds of convolutions of bits with a
    pool of 2 × 2 bits, and layers on integers, from a pool to the threshold of a residual's sum. On sm_90
    convolutions of bits with up to 256 channels are joined with the residual that takes their sums.

    Parameters
    ----------
    network : Network
    way : {"layers", "whole"}
        A launch for each step; or one cooperative launch in which all blocks go from step to step.
    schemes : mapping of str to str, optional
        For study: schemes of `gpu.bconv2d` and `gpu.bmm` for layers of bits, by the layer's path, or for all
        by "Conv" and "Dense". Other layers have "auto". With "whole" they choose the kernel: one on CUDA
        cores ("bconv32", "bconv64"; "bmm32", "bmm64", "bmms32", "bmms64"), or one in FSB ("btc2"; "btc3").
        Without them it is the one of bit tensor cores from sm_80 on, and before it that on CUDA cores.
    blocks : int, optional
        Of "whole": the most blocks of the grid. Default: as many as are resident at once.
    threads : int, optional
        Of "whole": threads of a block, a power of 2 from 32 (on bit tensor cores without schemes: 64) to
        512. Default: 32 on CUDA cores, else 256.
    images : int, optional
        How many images of the host a run will have: zeros run now, so that the first run compiles nothing
        and only launches.
    device : Device, optional
        Default: the first CUDA device.

    Returns
    -------
    PreparedNetwork

    Raises
    ------
    SchemeError, ShapeError, NoGpuError

    Examples
    --------
    >>> import simwarp
    >>> from reference import pack
    >>> from reference.bnn import BitPlanes, Dense, Network
    >>> weights, one = pack(np.ones((8, 1)), layout="row"), np.ones(1, np.float32)
    >>> network = Network("ones of a byte", BitPlanes((1,)), (Dense(weights),), one, one)
    >>> prepared = prepare(network, schemes={"Dense": "btc1"}, device=simwarp.Device())
    >>> [prepared.run(np.array([[byte]], np.uint8)).sums.item() for byte in (0, 3, 255)]
    [-8, -4, 8]
    """
    if way not in WAYS:
        raise unknown("way", way, WAYS)
    for name, given in (("blocks", blocks), ("threads", threads)):
        if given is not None and way != "whole":
            raise SchemeError(
                f'{name}={given!r} with way="layers", where each layer has a grid of its own\n'
                f'{name} is for one launch of all layers\npass way="whole", or leave {name} out'
            )
    known = {path for path, layer, _ in follow(network) if isinstance(layer, Conv | Dense)}
    unused = set(schemes or {}) - known - {"Conv", "Dense"}
    if unused:
        raise SchemeError(
            f"schemes for {', '.join(sorted(unused))}: the network has no such convolutions or dense layers\n"
            f"choose among {', '.join(sorted(known))}, Conv and Dense"
        )
    if images is not None and (type(images) is not int or images < 1):
        raise ShapeError(
            f"images={images!r}\nit is the number of images that a run will have\n"
            "give 1 or more, or leave it out"
        )
    prepared = PreparedNetwork(network, choose_device(device), schemes or {}, way, blocks, threads)
    if images is not None:
        prepared.make_ready(images)
    return prepared


def run(
    network: Network,
    images: Any,
    *,
    way: str = "layers",
    schemes: Mapping[str, str] | None = None,
    blocks: int | None = None,
    threads: int | None = None,
    device: Device | None = None,
) -> Answer:
    """Run a binarized network on images, on a device; the answer equals that of `reference.bnn.run`.

    For several runs, `prepare` the network once.

    Parameters
    ----------
    network : Network
    images : (N, *network.input.shape)
        As of `PreparedNetwork.run`.
    way : {"layers", "whole"}
        As of `prepare`.
    schemes : mapping of str to str, optional
        As of `prepare`.
    blocks, threads : int, optional
        As of `prepare`.
    device : Device, optional
        Default: the images' own, or the first CUDA device.

    Returns
    -------
    Answer
        Sums, logits and classes.

    Raises
    ------
    ShapeError, DtypeError, NotANumberError, RangeError, SchemeError, NoGpuError

    Notes
    -----
    Source: BSTC (SC'19), section 6; BTC (TPDS'20), section 6.1 and figure 15.

    Examples
    --------
    >>> import simwarp
    >>> from reference import pack
    >>> from reference.bnn import Dense, Network, Pixels
    >>> network = Network(
    ...     "brighter",
    ...     Pixels((2,), np.array([1, 1], np.int32), np.array([0, 0], np.int32)),
    ...     (Dense(pack([[1.0, -1.0], [-1.0, 1.0]], layout="row")),),
    ...     np.ones(2, np.float32),
    ...     np.zeros(2, np.float32),
    ... )
    >>> run(network, np.array([[9, 200]], np.uint8), device=simwarp.Device()).sums
    array([[-191,  191]], dtype=int32)
    """
    home = images.device if device is None and is_array(images) else device
    options: Any = {"way": way, "schemes": schemes, "blocks": blocks, "threads": threads}
    return prepare(network, device=home, **options).run(images)
