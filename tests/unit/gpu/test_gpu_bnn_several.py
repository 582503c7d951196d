"""Networks on several simulated devices: shared batches and ensembles, with a host thread for each device."""

import concurrent.futures
import threading
from contextlib import contextmanager

import numpy as np
import pytest

import gpu.bnn
import gpu.bnn.several
import reference.bnn
from gpu.cuda import CudaDevice, contexts
from reference import DtypeError, NotANumberError, SchemeError, ShapeError, pack
from reference.bnn import Dense, Network, Pixels, Signs
from simwarp import Device

CHEAP = {"Dense": "bmm32"}
RNG = np.random.default_rng(5)


def network(seed=0, classes=3, given=None, scale=None):
    rng = np.random.default_rng(seed)
    weights = pack(rng.choice(np.array([-1, 1], np.int8), (40, classes)), layout="row")
    given = given or Pixels((40,), np.ones(40, np.int32), np.full(40, -100, np.int32))
    scale = rng.standard_normal(classes) if scale is None else np.full(classes, scale)
    return Network("some", given, (Dense(weights),), *np.float32([scale, rng.standard_normal(classes)]))


def images(count):
    return RNG.integers(0, 256, (count, 40), dtype=np.uint8)


class Watched(Device):
    """A device that notes the threads of its launches, and whether it was made current there."""

    def __init__(self):
        super().__init__()
        self.threads, self.users = set(), 0

    @contextmanager
    def current(self):
        self.users += 1
        assert self.users == 1
        try:
            yield
        finally:
            self.users -= 1

    def launch(self, plan, arrays, stream=None):
        assert self.users == 1
        self.threads.add(threading.get_ident())
        super().launch(plan, arrays, stream)


def same(answer, expected):
    for got, wanted in zip(answer, expected, strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.gate
def test_a_shared_batch_has_the_answer_of_one_device():
    devices = [Watched(), Watched(), Watched()]
    split = gpu.bnn.prepare_split(network(), devices, schemes=CHEAP)
    for count, pieces in ((7, None), (7, 2), (1, None), (2, 5), (6, None)):
        given = images(count)
        same(split.run(given, pieces=pieces), reference.bnn.run(network(), given))
    assert all(device.threads and threading.get_ident() not in device.threads for device in devices)


def test_an_error_of_one_device_comes_when_all_have_ended():
    signs = network(given=Signs((40,), np.zeros(40, np.float32)))
    devices = [Watched(), Watched()]
    split = gpu.bnn.prepare_split(signs, devices, schemes=CHEAP)
    good = RNG.standard_normal((7, 40)).astype(np.float32)
    bad = good.copy()
    bad[5, 3] = np.nan
    with pytest.raises(NotANumberError, match=r"images\[5, 3\] is nan"):
        split.run(bad)
    assert [device.users for device in devices] == [0, 0]
    same(split.run(good), reference.bnn.run(signs, good))


def test_ctrl_c_waits_for_the_threads(monkeypatch):
    devices = [Watched(), Watched()]
    split, given = gpu.bnn.prepare_split(network(), devices, schemes=CHEAP), images(4)
    calls = []

    def interrupted(running):
        calls.append(running)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return concurrent.futures.wait(running)

    monkeypatch.setattr(gpu.bnn.several, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        split.run(given)
    assert all(each.done() for each in calls[0])
    same(split.run(given), reference.bnn.run(network(), given))


@pytest.mark.at_most(2)
@pytest.mark.parametrize("devices", [1, 2, 3, 5])
def test_an_ensemble_has_the_sum_of_the_definition(devices):
    networks = [network(seed) for seed in range(3)]
    ensemble = gpu.bnn.prepare_ensemble(networks, devices=[Watched() for _ in range(devices)], schemes=CHEAP)
    assert [member.network for member in ensemble.members] == networks
    for pieces in (None, 2):
        given = images(4)
        expected = reference.bnn.run_ensemble(networks, given)
        same(ensemble.run(given, pieces=pieces), expected)
        np.testing.assert_array_equal(expected.members[1], reference.bnn.run(networks[1], given).logits)


def test_logits_are_added_in_the_order_of_the_networks():
    """In float32, where 2**24 + 1 + 1 is 2**24, and 1 + 1 + 2**24 is more."""
    zeros = [network(scale=0) for _ in range(3)]
    large, one, other = (
        Network("constant", zero.input, zero.layers, zero.scale, np.full(3, value, np.float32))
        for zero, value in zip(zeros, (2**24, 1, 1), strict=True)
    )
    given = images(1)
    for order, total in (((large, one, other), 2**24), ((one, other, large), 2**24 + 2)):
        expected = reference.bnn.run_ensemble(order, given)
        assert expected.logits.tolist() == [[total] * 3]
        same(gpu.bnn.run_ensemble(order, given, schemes=CHEAP, devices=[Device(), Device()]), expected)


def test_what_several_devices_cannot_do_is_refused():
    device = Device()
    with pytest.raises(SchemeError, match="names a device twice"):
        gpu.bnn.prepare_split(network(), [device, device])
    with pytest.raises(SchemeError, match="devices= is empty"):
        gpu.bnn.prepare_ensemble([network()], devices=[])
    for networks in ([], [network(classes=3), network(classes=4)]):
        for run in (reference.bnn.run_ensemble, gpu.bnn.run_ensemble):
            with pytest.raises(ShapeError, match="an ensemble of networks with"):
                run(networks, images(1))
    split = gpu.bnn.prepare_split(network(), [device], schemes=CHEAP)
    ensemble = gpu.bnn.prepare_ensemble([network()], devices=[device], schemes=CHEAP)
    for prepared in (split, ensemble):
        with pytest.raises(DtypeError, match="come from the host"):
            prepared.run(device.upload(images(2)))
        with pytest.raises(ShapeError, match="the network takes"):
            prepared.run(images(2)[:, :3])


# ---- the CUDA device, whose driver is replaced


class Context:
    """A context that notes which is current."""

    stack = []  # noqa: RUF012

    def __init__(self, ordinal):
        self.ordinal = ordinal

    def push(self):
        self.stack.append(self.ordinal)

    def pop(self):
        self.stack.pop()


def test_a_cuda_device_is_current_in_its_blocks_only(monkeypatch):
    monkeypatch.setattr(contexts, "primary", Context)
    monkeypatch.setattr(Context, "stack", [0])
    first, second = (CudaDevice.__new__(CudaDevice) for _ in range(2))
    first.ordinal, second.ordinal = 0, 1
    with second.current():
        assert Context.stack == [0, 1]
        with first.current():
            assert Context.stack == [0, 1, 0]
    with pytest.raises(ValueError, match="a fault"), second.current():
        raise ValueError("a fault")
    assert Context.stack == [0]
