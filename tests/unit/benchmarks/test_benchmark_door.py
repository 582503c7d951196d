"""The benchmark of calls from Python: what it adds to the launches of a call, on the simulator."""

from types import SimpleNamespace

import numpy as np
import pytest

import gpu
import simwarp
from benchmark_scripts import scripts
from gpu.bmm.warpgroups import WARPGROUP_SCHEMES
from simwarp.tensormaps import encode

door, cases = scripts("door", "bits_cases")


def bench():
    """A bench whose device is simulated."""
    made = object.__new__(door.Bench)
    made.device, made._timings = simwarp.Device((9, 0)), []
    return made


def captured(on, check):
    """The row of a captured product of prepared operands, whose kernels take 3 us."""
    a, b = (gpu.prepare(np.ones((8, 8), np.float32), role, device=on.device) for role in "ab")
    alone = door.Timing(lambda: 3.0)
    alone.add_round()
    return on.captured("bmm/8", {"n": 8}, lambda: gpu.bmm(a, b), alone, check, {"torch": alone})


def test_a_captured_call_is_checked_and_timed():
    on = bench()
    finish = captured(on, lambda c: (c.download() == 8).all())
    (timing,) = on._timings
    timing.add_round()
    row = finish()
    assert (row.case, row.target) == ("door-graph/bmm/8", 9.0)
    assert row.peers == {door.ALONE: 3.0, "torch": 3.0}
    assert row.ours > 0


def test_a_captured_call_with_a_wrong_answer_ends_the_run():
    with pytest.raises(SystemExit, match="bmm/8 in a graph: the answer is wrong"):
        captured(bench(), lambda c: (c.download() == 7).all())


def test_launches_in_a_stream_have_their_tensor_maps_and_shared_memory(monkeypatch):
    monkeypatch.setattr(cases, "encoded", lambda tensor, _: encode(tensor))
    monkeypatch.setattr(door, "launch_of", cases.launch_of)
    device = simwarp.Device((9, 0), multiprocessors=1)
    lines = device.upload(np.full((64, 1, 4), 2**32 - 1, np.uint32))
    ones = device.upload(np.full(64, 128, np.uint32))
    c = device.allocate((64, 64), np.int32)
    plan = WARPGROUP_SCHEMES["wgmma"].plan((64, 64, 128), "int32", 1)
    streamed = SimpleNamespace(kernel=device.kernel, queue=None)
    door.Streamed.launch(streamed, plan, (lines, ones, lines, ones, c))
    assert (c.download() == 128).all()


def test_the_scheme_auto_is_measured_with_its_own_format():
    auto = door.OF_PRODUCTS["auto"]
    assert (auto.word, auto.first, auto.form) == (32, "lsb", "lines")
