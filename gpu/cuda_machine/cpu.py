"""The host's cores as a part of a machine: one thread, which computes routines in order."""

from __future__ import annotations

import time
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor

from gpu.cuda_machine.recording import Recorder
from gpu.machine import HOST, CpuRoutine
from reference.devices.timeline import Record
from reference.errors import DeviceLostError, SimwarpError


class CpuEvent:
    """The end of a routine of the host's cores."""

    def __init__(self, machine: object, future: Future[None]) -> None:
        self.machine, self._future = machine, future

    @property
    def done(self) -> bool:
        """True if the routine has ended; raises its error."""
        if not self._future.done():
            return False
        self._future.result()
        return True

    def wait(self) -> None:
        """Wait for the routine; raises its error, except for one that was never started."""
        try:
            self._future.result()
        except CancelledError:
            return


class Cpu:
    """The thread of the host's cores, which starts with the first routine.

    Routines compute with a BLAS that has threads of its own and releases Python's lock, so that the thread
    that feeds the GPUs goes on.
    """

    def __init__(self, machine: object, recorder: Recorder) -> None:
        self._machine, self._recorder = machine, recorder
        self._thread: ThreadPoolExecutor | None = None
        self._queued: list[CpuEvent] = []
        self._failure: SimwarpError | None = None

    def queue(self, routine: CpuRoutine) -> CpuEvent:
        """Queue a routine; the event of its end."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "simwarp-cpu")
        event = CpuEvent(self._machine, self._thread.submit(self._compute, routine))
        self._queued.append(event)
        return event

    def _compute(self, routine: CpuRoutine) -> None:
        """Compute a routine in the thread, unless an earlier one has failed.

        An error other than ours becomes a DeviceLostError of the host.
        """
        if self._failure is not None:
            raise self._failure
        begin = time.perf_counter()
        try:
            routine.compute()
        except SimwarpError as error:
            self._failure = error
            raise
        except Exception as error:
            self._failure = DeviceLostError(
                f"the host's cores are lost: {routine.name} ended with {type(error).__name__}: {error}",
                "nothing that they had queued is computed",
                "leave them out with Options(cpu=False), and compute again what they had not finished",
                device=HOST,
                seconds=time.perf_counter(),
            )
            raise self._failure from error
        if self._recorder.is_on:
            end, operations = time.perf_counter(), routine.operations
            self._recorder.note(Record(HOST, -1, 0, "routine", routine.name, 0, begin, end, operations))

    def settle(self) -> None:
        """Wait for all routines; raise the first error."""
        queued, self._queued = self._queued, []
        errors = list[SimwarpError]()
        for event in queued:
            try:
                event.wait()
            except SimwarpError as error:
                errors.append(error)
        self._failure = None
        if errors:
            raise errors[0]

    def drop(self) -> None:
        """After a failure, start nothing more; what runs ends before `settle` returns."""
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)
        self._thread, self._failure, self._queued = None, None, []
