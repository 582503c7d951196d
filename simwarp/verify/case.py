"""The type of a case: a computation, its inputs, and the function of each tier that computes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import SchemeError
from reference.values import shortened
from simwarp.verify.draw import Draw

Answer: TypeAlias = Callable[..., npt.NDArray[Any]]

ORACLE = "reference"
"""The tier that all others are compared with."""


@shortened
@dataclass(frozen=True)
class Case:
    """A computation that several implementations (tiers) do, to be compared on drawn inputs.

    Attributes
    ----------
    name : str
    draw : callable
        Draws an input, of any type that the answers accept.
    shape : callable
        The key by which distinct shapes of inputs are counted.
    describe : callable
        A description of an input.
    answers : mapping of tier to callable
        ``"reference"`` and ``"listing"`` take (input,); ``"gpu"`` takes (input, device). Each
        returns an array of integers, or of floats if the case has ``differs``.
    outputs : mapping of answer to str
        The name of the output array of the ``"gpu"`` and ``"listing"`` answers; "" if an answer has several
        arrays, whose writers are then not looked for.
    explain : callable
        Takes (input, element, bit); returns its meaning in the problem, e.g. a matrix element.
    lead : callable
        Takes (input, bits); returns the one of a word's differing bits that comes first in the problem.
    kernels : callable
        Takes a compute capability; returns the digests of the compiled kernels, by name, for goldens.
    covering : int
        The number of inputs, from the first on, that cover every combination of the case.
    picture : callable, optional
        Takes (input, element, bit); returns a drawing for the report of a mismatch.
    differs : callable, optional
        Takes (input, expected, got); returns which elements are wrong, as booleans. For floats, whose last
        bits depend on the order of a sum. By default, elements that are not equal are wrong.
    as_if : callable, optional
        Takes (input, expected, got), of one shape and dtype; returns the simple bugs that would give all of
        ``got``, as "as if …", or "".
    file : str
        The file that holds a case of a user, for the command that replays an input.
    named : bool
        Whether the name was given. If not, a file's case is called as the variable that holds it.

    Raises
    ------
    SchemeError
        For a case without a reference.
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
    as_if: Callable[[Any, npt.NDArray[Any], npt.NDArray[Any]], str] | None = None
    file: str = ""
    named: bool = True

    def __post_init__(self) -> None:
        if ORACLE not in self.answers:
            raise SchemeError(
                f"the case {self.name!r} has no {ORACLE}: its answers are {', '.join(self.answers)}\n"
                "every other answer is compared with that one\n"
                f'give answers={{"{ORACLE}": a function of an input, …}}'
            )

    @classmethod
    def of(
        cls,
        draw: Callable[[Draw], Any],
        reference: Callable[[Any], Any],
        kernel: Callable[[Any, Any], Any],
        *,
        output: str = "",
        bound: Callable[[Any], Any] | None = None,
        listing: Callable[[Any], Any] | None = None,
        name: str = "",
    ) -> Case:
        """A case of your own, from three functions.

        Parameters
        ----------
        draw : callable
            Takes a `Draw`; returns an input, for instance a dict of arrays and numbers.
        reference : callable
            Takes an input; returns the array that is right.
        kernel : callable
            Takes an input and a device, the simulator or a GPU; returns the kernel's array, or the result of
            `simwarp.run` on that device, of which ``output`` is taken.
        output : str, optional
            The name of the array that the kernel writes. With it a report says who wrote a wrong element.
        bound : callable, optional
            Takes an input; returns how far an element may be off, as a number or an array. By default no
            element may be off, and a NaN is.
        listing : callable, optional
            Takes an input; returns the array of another implementation on the host, which is compared, too.
        name : str, optional
            By default that of the kernel's function; in a file of ``simwarp verify FILE``, that of the
            variable that holds the case.

        Raises
        ------
        DtypeError
            For what is not a function.

        Examples
        --------
        >>> import simwarp
        >>> from simwarp.verify import simulator, verify
        >>> source = '''
        ... extern "C" __global__ void twice(const int* x, int* y, int n) {
        ...     int i = blockIdx.x * blockDim.x + threadIdx.x;
        ...     if (i < n) y[i] = 2 * x[i];
        ... }'''
        >>> def kernel(x, device):
        ...     arguments = {"x": x, "y": simwarp.Out(np.int32, len(x)), "n": len(x)}
        ...     return simwarp.run(source, grid=-(-len(x) // 64), block=64, args=arguments, device=device)
        >>> def draw(d):
        ...     return d.matrix(1, d.integer(1, 200), "int8")[0].astype(np.int32)
        >>> twice = Case.of(draw, lambda x: 2 * x, kernel, output="y", name="twice")
        >>> verify([twice], {"simulator": simulator}, inputs=3).agreed
        True
        """
        from simwarp.verify.own import case_of

        return case_of(draw, reference, kernel, output, bound, listing, name)

    def alike(self, expected: npt.NDArray[Any], got: npt.NDArray[Any]) -> bool:
        """True if two answers have equal shapes, and equal dtypes unless the case has ``differs``.

        Examples
        --------
        >>> from simwarp.verify import CASES
        >>> CASES["bmm"].alike(np.zeros(2, np.int32), np.zeros(2, np.int64))
        False
        """
        return expected.shape == got.shape and (self.differs is not None or expected.dtype == got.dtype)

    def wrong(self, item: Any, expected: npt.NDArray[Any], got: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """A mask of the wrong elements of an answer with the expected shape.

        Examples
        --------
        >>> from simwarp.verify import CASES
        >>> CASES["bmm"].wrong(None, np.array([1, 2]), np.array([1, 3]))
        array([False,  True])
        """
        return expected != got if self.differs is None else self.differs(item, expected, got)

    def equal(self, item: Any, expected: npt.NDArray[Any], got: npt.NDArray[Any]) -> bool:
        """True if two answers agree in shape, in dtype, and in every element.

        Examples
        --------
        >>> from simwarp.verify import CASES
        >>> CASES["bmm"].equal(None, np.zeros(2, np.int32), np.zeros(2, np.int64))
        False
        """
        return self.alike(expected, got) and not self.wrong(item, expected, got).any()
