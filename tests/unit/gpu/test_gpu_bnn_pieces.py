"""Networks fed from the host: pieces that overlap, on devices whose streams go in any order they may."""

import itertools

import numpy as np
import pytest

import gpu.bnn
import gpu.bnn.network
import gpu.bnn.pieces
import reference.bnn
import simwarp.device.module
from reference import DtypeError, NotANumberError, SchemeError, ShapeError, pack
from reference.bnn import Dense, Network, Pixels, Signs
from simwarp import Device
from simwarp.faults import KernelFault
from support import lazy_device
from support.lazy_device import LazyDevice
from support.python_calls import calls_of

RNG = np.random.default_rng(8)
CHEAP = {"Dense": "bmm32"}
WEIGHTS = pack(RNG.choice(np.array([-1, 1], np.int8), (70, 5)), layout="row")
LOGITS = RNG.standard_normal((2, 5)).astype(np.float32)
PIXELS = Network(
    "pixels", Pixels((70,), np.ones(70, np.int32), np.full(70, -9, np.int32)), (Dense(WEIGHTS),), *LOGITS
)
SIGNS = Network("signs", Signs((70,), np.zeros(70, np.float32)), (Dense(WEIGHTS),), *LOGITS)
ORDERS = list(itertools.permutations(range(3)))


def images(count):
    return RNG.integers(0, 256, (count, 70), dtype=np.uint8)


def prepared_on(device, network=PIXELS):
    return gpu.bnn.prepare(network, schemes=CHEAP, device=device)


def same(answer, given, network=PIXELS):
    for got, wanted in zip(answer, reference.bnn.run(network, given), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.singly
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("eager", [False, True])
def test_pieces_give_the_answer_in_every_order_of_streams(order, eager):
    device = LazyDevice(order, eager=eager)
    prepared = prepared_on(device)
    for pieces in (4, 1, 4, 4):  # 3 images and, of the last one, 1: launched, captured, as graphs
        given = images(10)
        same(prepared.run(given, pieces=pieces), given)
        assert device.idle


def test_a_piece_comes_while_another_runs():
    device = LazyDevice((1, 0, 2))
    prepared = prepared_on(device)
    prepared.run(images(8), pieces=4)
    device.done.clear()
    given = images(8)
    same(prepared.run(given, pieces=4), given)
    kinds = [kind for _, kind in device.done if kind in ("there", "launch", "back")]
    assert kinds[:3] == ["there"] * gpu.bnn.pieces.AT_ONCE
    assert kinds.count("there") == 4


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("forgotten", ["came.wait", "ran.wait", "returned.synchronize"])
def test_a_wait_that_is_forgotten_shows(forgotten, monkeypatch):
    """On a device that does what no wait forbids, a kernel reads what is not there, or the host does."""
    event, method = forgotten.split(".")
    honest = gpu.bnn.pieces._Place.__init__

    def forgetful(self, *args):
        honest(self, *args)
        setattr(getattr(self, event), method, lambda stream=None: None)

    monkeypatch.setattr(gpu.bnn.pieces._Place, "__init__", forgetful)
    wrong = 0
    for order in ORDERS:
        given = images(8)
        try:
            same(prepared_on(LazyDevice(order)).run(given, pieces=4), given)
        except (AssertionError, KernelFault):
            wrong += 1
    assert wrong


def test_a_copy_waits_for_what_had_its_memory_before():
    """Memory of the device's stream is used again behind its work only."""
    device = LazyDevice((1, 2, 0))
    prepared = prepared_on(device)
    there = device.upload(images(2))
    device.synchronize()
    prepared.run(there)
    device.done.clear()
    given = images(3)
    same(prepared.run(given), given)
    kinds = [kind for _, kind in device.done]
    assert kinds.index("launch") < kinds.index("there")


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("pinned", [False, True])
def test_images_that_are_not_page_locked_are_copied_before(pinned):
    device = LazyDevice((0, 1, 2), pinned_memory=pinned)
    prepared = prepared_on(device)
    for given in (images(7), images(14)[::2], images(7).copy("F")):
        same(prepared.run(given, pieces=3), given)
    given = images(4)
    answers = prepared.stream(each for each in (given[:2], given[2:], given[2:], given[2:]))
    before = given.copy()
    parts = itertools.islice(answers, 0, 2)
    same(next(parts), before[:2])
    places = prepared._pieces._places.values()
    assert any(place.staged is not None for place in places)  # those in another order in memory
    assert all(place.staged is not None for place in places) == (not pinned)


def test_floats_of_another_byte_order_are_converted():
    given = RNG.standard_normal((5, 70)).astype(np.float32)
    same(prepared_on(Device(), SIGNS).run(given.astype(">f4"), pieces=2), given, SIGNS)


class Stopped(LazyDevice):
    """A device whose user presses Ctrl-C at some work; or which fails there."""

    def __init__(self, error, **options):
        super().__init__((2, 1, 0), **options)
        self.left, self.error = None, error

    def queue_work(self, *args, **options):
        super().queue_work(*args, **options)
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                raise self.error


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("a fault")])
def test_what_ends_a_run_leaves_nothing_on_its_way(error):
    device = Stopped(error)
    prepared, given = prepared_on(device), images(7)
    stops = itertools.count(1, 5)
    for stop in stops:
        device.left = stop
        try:
            prepared.run(given, pieces=4)
        except type(error):
            device.left = None
            assert device.idle
            assert not prepared._pieces._taken
            same(prepared.run(given[::-1], pieces=2), given[::-1])
        else:
            break
    device.left = None
    assert stop > 30  # all of a run's work was a place to stop


def test_a_stream_answers_batch_after_batch():
    prepared = prepared_on(LazyDevice())
    batches = [images(count) for count in (2, 1, 2, 3, 2, 2, 1)]
    answers = list(prepared.stream(batches))
    assert len(answers) == len(batches)
    for answer, batch in zip(answers, batches, strict=True):
        same(answer, batch)
    assert list(prepared.stream([])) == []


@pytest.mark.slow
def test_a_stream_has_no_end_and_others_may_run_meanwhile():
    device = LazyDevice((2, 0, 1))
    prepared, taken = prepared_on(device), []

    def endless():
        while True:
            taken.append(images(2))
            yield taken[-1]

    answers = prepared.stream(endless())
    for number in range(7):
        same(next(answers), taken[number])
        assert len(taken) == number + gpu.bnn.pieces.AT_ONCE
        other = images(2)
        same(prepared.run(other), other)
    answers.close()
    assert device.idle
    assert not prepared._pieces._taken


def test_a_batch_of_a_stream_that_is_refused_ends_it():
    device = LazyDevice()
    prepared = prepared_on(device)
    for bad, error, text in (
        (images(2)[:, :3], ShapeError, "the network takes"),
        (device.upload(images(2)), DtypeError, "batches of a stream come from the host"),
    ):
        answers = prepared.stream([images(2), images(1), bad])
        with pytest.raises(error, match=text):
            list(answers)
        assert device.idle
        assert not prepared._pieces._taken


@pytest.mark.at_most(1)
@pytest.mark.parametrize("at", [0, 4, 8])
def test_a_nan_of_a_piece_is_refused_by_its_place_among_all(at):
    device = LazyDevice()
    prepared = prepared_on(device, SIGNS)
    good = RNG.standard_normal((9, 70)).astype(np.float32)
    bad = good.copy()
    bad[at, 3] = np.nan
    with pytest.raises(NotANumberError, match=rf"images\[{at}, 3\] is nan"):
        prepared.run(bad, pieces=4)
    assert device.idle
    same(prepared.run(good, pieces=4), good, SIGNS)


def test_a_nan_of_an_array_of_the_device_is_reported_before_pieces_run():
    device = Device()
    prepared = prepared_on(device, SIGNS)
    good = np.ones((3, 70), np.float32)
    bad = good.copy()
    bad[1, 2] = np.nan
    prepared.run(device.upload(bad))
    with pytest.raises(NotANumberError, match=r"images\[1, 2\] is nan"):
        prepared.run(good)
    same(prepared.run(good), good, SIGNS)


def test_pieces_have_a_size(monkeypatch):
    prepared, sizes = prepared_on(Device()), []
    monkeypatch.setattr(gpu.bnn.network, "PIECE", 70 * 4)
    for count, pieces in ((4, None), (5, None), (9, None), (9, 2), (9, 9), (9, 100), (1, 3)):
        sizes.append(prepared._size_of_pieces(images(count), pieces))
    assert sizes == [4, 3, 3, 5, 1, 1, 1]
    monkeypatch.setattr(gpu.bnn.network, "LARGEST", 70 * 6)
    assert [prepared._size_of_pieces(images(count), 1) for count in (6, 7)] == [6, 2]
    for wrong in (0, -1, 2.0, "2"):
        with pytest.raises(SchemeError, match="pieces="):
            prepared.run(images(2), pieces=wrong)
    with pytest.raises(SchemeError, match="images on the device run in one piece"):
        prepared.run(prepared.device.upload(images(2)), pieces=2)


@pytest.mark.gate
def test_few_buffers_are_kept():
    prepared = prepared_on(Device())
    for count in range(1, 12):
        given = images(count)
        same(prepared.run(given, pieces=3), given)
    assert len(prepared._pieces._places) == gpu.bnn.pieces.MOST_KEPT


def test_the_lazy_device_sees_streams_that_wait_for_ever():
    device = LazyDevice()
    first, second = device.event(), lazy_device.LazyEvent(device)
    stream = device.stream(independent=True)
    second.happened = []
    second.wait(stream)
    first.record(stream)
    with pytest.raises(AssertionError, match="for ever"):
        first.synchronize()


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.slow_cases("*-whole")
@pytest.mark.parametrize(("network", "way"), [(PIXELS, "layers"), (SIGNS, "layers"), (PIXELS, "whole")])
def test_the_first_run_of_a_prepared_number_of_images_only_launches(network, way):
    schemes = CHEAP if way == "layers" else None
    simwarp.device.module._text.cache_clear()  # parsed kernels, which all devices share
    prepared = gpu.bnn.prepare(network, way=way, schemes=schemes, images=5, device=Device())
    given = images(5)
    first = calls_of(lambda: same(prepared.run(given), given, network))
    warm = calls_of(lambda: same(prepared.run(given), given, network))
    assert first <= 1.2 * warm
    unprepared = gpu.bnn.prepare(network, way=way, schemes=schemes, device=Device())
    simwarp.device.module._text.cache_clear()
    assert calls_of(lambda: unprepared.run(given)) > 1.5 * warm


@pytest.mark.slow
def test_every_piece_of_a_prepared_number_of_images_is_captured(monkeypatch):
    monkeypatch.setattr(gpu.bnn.network, "PIECE", 70 * 3)
    device = LazyDevice((0, 1, 2))
    prepared = gpu.bnn.prepare(PIXELS, schemes=CHEAP, images=14, device=device)
    assert device.idle
    monkeypatch.setattr(prepared._way, "run", None)  # what launches without a graph
    for _ in range(2):
        given = images(14)
        same(prepared.run(given), given)


@pytest.mark.parametrize("count", [0, -1, 2.0, "3", True])
def test_a_number_of_images_that_is_not_one_is_refused(count):
    with pytest.raises(ShapeError, match=r"images=.*\nit is the number of images that a run will have\n"):
        gpu.bnn.prepare(PIXELS, images=count, device=Device())
