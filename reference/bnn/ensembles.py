"""Ensembles of binarized networks: their logits are summed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reference.bnn.inference import run
from reference.errors import ShapeError
from reference.types.network import EnsembleAnswer, Network


def run_ensemble(networks: Sequence[Network], images: npt.ArrayLike) -> EnsembleAnswer:
    """Run several networks on the same images, and sum their logits.

    Logits are added in the order of the networks, in float32: ((first + second) + third) and so on.
    ``gpu.bnn.run_ensemble`` answers the same question.

    Parameters
    ----------
    networks : sequence of Network
        They tell the same classes apart. What the vote of a network weighs belongs to its scale and offset.
    images : array_like, (N, *input.shape)
        As of `run`.

    Returns
    -------
    EnsembleAnswer
        The logits of each network, their sum, and classes.

    Raises
    ------
    ShapeError
        For no networks, and those of different numbers of classes.
    ShapeError, DtypeError, NotANumberError, RangeError
        As of `run`.

    Examples
    --------
    A network that says which pixel is brighter, and one that says the contrary:

    >>> from reference import pack
    >>> from reference.bnn import Dense, Network, Pixels
    >>> pixels = Pixels((2,), np.array([1, 1], np.int32), np.array([0, 0], np.int32))
    >>> dense, one = Dense(pack([[1.0, -1.0], [-1.0, 1.0]], layout="row")), np.ones(2, np.float32)
    >>> brighter = Network("brighter", pixels, (dense,), one, 0 * one)
    >>> darker = Network("darker", pixels, (dense,), -one, one)
    >>> run_ensemble([brighter, darker], np.array([[9, 200]], np.uint8)).logits
    array([[1., 1.]], dtype=float32)
    """
    classes = [network.scale.size for network in networks]
    if not classes or min(classes) != max(classes):
        raise ShapeError(
            f"an ensemble of networks with {classes} classes\ntheir logits are added\n"
            "give one network or more, with the same classes"
        )
    members = np.array([run(network, images).logits for network in networks])
    logits = np.add.accumulate(members, axis=0)[-1]
    return EnsembleAnswer(members, logits, np.argmax(logits, axis=1))
