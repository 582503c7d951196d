"""What a call did, beside what the model predicted."""

from __future__ import annotations

from dataclasses import dataclass


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
        By the timeline of the model.

    Examples
    --------
    >>> Statistics(seconds=2.0, predicted_seconds=1.5).model_error
    -0.25
    """

    bytes_in: int = 0
    bytes_out: int = 0
    seconds: float = 0.0
    predicted_seconds: float = 0.0

    @property
    def model_error(self) -> float:
        """The predicted seconds over the clock's, less 1."""
        return self.predicted_seconds / self.seconds - 1 if self.seconds else 0.0
