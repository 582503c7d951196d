"""Measured statistics of a call, to compare with the predicted ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

Number = TypeVar("Number", int, float)


class _Lazy(Generic[Number]):
    """A field that may be set to a function, which is evaluated when the field is read."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = "_" + name

    def __get__(self, statistics: object, owner: type) -> Number:
        if statistics is None:  # dataclasses look the default up as None
            return cast("Number", 0)
        value: Number | Callable[[], Number] = vars(statistics)[self._name]
        return value() if callable(value) else value

    def __set__(self, statistics: object, value: Number | Callable[[], Number]) -> None:
        vars(statistics)[self._name] = value


@dataclass
class Statistics:
    """Counts of a call.

    Attributes
    ----------
    bytes_in, bytes_out : int
        Copied to the device, and to the host.
    seconds : float
        By the machine's clock.
    predicted_seconds : float
        By the timeline of the model, which is made when this or the bytes are read.

    Examples
    --------
    >>> Statistics(seconds=2.0, predicted_seconds=1.5).model_error
    -0.25
    """

    bytes_in: _Lazy[int] = _Lazy[int]()  # noqa: RUF009
    bytes_out: _Lazy[int] = _Lazy[int]()  # noqa: RUF009
    seconds: float = 0.0
    predicted_seconds: _Lazy[float] = _Lazy[float]()  # noqa: RUF009

    @property
    def model_error(self) -> float:
        """The predicted seconds over the clock's, less 1."""
        return self.predicted_seconds / self.seconds - 1 if self.seconds else 0.0
