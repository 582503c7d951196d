"""Checks of arguments: batches, labels, parameters, and segments that a user gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

import numpy as np
import numpy.typing as npt

from gpu.outofcore.networks.layers import Network
from gpu.outofcore.networks.plan import Result, Segment, TrainingPlan
from gpu.outofcore.networks.strips import target_of
from reference.errors import DtypeError, RangeError, SchemeError, ShapeError
from reference.types.arguments import check_option
from reference.types.fields import as_array, is_integer

Array = npt.NDArray[Any]


def check_count(name: str, value: Any, least: int) -> int:
    """Check that an argument is an integer of at least ``least``, and return it."""
    if not is_integer(value) or value < least:
        raise ShapeError(f"{name} is {value!r}\nit must be at least {least}\ngive such an int")
    return int(value)


def images_of(given: Any, network: Network) -> Array:
    """Check images against a network's input, and return them as an array."""
    if not isinstance(given, np.ndarray):
        raise DtypeError(f"the images are a {type(given).__name__}\nan array is needed\nconvert them")
    x = cast("Array", given)
    if x.dtype != np.float32:
        raise DtypeError(f"the images are of {x.dtype}\nfloat32 is needed\nconvert them")
    if x.ndim != 4 or x.shape[1:] != network.image or not len(x):
        raise ShapeError(
            f"the images have shape {x.shape}\n(count, {', '.join(map(str, network.image))}) is needed\n"
            "reshape them, or describe the network for them"
        )
    return x


def labels_of(given: Any, count: int, classes: int) -> Array:
    """Check the class labels of ``count`` images, and return them as an array."""
    labels = as_array(given, "labels", "one integer for each image")
    if labels.dtype.kind not in "iu":
        raise DtypeError(f"labels are of {labels.dtype}\nintegers are needed\nconvert them")
    if labels.shape != (count,):
        raise ShapeError(
            f"labels have shape {labels.shape}\none label for each of {count} images is needed\nreshape them"
        )
    if not ((labels >= 0) & (labels < classes)).all():
        raise RangeError(
            f"labels are {labels.min()} to {labels.max()}\nclasses are 0 to {classes - 1}\ncheck the labels"
        )
    return labels


def parameters_of(given: Mapping[str, Any], network: Network) -> dict[str, Array]:
    """Parameters of a network, checked and copied."""
    if set(given) != set(network.parameters):
        raise SchemeError(
            f"the parameters given are {', '.join(sorted(given))}\n"
            f"the network has {', '.join(network.parameters)}\n"
            "give all of them"
        )
    arrays = {name: np.array(given[name], order="C") for name in network.parameters}
    for name, shape in network.parameters.items():
        if arrays[name].shape != shape or arrays[name].dtype != np.float32:
            raise ShapeError(
                f"{name} is {arrays[name].dtype} of shape {arrays[name].shape}\n"
                f"it must be float32 of shape {shape}\n"
                "convert it"
            )
    return arrays


def check_segments(plan: TrainingPlan, *, accumulation: bool) -> None:
    """Raise SchemeError for segments that no step can have, or that the options refuse."""
    network, end = plan.network, 0
    for segment in plan.segments:
        if segment.first != end + 1 or segment.last < segment.first:
            raise _refused(segment, "segments follow one another, from stage 1 on")
        end = segment.last
    if end != len(network.stages):
        raise SchemeError(f"segments end at stage {end}\nthe network has {len(network.stages)}\nadd the rest")
    for index, segment in enumerate(plan.segments):
        _check_segment(network, segment, plan.inner(segment))
        _check_passing(plan, index)
    _check_places(plan)
    if plan.accumulates and not accumulation:
        raise SchemeError(
            "accumulation=False with one segment\none segment accumulates gradients over its pieces\n"
            "give more segments"
        )


def _check_segment(network: Network, segment: Segment, inner: range) -> None:
    stages = network.stages[segment.first - 1 : segment.last]
    if not segment.kept <= set(inner):
        raise _refused(segment, f"it can keep {', '.join(map(str, inner)) or 'nothing'}")
    if min(*segment.forward, *segment.backward) < 1:
        raise _refused(segment, "pieces have at least one image and one row")
    if any(stage.kind == "batch_norm" for stage in stages[1:]):
        raise _refused(segment, "batch normalization begins a segment: it needs sums over the whole batch")
    strips = segment.forward.rows < network.shape(segment.last)[1]
    if strips and segment.forward.images > 1 and network.normalizes(segment.last + 1):
        raise _refused(
            segment, "a piece that has only some rows must have one image, so that sums keep their order"
        )
    target = network.shape(target_of(network, segment.first))[1]
    cuts_rows = segment.backward.rows < target or segment.forward.rows < network.shape(segment.last)[1]
    if cuts_rows and any(stage.kind == "dense" for stage in stages):
        raise _refused(segment, "a dense layer reads all rows")
    if segment.backward.rows < target and segment.backward.images > 1:
        raise _refused(
            segment, "a piece that has only some rows must have one image, so that sums keep their order"
        )


def _check_passing(plan: TrainingPlan, index: int) -> None:
    segment = plan.segments[index]
    check_option("result", segment.result, get_args(Result), "of a segment: where the result is kept")
    if index + 1 == len(plan.segments):
        if segment.above is not None or segment.result != "kept":
            raise _refused(segment, "the last segment passes nothing on: above is None, and its result kept")
    elif plan.top(index) not in plan.tops(index):
        raise _refused(segment, f"above is one of {', '.join(map(str, plan.tops(index)))}, or None")


def _check_places(plan: TrainingPlan) -> None:
    """Refuse unknown tensors on the device, and phases that cut the rows of one."""
    known = {key for key, _, _ in plan.lifetimes()} - {("x", 0)}
    if not plan.on_device <= known:
        raise SchemeError(
            f"on_device has {sorted(plan.on_device - known)}\nkept between phases are {sorted(known)}\n"
            "choose among them"
        )
    if any(phase.tensors.on_device and len(phase.strips) > 1 for phase in plan.phases):
        raise SchemeError(
            "on_device names a tensor that is cut into strips of rows\na tensor on the device is whole\n"
            "keep it on the host"
        )


def _refused(segment: Segment, reason: str) -> SchemeError:
    return SchemeError(f"stages {segment.first} to {segment.last}: {segment}\n{reason}\nchange the segments")
