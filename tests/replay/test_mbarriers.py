"""Random programs on barriers in shared memory, recorded on an H200, give the simulator's results."""

import pytest

from simwarp.lab.recording import GOLDEN, recorded
from simwarp.lab.subjects import mbarriers
from simwarp.lab.subjects.mbarriers_by_chance import generate
from simwarp.verify.draw import Draw

pytestmark = pytest.mark.skipif(
    not (GOLDEN / "sm_90" / "mbarriers.json").exists(), reason="awaits its recording on a GPU"
)
AGAIN = "record again, on a GPU: simwarp record mbarriers"
SAMPLE = range(Draw(0, "mbarriers", 0).integer(0, 63), mbarriers.COUNT, 64)


@pytest.fixture(scope="module")
def golden():
    return recorded("mbarriers")


def test_enough_programs_were_recorded_without_a_difference(golden):
    assert golden.meta["seed"] == mbarriers.SEED, AGAIN
    assert golden.meta["count"] == len(golden.arrays["digests"]) >= 5_000
    assert golden.meta["mismatches"] == golden.meta["lost"] == 0
    assert golden.arrays["digests"].any(axis=1).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "first", [pytest.param(k, marks=pytest.mark.gate if k % 8 else ()) for k in range(0, len(SAMPLE), 2)]
)
def test_the_simulator_reproduces_the_recorded_programs(golden, first):
    for number in SAMPLE[first : first + 2]:
        program = generate(mbarriers.SEED, number)
        assert mbarriers.text_digest(program)[:4] == golden.arrays["texts"][number].tobytes(), AGAIN
        found = mbarriers.digest(mbarriers.simulated(program))
        assert found == golden.arrays["digests"][number].tobytes(), number
