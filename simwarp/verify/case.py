"""What is verified: a question, inputs for it, and who answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from simwarp.verify.draw import Draw

Answer: TypeAlias = Callable[..., npt.NDArray[Any]]

ORACLE = "reference"
"""The tier that the others are compared with."""


@dataclass(frozen=True)
class Case:
    """A question that several tiers answer.

    Attributes
    ----------
    name : str
    draw : callable
        Draws an input; anything that the answers take.
    shape : callable
        What makes two inputs differ for the count of shapes.
    describe : callable
        An input in words.
    answers : mapping of tier to callable
        ``"reference"`` and ``"listing"`` take (input,); ``"gpu"`` takes (input, device). Each
        returns an array of integers.
    outputs : mapping of answer to str
        The name of the array that the ``"gpu"`` and ``"listing"`` answers are read from.
    explain : callable
        (input, element, bit) in the words of the problem: which matrix element that is.
    lead : callable
        (input, bits): of the differing bits of one word, the one that comes first in the problem.
    kernels : callable
        The compiled kernels for a compute capability, by title, whose digests goldens record.
    covering : int
        How many inputs, from the first on, meet every combination that the case has.
    picture : callable, optional
        (input, element, bit) drawn, as lines of text: what a reader of a mismatch wants to see.
    """

    name: str
    draw: Callable[[Draw], Any]
    shape: Callable[[Any], tuple[int, ...]]
    describe: Callable[[Any], str]
    answers: Mapping[str, Answer]
    outputs: Mapping[str, str]
    explain: Callable[[Any, tuple[int, ...], int], str]
    lead: Callable[[Any, tuple[int, ...]], int]
    kernels: Callable[[tuple[int, int]], dict[str, str]]
    covering: int = 0
    picture: Callable[[Any, tuple[int, ...], int], str] | None = None

    def equal(self, expected: npt.NDArray[Any], got: npt.NDArray[Any]) -> bool:
        """Whether two answers agree: in shape, type and every bit.

        Examples
        --------
        >>> from simwarp.verify import CASES
        >>> CASES["bmm"].equal(np.zeros(2, np.int32), np.zeros(2, np.int64))
        False
        """
        return expected.dtype == got.dtype and bool(np.array_equal(expected, got))
