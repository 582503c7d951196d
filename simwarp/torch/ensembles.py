"""Ensembles whose networks run in several processes, through ``torch.distributed``."""

from __future__ import annotations

from typing import Any

import numpy as np

from reference.errors import DtypeError, ShapeError
from reference.types.network import EnsembleAnswer
from simwarp.torch.pytorch import torch


def sum_over_ranks(logits: Any, *, group: Any = None) -> EnsembleAnswer:
    """The ensemble of networks that the processes of a group ran on the same images.

    Every process calls it with the logits of its own network, and has the same answer: logits are gathered,
    and added in the order of ranks, so that sums are those of `reference.bnn.run_ensemble` to the bit. An
    ``all_reduce`` would add in an order of its own.

    Parameters
    ----------
    logits : array or tensor of float32, (N, K)
        Such as ``gpu.bnn.run(network, images).logits``; on any device.
    group : torch.distributed.ProcessGroup, optional
        Default: all processes. With NCCL, logits travel by torch's current CUDA device.

    Returns
    -------
    EnsembleAnswer
        NumPy arrays; a member is a rank of the group.

    Raises
    ------
    DtypeError
        For logits that are not of float32.
    ShapeError
        In every process, unless they all have the same shape (N, K).

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> store = Path(tempfile.mkdtemp()) / "store"
    >>> torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    >>> sum_over_ranks(np.array([[0.5, 2.0]], np.float32)).classes
    array([1])
    >>> torch.distributed.destroy_process_group()
    """
    own = torch.as_tensor(logits)
    if own.dtype != torch.float32:
        raise DtypeError(
            f"logits are of {own.dtype}\na network's logits are of float32\ngive them without a conversion"
        )
    by_nccl = torch.distributed.get_backend(group) == "nccl"
    own = own.to("cuda" if by_nccl else "cpu").contiguous()
    shapes = [torch.zeros(3, dtype=torch.int64, device=own.device) for _ in range(_size(group))]
    shape = [own.ndim, *own.shape, 0, 0][:3]
    torch.distributed.all_gather(shapes, torch.tensor(shape, device=own.device), group=group)
    found = [each.tolist() for each in shapes]
    if any(each != found[0] or each[0] != 2 for each in found):
        said = ", ".join(str(tuple(sizes[:dimensions])) for dimensions, *sizes in found)
        raise ShapeError(
            f"the processes have logits of shapes {said}\n"
            "logits are (images, classes), of the same shape on all processes\n"
            "give every process the same images, and a network of the same classes"
        )
    parts = [torch.empty_like(own) for _ in shapes]
    torch.distributed.all_gather(parts, own, group=group)
    members = np.stack([part.cpu().numpy() for part in parts])
    total = members[0].copy()
    for each in members[1:]:
        total += each
    return EnsembleAnswer(members, total, total.argmax(axis=1))


def _size(group: Any) -> int:
    return int(torch.distributed.get_world_size(group))
