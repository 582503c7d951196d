"""Ensembles over the processes of torch.distributed, with gloo."""

from __future__ import annotations

import importlib
import subprocess
import sys

import numpy as np
import pytest

from reference import DtypeError, ShapeError

torch = pytest.importorskip("torch", reason="simwarp.torch needs torch")
st = importlib.import_module("simwarp.torch")

RANKS = 3
PROCESS = """
import sys
import numpy as np
import torch
from reference import ShapeError
from simwarp.torch import sum_over_ranks

store, rank, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
logits = np.load(f"{store}.{rank}.npy")
try:
    sum_over_ranks(logits[: 2 + rank])
except ShapeError as error:
    assert "(2, 5), (3, 5), (4, 5)" in str(error), error
else:
    raise SystemExit("other shapes were taken")
answer = sum_over_ranks(torch.from_numpy(logits).T.contiguous().T if rank == 1 else logits)
np.savez(f"{store}.{rank}", **answer._asdict())
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_processes_have_one_sum_in_the_order_of_ranks(tmp_path):
    store = tmp_path / "store"
    rng = np.random.default_rng(3)
    logits = (rng.standard_normal((RANKS, 40, 5)) * 10.0 ** rng.integers(-4, 5, (RANKS, 40, 5))).astype(
        np.float32
    )
    for rank in range(RANKS):
        np.save(f"{store}.{rank}.npy", logits[rank])
    command = [sys.executable, "-c", PROCESS, str(store)]
    processes = [subprocess.Popen([*command, str(rank), str(RANKS)]) for rank in range(RANKS)]
    try:
        assert [process.wait(timeout=120) for process in processes] == [0] * RANKS
    finally:
        for process in processes:
            process.kill()
    total = logits[0] + logits[1] + logits[2]
    assert (total != logits[2] + logits[1] + logits[0]).any()
    for rank in range(RANKS):
        answer = np.load(f"{store}.{rank}.npz")
        np.testing.assert_array_equal(answer["members"], logits)
        np.testing.assert_array_equal(answer["logits"], total)
        np.testing.assert_array_equal(answer["classes"], total.argmax(axis=1))


@pytest.fixture
def alone(tmp_path):
    """A group of this process."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_a_process_alone_has_its_own_logits(alone):
    logits = np.float32([[1, 3, 3], [2, 0, -1]])
    answer = st.sum_over_ranks(logits)
    np.testing.assert_array_equal(answer.members, [logits])
    np.testing.assert_array_equal(answer.logits, logits)
    assert answer.classes.tolist() == [1, 0]  # the first of equal ones


def test_logits_that_cannot_be_summed_are_refused(alone):
    with pytest.raises(DtypeError, match=r"of torch\.float64"):
        st.sum_over_ranks(np.zeros((2, 3)))
    for wrong in ((3,), (1, 2, 3)):
        with pytest.raises(ShapeError, match="of the same shape on all processes"):
            st.sum_over_ranks(np.zeros(wrong, np.float32))


def test_without_processes_torch_says_so():
    with pytest.raises(ValueError, match="process group"):
        st.sum_over_ranks(np.zeros((2, 3), np.float32))
