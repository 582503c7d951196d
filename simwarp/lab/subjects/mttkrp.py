"""The subject that compares MTTKRP and decompositions of thousands of tensors with the reference.

The tensors are of every kind and format, of orders 2 to 8, with up to 20,000 nonzeros, a few with about a
million. The recording has their numbers by format, order, rank and so on, the number of answers with errors
above the rounding bound, and the largest error as a share of the bound. Deterministic inputs run twice and
must give the same bits. It also has the SHA-256 of the answers to the first inputs of the case "mttkrp", all
made deterministic, and the fits and factors' SHA-256 of decompositions of planted tensors.

>>> first_input(0).deterministic
True
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

import reference
from reference.types import Coo, Cpd
from simwarp.lab.recording import Answers, Asking, Subject
from simwarp.testing.golden import sha256
from simwarp.verify import CASES, Draw
from simwarp.verify.cases.mttkrp import DTYPES, FORMATS, Input
from simwarp.verify.tensors import KINDS, draw_factors, draw_tensor

CASE = CASES["mttkrp"]
SEED = 11
TENSORS, LARGE = 2100, 28
FIRST = 60
"""The number of inputs of the case whose answers' SHA-256 is recorded."""
ORDERS, RANKS = (2, 3, 4, 5, 6, 7, 8), (1, 7, 16, 32, 33, 48, 64, 100)
MOST = (600, 6_000, 20_000)
"""The largest numbers of nonzeros of the tensors; input k uses number k modulo 3."""
MILLION = 3_600_000
"""Nonzeros to draw for a large tensor; about a million of them have different coordinates."""


# --------------------------------------------------------------------------------------------------
# Inputs
# --------------------------------------------------------------------------------------------------


def tensor_input(seed: int, k: int) -> Input:
    """Input k with up to 20,000 nonzeros; the first 392 combine all formats, orders and ranks."""
    rank = RANKS[k // 49 % 8]
    return _input(Draw(seed, "tensors", k), KINDS[k % 11], ORDERS[k // 7 % 7], rank, MOST[k % 3])


def large_input(seed: int, k: int) -> Input:
    """Random MTTKRP input k, with about a million nonzeros."""
    return _input(Draw(seed, "large tensors", k), "skewed", ORDERS[k // 7 % 4], RANKS[k % 8], MILLION)


def _input(draw: Draw, kind: str, order: int, rank: int, most: int) -> Input:
    k, name, dtype = draw.k, FORMATS[draw.k % 7], DTYPES[draw.k // 2 % 2]
    mode = draw.integer(0, order - 1)
    tensor = draw_tensor(draw, kind, order, dtype, rank=rank, most=most, repeats=name == "coo")
    factors = draw_factors(draw, tensor.shape, mode, rank, dtype)
    return Input(tensor, factors, mode, name, kind, k // 4 % 2 == 1)


def first_input(k: int) -> Input:
    """Input k of the verification case "mttkrp", to be computed deterministically."""
    return replace(CASE.draw(Draw(SEED, CASE.name, k)), deterministic=True)


@dataclass(frozen=True)
class Planted:
    """A tensor made of known factors plus noise, as input of a decomposition."""

    shape: tuple[int, ...]
    rank: int
    noise: float
    iterations: int = 5

    @property
    def tensor(self) -> Coo:
        """The tensor: a block of nonzeros for each component, plus noise, the same bits on every machine."""
        draw = Draw(SEED, "planted", self.rank)
        model = np.zeros(self.shape)
        for r in range(self.rank):
            component = np.ones(())
            for size in self.shape:
                column = np.where(np.arange(size) % self.rank == r, 1.5 + _even(draw, size), 0.0)
                component = np.multiply.outer(component, column)
            model += component
        noise = np.where(model, _even(draw, model.size).reshape(self.shape), 0.0)
        model += self.noise * _norm(model) / _norm(noise) * noise
        places = np.nonzero(model)
        return Coo(np.stack(places), model[places], self.shape)

    def __str__(self) -> str:
        return f"{' x '.join(map(str, self.shape))}, rank {self.rank}, noise {self.noise:g}"


PLANTED = tuple(
    Planted(shape, rank, noise)
    for shape, rank in (((13, 11, 7), 3), ((7, 5, 6, 4), 2))
    for noise in (0.0, 0.1)
)


def _even(draw: Draw, count: int) -> npt.NDArray[np.float64]:
    """``count`` random numbers, uniform between -1 and 1."""
    return np.ldexp((draw.words(count) >> np.uint64(11)).astype(np.float64), -52) - 1


def _norm(x: npt.NDArray[np.float64]) -> float:
    return math.sqrt(math.fsum((x * x).ravel().tolist()))


# --------------------------------------------------------------------------------------------------
# Comparison with the reference
# --------------------------------------------------------------------------------------------------


def share_of_bound(item: Input, got: npt.NDArray[Any]) -> float:
    """The largest error, as a share of the element's error bound; infinite for a NaN."""
    expected = CASE.answers["reference"](item)
    bound = reference.mttkrp_bound(item.tensor, item.factors, item.mode, item.tensor.values.dtype)
    error = abs(got.astype(np.float64) - expected)
    shares = np.divide(error, bound, out=np.where(error > 0, np.inf, 0.0), where=bound > 0)
    return float(np.nan_to_num(shares, nan=np.inf).max())


def decomposed(planted: Planted, device: Any) -> Cpd:
    """Decompose a planted tensor on a device, without atomics."""
    from gpu.cpd import cpd_als

    options: dict[str, Any] = {"seed": SEED, "iterations": planted.iterations, "tolerance": 0.0}
    return cpd_als(planted.tensor, planted.rank, **options, device=device, deterministic=True)


def cpd_row(cpd: Cpd) -> dict[str, Any]:
    """The facts of a decomposition that are recorded: fits, and SHA-256 of weights and factors."""
    return {"fits": list(cpd.fits), "sha256": sha256(cpd.weights, *cpd.factors)}


def hold(device: Any, k: int, large: bool) -> dict[str, Any]:
    """Compare a device's result for input k with the reference; return facts about input and error."""
    item = large_input(SEED, k) if large else tensor_input(SEED, k)
    name = f"{'large input' if large else 'input'} {k}: {CASE.describe(item)}"
    answer = CASE.answers["gpu"]
    try:
        got = answer(item, device)
        steady = not item.deterministic or sha256(got) == sha256(answer(item, device))
    except Exception as error:
        error.add_note(name)
        raise
    share = share_of_bound(item, got)
    wrong = f"{name}\nerror {share:.3g} of the bound{'' if steady else ', other bits when repeated'}"
    values = item.tensor.values
    return {name: getattr(item, name) for name in ("format", "kind", "rank", "deterministic")} | {
        "order": len(item.tensor.shape),
        "dtype": str(values.dtype),
        "nonzeros": values.size,
        "large": large,
        "share": share,
        "wrong": "" if share <= 1 and steady else wrong,
    }


def ask(asking: Asking) -> Answers:
    """Compare every input, in parallel processes, since reference and compiler take most of the time."""
    tasks = [(k, True) for k in range(asking.number(LARGE, 0))]
    tasks += [(k, False) for k in range(0, TENSORS, asking.number(1, 700 if asking.simulated else 15))]
    asked = list(asking.map(hold, tasks))
    counted, device = ("kind", "order", "rank", "dtype", "deterministic"), asking.device
    firsts, planted = range(asking.number(FIRST, 1)), PLANTED[: asking.number(len(PLANTED), 1)]
    differences = [one["wrong"] for one in asked if one["wrong"]]
    facts = {
        "seed": SEED,
        **worst_of(asked),
        **{name: sum(one[name] for one in asked) for name in ("large", "nonzeros")},
        "mismatches": len(differences),
        "by_format": {
            name: {
                dtype: worst_of([one for one in asked if (one["format"], one["dtype"]) == (name, dtype)])
                for dtype in DTYPES
            }
            for name in FORMATS
        },
        **{f"by_{key}": dict(Counter(str(one[key]) for one in asked)) for key in counted},
        "first": [sha256(CASE.answers["gpu"](first_input(k), device)) for k in firsts],
        "cpd": {str(one): cpd_row(decomposed(one, device)) for one in planted},
    }
    return Answers(facts, ptx=CASE.kernels(device.compute_capability), differences=differences)


def worst_of(asked: list[dict[str, Any]]) -> dict[str, Any]:
    """The number of tensors, and their largest error as a share of its bound."""
    return {"tensors": len(asked), "worst": max((one["share"] for one in asked), default=0.0)}


SUBJECTS = [Subject("mttkrp-tensors", "MTTKRP and decompositions of 2,100 tensors, errors and digests", ask)]
