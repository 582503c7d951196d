"""Random copies through tensor maps, recorded on an H200, move the simulator's bytes."""

import pytest

from simwarp.lab.recording import GOLDEN, recorded
from simwarp.lab.subjects import tensor_copies as copies
from simwarp.verify.draw import Draw

pytestmark = pytest.mark.skipif(
    not (GOLDEN / "sm_90" / "tensor-copies.json").exists(), reason="awaits its recording on a GPU"
)
AGAIN = "record again, on a GPU: simwarp record tensor-copies"
SAMPLE = range(Draw(0, "tensor copies", 0).integer(0, 25), copies.COUNT, 26)


@pytest.fixture(scope="module")
def golden():
    return recorded("tensor-copies")


def test_enough_copies_were_recorded_without_a_difference(golden):
    assert golden.meta["seed"] == copies.SEED, AGAIN
    assert golden.meta["copies"] == copies.COPIES * len(golden.arrays["digests"]) >= 20_000
    assert golden.meta["mismatches"] == golden.meta["lost"] == 0
    assert golden.arrays["digests"].any(axis=1).all()


@pytest.mark.parametrize("first", range(0, len(SAMPLE), 20))
def test_the_simulator_reproduces_the_recorded_copies(golden, first):
    for number in SAMPLE[first : first + 20]:
        case = copies.drawn(number)
        assert copies.question(case)[:4] == golden.arrays["questions"][number].tobytes(), AGAIN
        found = copies.digest(copies.simulated(case))
        assert found == golden.arrays["digests"][number].tobytes(), case
