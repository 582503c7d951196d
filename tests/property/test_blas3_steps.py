"""The state machines of level-3 BLAS for 200,000 steps together."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, run_state_machine_as_test

from property.test_blas3_cache import CacheMachine
from property.test_blas3_directory import DirectoryMachine
from property.test_blas3_heap import HeapMachine
from property.test_blas3_stations import StationsMachine

STEPS = 50_000


@pytest.mark.gate
@pytest.mark.parametrize("machine", [CacheMachine, DirectoryMachine, HeapMachine, StationsMachine])
def test_many_steps_break_no_invariant(machine: type[RuleBasedStateMachine]) -> None:
    class Counted(machine):
        steps = 0

        def __init__(self) -> None:
            super().__init__()
            Counted.steps -= 1  # the invariants hold before the first step, too

        @invariant()
        def count(self) -> None:
            Counted.steps += 1

    many = settings(
        max_examples=4000, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(Counted, settings=many)  # once: a second run would take the same steps
    assert Counted.steps >= STEPS
