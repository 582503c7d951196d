"""A binarized network layer by layer: a launch for each step, and one that makes the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpu.bmm.prepared import PreparedMatrix
from gpu.bnn.launches import launch_of, lined, widened
from gpu.bnn.plan import IMAGES, Launched, Step
from gpu.bnn.residuals import with_sums
from gpu.bnn.site import Site, blocks_of, width
from gpu.device import Array
from reference.types import PackedBits, PackedTensor
from reference.types.network import Answer, Network

_BITS = (PackedBits, PackedTensor, PreparedMatrix)


class Layers:
    """A network that launches compute, step by step."""

    def __init__(self, network: Network, steps: Sequence[Step], site: Site) -> None:
        made = with_sums(steps, site)
        self._scale = site.vector(network.scale, "scale")
        self._offset = site.vector(network.offset, "offset")
        answers = {made[-1].writes[-1]: (self._scale, self._offset)}
        self._site = site = replace(site, lined=lined(made, site), wide=widened(made, site), answers=answers)
        self.steps = [(step, launch_of(step, site)) for step in made]
        self._ends = {path: step for step, _ in self.steps for path in step.reads}
        """The last step that reads a value."""
        site.device.wait()  # launches read weights before earlier ones end

    def run(self, images: Array) -> Answer:
        """Launch the kernels of all steps for images on the device, and compute the answer."""
        *_, (_, given) = self.made(images)
        return given if isinstance(given, Answer) else self._answer(given)

    def values(self, images: Array) -> Iterator[tuple[str, Any]]:
        """Yield what each step gives, on the host."""
        return ((path, on_host(value)) for path, value in self.made(images))

    def launches(self, images: Array) -> list[Launched]:
        """What launches each step by itself; all are launched once."""
        values: dict[str, Any] = {IMAGES: images}
        found: list[Launched] = []
        for step, launch in self.steps:
            given = tuple(values[path] for path in step.reads)
            made = launch(*given)
            values |= zip(step.writes, made, strict=True)
            if _address(made[0]) != _address(given[0]):
                found.append(Launched(step, launch, given))
        last = self.steps[-1][0].writes[-1]
        if isinstance(values[last], Answer):
            return found
        return [*found, Launched(Step((), ("answer",), (last,), ("answer",)), self._answer, (values[last],))]

    def made(self, images: Array) -> Iterator[tuple[str, Any]]:
        """Launch all steps; a value is dropped after the last step that reads it."""
        values: dict[str, Any] = {IMAGES: images}
        for step, launch in self.steps:
            values |= zip(step.writes, launch(*(values[path] for path in step.reads)), strict=True)
            for path in step.writes:
                yield path, values[path]
            for path in step.reads:
                if self._ends[path] is step:
                    values.pop(path, None)

    def _answer(self, given: Any) -> Answer:
        """Launch what makes logits and classes of the last sums."""
        batch, count = given.shape
        wide, device = given.dtype == np.int32, self._site.device
        sums = given if wide else device.allocate((batch, count), np.int32, "sums")
        logits = device.allocate((batch, count), np.float32, "logits")
        classes = device.allocate((batch,), np.int64, "classes")
        made = (*(() if wide else (sums,)), logits, classes)
        args = (given, self._scale, self._offset, *made, batch, count)
        self._site.launch("answer", "answer", (width("GIVEN", given),), blocks_of(batch, 4, 128), *args)
        return Answer(sums, logits, classes)


def _address(value: Any) -> int:
    """The device address of a value's array."""
    value = value.sums if isinstance(value, Answer) else value
    return int((value.words if isinstance(value, _BITS) else value).pointer)


def on_host(value: Any) -> Any:
    """Download a value, in the format of `reference.bnn.values`."""
    value = value.sums if isinstance(value, Answer) else value
    if not isinstance(value, _BITS):
        return value.download().astype(np.int32, copy=False)
    words = value.words.download()
    if isinstance(value, PreparedMatrix):
        words = words.reshape(len(words), -1)
    words = words.T if isinstance(value, PackedBits) else words
    lines = np.ascontiguousarray(words, words.dtype.newbyteorder("<"))
    return np.unpackbits(lines.view(np.uint8), axis=-1, bitorder="little")[..., : value.shape[-1]]
