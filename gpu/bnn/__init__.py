"""Binarized networks on a device, layer by layer."""

from gpu.bnn.network import Answer, PreparedNetwork, prepare, run
from gpu.bnn.several import (
    EnsembleAnswer,
    PreparedEnsemble,
    PreparedSplit,
    prepare_ensemble,
    prepare_split,
    run_ensemble,
)

__all__ = [
    "Answer",
    "EnsembleAnswer",
    "PreparedEnsemble",
    "PreparedNetwork",
    "PreparedSplit",
    "prepare",
    "prepare_ensemble",
    "prepare_split",
    "run",
    "run_ensemble",
]


def __dir__() -> list[str]:
    return sorted(__all__)
