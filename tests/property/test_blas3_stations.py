"""Queue and stations against a set of tasks: each is computed once, by one device."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpu.blas3.stations import Stations
from gpu.blas3.tasks import Task

DEVICES = st.integers(0, 2)


class StationsMachine(RuleBasedStateMachine):
    """A device finds no task only if there is none that it may have."""

    @initialize(count=st.integers(0, 12), size=st.integers(1, 4), steals=st.booleans())
    def begin(self, count: int, size: int, steals: bool) -> None:
        self.size, self.steals, self.count = size, steals, count
        self.stations = Stations([Task(number, ()) for number in range(count)], 3, size, steal=steals)
        self.taken: list[int] = []
        self.priorities = dict.fromkeys(range(count), 0.0)

    @rule(device=DEVICES)
    def fill(self, device: int) -> None:
        left, before = self.stations.left, len(self.stations.waiting(device))
        others = [self.stations.waiting(other) for other in range(3) if other != device]
        queued = left - before - sum(map(len, others))
        stolen = self.stations.fill(device)
        after = len(self.stations.waiting(device))
        if queued or before:
            assert after == min(self.size, before + queued) or after == before >= self.size
            assert not stolen
        else:
            assert after == stolen == (self.steals and any(others))
        if stolen:
            fullest = max(others, key=len)
            task = self.stations.waiting(device)[0]
            rank = min((self.priorities[t.number], -t.number) for t in fullest)
            assert task not in fullest or len(fullest) == max(map(len, others))
            assert (self.priorities[task.number], -task.number) == rank or task not in fullest

    @rule(device=DEVICES, data=st.data())
    def refresh(self, device: int, data: st.DataObject) -> None:
        for task in self.stations.waiting(device):
            self.priorities[task.number] = data.draw(st.sampled_from([0.0, 0.5, 1.0]))
        self.stations.refresh(device, lambda slot: self.priorities[slot.task.number])

    @rule(device=DEVICES, count=st.integers(1, 5))
    def take(self, device: int, count: int) -> None:
        waiting = self.stations.waiting(device)
        best = sorted(waiting, key=lambda task: (-self.priorities[task.number], task.number))[:count]
        taken = self.stations.take(device, count)
        assert taken == best
        self.taken += [task.number for task in taken]

    @invariant()
    def every_task_is_somewhere_once(self) -> None:
        if hasattr(self, "stations"):
            assert len(set(self.taken)) == len(self.taken)
            assert self.stations.left + len(self.taken) == self.count


TestStations = StationsMachine.TestCase
TestStations.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
