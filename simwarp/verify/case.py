"""A case: a computation, its inputs, and each tier's function for it."""

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
        returns an array of integers, or of floats if the case has ``differs``.
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
    differs : callable, optional
        (input, expected, got) → which elements of an answer of the right shape are wrong, as booleans:
        for floats, whose last bits the order of a sum decides. Default: those that are not equal.
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
    differs: Callable[[Any, npt.NDArray[Any], npt.NDArray[Any]], npt.NDArray[np.bool_]] | None = None

    def alike(self, expected: npt.NDArray[Any], got: npt.NDArray[Any]) -> bool:
        """Whether two answers have one shape, and one type unless the case has ``differs``.

        Examples
        --------
        >>> from simwarp.verify import CASES
        >>> CASES["bmm"].alike(np.zeros(2, np.int32), np.zeros(2, np.int64))
        False
        """
        return expected.shape == got.shape and (self.differs is not None or expected.dtype == got.dtype)

    def wrong(self, item: Any, expected: npt.NDArray[Any], got: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Which elements of an answer like the expected one are wrong.

        Examples
        --------
        >>> from simwarp.verify import CASES
        >>> CASES["bmm"].wrong(None, np.array([1, 2]), np.array([1, 3]))
        array([False,  True])
        """
        return expected != got if self.differs is None else self.differs(item, expected, got)

    def equal(self, item: Any, expected: npt.NDArray[Any], got: npt.NDArray[Any]) -> bool:
        """Whether two answers agree: in shape, in type, and in every element.

        Examples
        --------
        >>> from simwarp.verify import CASES
        >>> CASES["bmm"].equal(None, np.zeros(2, np.int32), np.zeros(2, np.int64))
        False
        """
        return self.alike(expected, got) and not self.wrong(item, expected, got).any()
