"""Products and convolutions in a stream, and captured: their launches, memory and errors."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

import gpu
import reference
import simwarp
from gpu import host, recording
from gpu.bconv.prepared import Addends
from gpu.cuda import CudaDevice, capture, contexts
from gpu.cuda.graphs import BoundChain, BoundLaunch
from gpu.cuda.streams import InStream, TorchStream
from gpu.device import LaunchChain, LaunchPlan, Recorded, Wanted, is_foreign
from reference.errors import CaptureError, DtypeError, LaunchError, ShapeError
from simwarp.device import streams
from support.cuda_driver import cuda_kernel

__all__ = ["cuda_kernel"]


class Watched(simwarp.Device):
    """A device that notes the kernel and the stream of each launch."""

    def __init__(self):
        super().__init__()
        self.made = []

    def launch(self, plan, arrays, stream=None):
        self.made.append((plan.name, stream))
        super().launch(plan, arrays, stream)


@pytest.fixture
def device():
    return Watched()


def signs(*shape, seed=0):
    return np.random.default_rng(seed).choice(np.array([-1, 1], np.int8), shape)


A, B = signs(3, 40), signs(40, 5, seed=1)
X, W = signs(1, 3, 3, 40), signs(2, 2, 40, 5, seed=1)
LIMITS = np.arange(5, dtype=np.int32)
CALLS = {
    "bmm": (gpu.bmm, ("a", A), ("b", B), reference.bmm(A, B)),
    "bconv2d": (gpu.bconv2d, ("x", X), ("w", W), reference.bconv2d(X, W)),
}


def rule(device):
    return {"thresholds": device.upload(LIMITS), "flip": device.upload((LIMITS % 2).astype(np.uint8))}


def expected_bits(name, dots):
    flip = LIMITS % 2 == 1
    if name == "bmm":
        return reference.threshold(dots, LIMITS, flip, first="lsb").words
    return reference.threshold_tensor(dots, LIMITS, flip).words


@pytest.mark.parametrize("name", CALLS)
def test_all_launches_of_a_call_are_in_its_stream(device, name):
    call, (_, left), (_, right), expected = CALLS[name]
    stream = device.stream()
    np.testing.assert_array_equal(call(left, right, device=device, stream=stream), expected)
    assert len(device.made) >= 3
    assert {used for _, used in device.made} == {stream}
    device.made.clear()
    y = call(device.upload(left), device.upload(right), stream=device.default_stream, **rule(device))
    np.testing.assert_array_equal(y.words.download(), expected_bits(name, expected))
    assert {used for _, used in device.made} == {device.default_stream}
    device.made.clear()
    call(left, right, device=device)
    assert {used for _, used in device.made} == {None}


@pytest.mark.at_most(1)
@pytest.mark.parametrize("name", CALLS)
def test_a_repeated_call_in_a_stream_is_one_launch(device, name):
    call, *roles, expected = CALLS[name]
    operands = [gpu.prepare(x, role, device=device) for role, x in roles]
    call(*operands)
    for stream in (device.stream(), device.stream()):
        for more in ({}, rule(device)):
            call(*operands, **more)
            device.made.clear()
            y = call(*operands, stream=stream, **more)
            assert [used for _, used in device.made] == [stream]
            found = y.words.download() if more else y.download()
            np.testing.assert_array_equal(found, expected_bits(name, expected) if more else expected)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("form", ["host", "prepared", "recorded"])
def test_a_stream_of_another_device_is_refused(device, name, form):
    call, *roles, _ = CALLS[name]
    operands = [x if form == "host" else gpu.prepare(x, role, device=device) for role, x in roles]
    if form == "recorded":
        call(*operands)
    with pytest.raises(LaunchError, match=r"of another device\nthe call is for simwarp.*\nmake the stream"):
        call(*operands, device=device, stream=simwarp.Device().stream())
    for wrong in (5, streams.Event(), "default"):
        with pytest.raises(DtypeError, match=r"stream= is a (int|Event|str)\n.*\n"):
            call(*operands, device=device, stream=wrong)


@pytest.mark.at_most(2)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("with_rule", [False, True])
def test_a_captured_call_is_one_launch(device, name, with_rule):
    call, *roles, dots = CALLS[name]
    operands = [gpu.prepare(x, role, device=device) for role, x in roles]
    more = rule(device) if with_rule else {}
    call(*operands, **more)
    expected = expected_bits(name, dots) if with_rule else dots
    for stream in (None, device.stream()):
        device.made.clear()
        with device.capture() as graph:
            y = call(*operands, stream=stream, **more)
        assert [used for _, used in device.made] == [None]
        y = y.words if with_rule else y
        assert y.unwritten().all()
        for launched_in in (None, stream):
            graph.launch(launched_in)
            np.testing.assert_array_equal(y.download(), expected)
            y.upload(np.zeros(y.shape, y.dtype))


@pytest.mark.parametrize("name", CALLS)
def test_the_first_call_of_its_kind_may_be_captured(device, name):
    """What it made in the capture, the border's addends of filters too, is there in no later call."""
    call, *roles, expected = CALLS[name]
    operands = [gpu.prepare(x, role, device=device) for role, x in roles]
    with device.capture() as graph:
        y = call(*operands)
    np.testing.assert_array_equal(call(*operands).download(), expected)
    for _ in range(2):
        graph.launch()
        np.testing.assert_array_equal(y.download(), expected)
        y.upload(np.zeros(y.shape, y.dtype))


def test_a_graph_reads_its_operands_at_each_launch(device):
    a, b = gpu.prepare(A, "a", device=device), gpu.prepare(B, "b", device=device)
    other = gpu.prepare(-A, "a", device=device)
    with device.capture() as graph:
        y = gpu.bmm(a, b)
    for mine, theirs in zip(a.arrays, other.arrays, strict=True):
        mine.upload(theirs.download())
    graph.launch()
    np.testing.assert_array_equal(y.download(), reference.bmm(-A, B))


@pytest.mark.parametrize("name", CALLS)
def test_operands_that_must_be_packed_or_copied_are_refused_in_a_capture(device, name):
    call, (role, left), (_, right), _ = CALLS[name]
    ready = gpu.prepare(left, role, device=device)
    on_device = device.upload(right)
    for more in ({}, {"thresholds": LIMITS}):
        for second, what in ((right, "an upload of"), (on_device, "an (operand is packed|upload of thre)")):
            with pytest.raises(CaptureError, match=f"{what}.* in a capture"), device.capture():
                call(ready, second, **more)


class Tensor:
    """A torch tensor on a GPU, as far as a call looks at it, of an array of the device."""

    __module__, is_cuda, layout, requires_grad = "torch", True, "strided", False

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def is_neg(self):
        return False

    def is_contiguous(self):
        return True

    def data_ptr(self):
        return self.array.pointer

    def get_device(self):
        return 0


DEFAULTS = {
    "bmm": lambda x, w, a, b: gpu.bmm(a, b),
    "bconv2d": lambda x, w, a, b: gpu.bconv2d(x, w),
    "prepare a": lambda x, w, a, b: gpu.prepare(a, "a"),
    "prepare x": lambda x, w, a, b: gpu.prepare(x, "x"),
    "pack": lambda x, w, a, b: gpu.pack(a),
    "pack_tensor": lambda x, w, a, b: gpu.pack_tensor(x, layout="NHWC"),
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_torchs_current_stream_is_the_default_of_torch_tensors(device, monkeypatch, name):
    tensors, stream = [Tensor(device.upload(each)) for each in (X, W, A, B)], device.stream()
    device.ordinal = 0  # as a CUDA device has
    monkeypatch.setattr(device, "adopt", lambda tensor: tensor.array)
    monkeypatch.setattr(gpu.cuda.views, "_strided", lambda: "strided")
    monkeypatch.setattr(recording, "in_current_stream_of_torch", lambda device: device.in_stream(stream))
    monkeypatch.setattr(
        host, "torch_stream_of", lambda first, *_: stream if isinstance(first, Tensor) else None
    )
    monkeypatch.setattr(host, "default_device", lambda: device)
    monkeypatch.setattr(recording, "default_device", lambda: device)
    DEFAULTS[name](*tensors)
    assert device.made
    assert {used for _, used in device.made} == {stream}


# ---- the CUDA device, whose driver is replaced


class Pool:
    """A pool that gives addresses one after another; those that were given back are noted."""

    def __init__(self):
        self.given = 0

    def allocate(self, size):
        self.given += 1
        return 4096 * self.given

    def stop_holding(self):
        pass

    def free_held(self):
        pass


STREAMS = {16: (0, 101), 32: (0, 102), 48: (1, 103)}
"""Address of each stream → its device and its number."""


@pytest.fixture
def cuda(cuda_kernel, monkeypatch):
    """A CUDA device of replaced drivers; ``captured`` has the addresses of streams that others capture."""
    kernel, driver = cuda_kernel()
    captured, copies, modes, ok = set(), [], [], driver.success
    unknown = driver.real.CUresult.CUDA_ERROR_INVALID_HANDLE
    driver.calls |= {
        "cuStreamGetDevice": lambda q: (ok, STREAMS[int(q)][0]) if int(q) in STREAMS else (unknown, 0),
        "cuStreamGetId": lambda q: (ok, STREAMS[int(q)][1]),
        "cuStreamIsCapturing": lambda q: (ok, int(q) in captured),
        "cuMemcpyHtoDAsync": lambda *args: (copies.append(args), (ok,))[1],
        "cuGraphExecKernelNodeSetParams": lambda *_: (ok,),
        "cuGraphLaunch": lambda _, queue: (driver.launched.append(int(queue)), (ok,))[1],
        "cuThreadExchangeStreamCaptureMode": lambda mode: (modes.append(mode), (ok, "before"))[1],
    }
    monkeypatch.setattr(
        contexts, "driver", lambda: SimpleNamespace(DeviceMemoryPool=Pool, MemoryError=OSError)
    )
    monkeypatch.setattr(contexts, "pools", lambda _: pools)
    monkeypatch.setattr(contexts, "current", nullcontext)
    pools = {}
    device = CudaDevice.__new__(CudaDevice)
    device.ordinal, device.plans, device._held, device._pool, device._scratches = 0, {}, {}, Pool(), {}
    device._device = SimpleNamespace(name=lambda: "a chip")
    plan = LaunchPlan("", "f", (7, 1, 1), (32, 1, 1), ())
    plan.bound = BoundChain([BoundLaunch(kernel, plan)])
    return SimpleNamespace(
        device=device, driver=driver, captured=captured, copies=copies, pools=pools, plan=plan, modes=modes
    )


def queues(cuda):
    """The streams of the launches, as graphs or one by one."""
    return [
        int(getattr(call, "hStream", call))
        for call in (c[0] if type(c) is tuple else c for c in cuda.driver.launched)
    ]


SPELLED = {
    "PyCUDA": SimpleNamespace(handle=16),
    "CuPy": SimpleNamespace(ptr=16),
    "torch": SimpleNamespace(cuda_stream=16),
    "the protocol": SimpleNamespace(__cuda_stream__=lambda: (0, 16)),
    "an address": np.int64(16),
}


@pytest.mark.parametrize("how", SPELLED)
def test_cuda_streams_of_every_library_are_taken(cuda, how):
    there = cuda.device.in_stream(SPELLED[how])
    assert (there.queue, there.ordinal) == (101, 0)
    there.launch(cuda.plan, ())
    cuda.device.launch(cuda.plan, ())
    assert queues(cuda) == [16, 0]


def test_cuda_streams_that_cannot_be_used_are_refused(cuda):
    for wrong in ("16", 1.0, True, None.__class__):
        with pytest.raises(DtypeError, match=r"stream= is a \w+\n.*\n"):
            cuda.device.in_stream(wrong)
    with pytest.raises(DtypeError, match=r"0x40\nthe driver knows no such stream \(CUDA_ERROR_INVALID"):
        cuda.device.in_stream(64)
    with pytest.raises(LaunchError, match=r"of CUDA device 1\nthe call is for CUDA device 0, a chip\n"):
        cuda.device.in_stream(48)


def test_the_default_stream_and_a_capture_of_ours_need_no_stream(cuda, monkeypatch):
    assert all(cuda.device.in_stream(address) is cuda.device for address in (0, 1))
    monkeypatch.setattr(capture.CAPTURES, "graph", capture.CudaGraph())
    assert cuda.device.capturing
    assert cuda.device.in_stream(16) is cuda.device


def test_cuda_memory_of_a_stream_is_of_its_own_pool(cuda):
    first, second = cuda.device.in_stream(16), cuda.device.in_stream(32)
    for there in (first, second, first):
        assert there.allocate((3,), np.int32).queue == there.queue
    assert {number: pool.given for number, pool in cuda.pools.items()} == {101: 2, 102: 1}
    assert cuda.device.allocate((3,), np.int32).queue == 0
    array = first.upload(np.arange(3, dtype=np.int32), "x")
    assert array.view((12,), np.uint8).queue == 101
    assert [(to, size, int(queue)) for to, _, size, queue in cuda.copies] == [(array.pointer, 12, 16)]


def test_cuda_arrays_of_other_streams_are_held_until_the_next_synchronisation(cuda):
    there = cuda.device.in_stream(16)
    mine, other = there.allocate((3,), np.int32), cuda.device.allocate((3,), np.int32)
    plan = LaunchPlan("", "f", (1, 1, 1), (32, 1, 1), ())
    plan.bound = lambda *_, **__: None
    there.launch(plan, (mine, other, bytes(4)))
    assert list(cuda.device._held.values()) == [other.pointer]
    there.launch_all(plan_chain(plan), [(mine,), (other, mine)])
    assert list(cuda.device._held.values()) == [other.pointer]


def plan_chain(plan):
    chain = LaunchChain((plan, plan))
    chain.bound = plan.bound
    return chain


def recorded(launched, workspace=(100,), *, cooperative=False):
    """A recorded call of one array with a workspace and two results, whose launches are noted."""
    plan = LaunchPlan("", "f", (1, 1, 1), (32, 1, 1), (None,) * 4, cooperative=cooperative)
    wanted = [Wanted((size,), np.dtype(np.uint8), "") for size in workspace]
    results = [Wanted((3,), np.dtype(np.int32), ""), Wanted((5,), np.dtype(np.int64), "")]
    numbers = [[0, 1, len(wanted) + 1, len(wanted) + 2]]
    call = Recorded(wanted, results, LaunchChain((plan,)), numbers, [], packs=False, finish=None)
    call.chain.bound = SimpleNamespace(launch=lambda given, queue: launched.append((given, int(queue))))
    return call


def call_with(*arrays):
    return recording.Call((), None, list(arrays), [getattr(x, "pointer", x) for x in arrays])


def test_a_recorded_call_has_scratch_memory_of_its_stream_and_new_results(cuda):
    launched = []
    small, large = recorded(launched), recorded(launched, (100, 300))
    first, second = cuda.device.in_stream(16), cuda.device.in_stream(32)
    scratch = []
    for there, call in ((first, small), (first, small), (first, large), (first, small), (second, small)):
        one, other = there.repeat(call, call_with(64))
        given, queue = launched[-1]
        assert given == (64, given[1], one.pointer, other.pointer)
        assert other.pointer == one.pointer + 256  # in one piece of memory
        assert (one.shape, other.shape, one.queue, queue) == ((3,), (5,), there.queue, int(there.handle))
        scratch.append(given[1])
    assert scratch[0] == scratch[1] != scratch[2] == scratch[3]
    assert len({given[2] for given, _ in launched[:4]}) == 4
    cuda.device.trim()
    assert cuda.device._scratches == {}


def test_small_results_in_the_default_stream_share_an_allocation_of_torchs(cuda):
    asked = []

    def empty(size, **_):
        asked.append(size)
        return SimpleNamespace(data_ptr=lambda: 4096 * len(asked), numel=lambda: size)

    torch = SimpleNamespace(empty=empty, uint8="uint8", device=lambda *_: "cuda:0")
    there = cuda.device.default_of_torch = streams_of_torch(cuda.device, torch)
    call = recorded([])
    results = [there.repeat(call, call_with(64))[0] for _ in range(33)]
    assert len(asked) == 2
    assert len({x.pointer for x in results}) == 33
    assert all(x.pointer % 256 == 0 for x in results)
    assert {id(x.memory.tensor) for x in results[:32]} == {id(results[0].memory.tensor)}
    large = recorded([])
    large.nbytes = (1 << 16) + 1
    for _ in range(2):
        there.repeat(large, call_with(64))
    assert asked[2:] == [large.nbytes] * 2


def streams_of_torch(device, torch):
    return InStream(device, TorchStream(0), 0, 0, torch, False)


def test_the_default_stream_waits_for_torchs_when_it_takes_a_tensor(cuda, monkeypatch):
    ordered, ok = [], cuda.driver.success
    cuda.driver.calls |= {
        "cuEventCreate": lambda _: (ok, 7),
        "cuEventDestroy": lambda _: (ok,),
        "cuEventRecord": lambda _, queue: (ordered.append(("record", int(queue))), (ok,))[1],
        "cuStreamWaitEvent": lambda queue, *_: (ordered.append(("wait", int(queue))), (ok,))[1],
    }
    monkeypatch.setattr(cuda.device, "adopted", lambda x: x)
    stream = TorchStream(16)
    monkeypatch.setattr("gpu.cuda.device.torch_stream_of", lambda _: stream)
    cuda.device.adopt("tensor")
    assert ordered == [("record", 16), ("wait", 0)]
    cuda.device.in_stream(16).after_default()
    assert ordered[2:] == [("record", 0), ("wait", 16)]
    cuda.captured.add(16)
    cuda.device.adopt("tensor")
    stream = TorchStream(0)
    cuda.device.adopt("tensor")
    assert len(ordered) == 4


def test_a_cooperative_call_has_a_workspace_of_its_own(cuda):
    """Its launches are made one by one, so that those of another thread may come between."""
    launched, there = [], cuda.device.in_stream(16)
    call = recorded(launched, cooperative=True)
    for _ in range(3):
        there.repeat(call, call_with(64))
    assert len({given[1] for given, _ in launched}) == 3


def test_scratch_memory_is_kept_for_few_streams(cuda, monkeypatch):
    call = recorded([])
    for number in range(20):
        monkeypatch.setitem(STREAMS, 1024 + number, (0, 500 + number))
        cuda.device.in_stream(1024 + number).repeat(call, call_with(64))
    assert 0 < len(cuda.device._scratches) <= 8


def test_a_recorded_call_holds_arrays_of_other_streams(cuda):
    there = cuda.device.in_stream(16)
    mine, other = there.allocate((3,), np.int32), cuda.device.allocate((3,), np.int32)
    call = recorded([])
    there.repeat(call, call_with(mine))
    assert cuda.device._held == {}
    there.repeat(call, call_with(other))
    assert list(cuda.device._held.values()) == [other.pointer]


def array_at(pointer, nbytes=64):
    return SimpleNamespace(pointer=pointer, nbytes=nbytes, shape=(16,), dtype=np.dtype(np.float32))


def test_a_graph_is_recorded_with_its_own_arrays_as_constants():
    images, weights, between, result = (array_at(1024 * n) for n in (1, 2, 3, 4))
    plan, alone = (
        LaunchPlan("", "f", (1, 1, 1), (32, 1, 1), (None, None), cooperative=c) for c in (False, True)
    )
    launches = [(plan, (images, between)), (plan, (weights, between)), (plan, (between, result))]
    call = recording.Call("key", None, [images.pointer], [images.pointer])

    def recorded_of(launches):
        graph = SimpleNamespace(plans=launches)
        return recording.recorded_graph(graph, call, images, (result,), tuple)

    found = recorded_of(launches)
    given = found.pick([7, 8, *found.addresses])  # other images, and another result
    assert given == (7, between.pointer, weights.pointer, between.pointer, between.pointer, 8)
    assert found.chain.settled == {1}  # its arrays are the same in each run
    part = array_at(result.pointer + 32, 32)
    for other in (None, [], [(alone, (images, result))], [*launches, (plan, (part, between))]):
        assert recorded_of(other) is None
    assert recorded_of([(plan, (images, bytes(8)))]) is None


OPERANDS = {
    "dense": ({}, True),
    "of another layout": ({"layout": "sparse"}, False),
    "with a gradient": ({"requires_grad": True}, False),
    "negated when read": ({"is_neg": lambda: True}, False),
    "with gaps": ({"is_contiguous": lambda: False}, False),
    "of another GPU": ({"get_device": lambda: 1}, False),
    "of the host": ({"get_device": lambda: -1}, False),
    "without memory": ({"data_ptr": lambda: 0}, False),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_a_recorded_call_takes_dense_tensors_of_its_device_alone(cuda, monkeypatch, name):
    changed, taken = OPERANDS[name]
    monkeypatch.setattr(gpu.cuda.views, "_strided", lambda: "strided")
    monkeypatch.setattr(recording, "in_current_stream_of_torch", lambda device: device)
    tensor = Tensor(cuda.device.allocate((3, 4), np.float32))
    vars(tensor).update(changed)
    call = recording.call_of(("f",), (tensor, None), cuda.device, None)
    assert (call is not None) == taken
    if call is not None:
        assert call.pointers == [tensor.array.pointer]


def test_calls_of_other_kinds_have_other_keys(cuda, monkeypatch):
    monkeypatch.setattr(gpu.cuda.views, "_strided", lambda: "strided")
    monkeypatch.setattr(recording, "in_current_stream_of_torch", lambda device: device)
    arrays = {
        "of three rows": cuda.device.allocate((3, 4), np.float32),
        "of four rows": cuda.device.allocate((4, 3), np.float32),
        "of half numbers": cuda.device.allocate((3, 4), np.float16),
    }
    arrays["not at 16 bytes"] = cuda.device.allocate((16, 4), np.float32).view((3, 4), offset=4)
    one = cuda.device.allocate((3, 4), np.float32)
    pairs = [(one, x) for x in arrays.values()] + [(one, one), (one, None), (None, one)]
    keys = [recording.call_of(("f",), pair, cuda.device, None).key for pair in pairs]
    keys.append(recording.call_of(("g",), (one, None), cuda.device, None).key)
    assert len(set(keys)) == len(keys)
    alike = recording.call_of(("f",), (arrays["of three rows"], one), cuda.device, None)
    assert alike.key == keys[0]


def test_a_call_in_a_captured_cuda_stream_keeps_its_arrays_with_its_result(cuda):
    cuda.captured.add(16)
    there = cuda.device.in_stream(16)
    assert there.capturing
    operand, between = cuda.device.allocate((3,), np.int32), there.allocate((3,), np.int32)
    there.launch_all(plan_chain(cuda.plan), [(), ()])
    there._hold((operand, between))
    result = there.allocate((3,), np.int32)
    assert queues(cuda) == [16]  # the kernel, and no graph in a capture
    assert type(cuda.driver.launched[0]) is tuple
    assert all(x in result.together for x in (operand, between))
    assert cuda.device._held == {}
    assert cuda.modes  # allocations are allowed to this thread, and forbidden again
    assert cuda.modes.count("before") == len(cuda.modes) / 2
    with pytest.raises(CaptureError, match="an upload of x in a capture"):
        there.upload(np.zeros(3), "x")


def test_addends_that_another_stream_makes_are_waited_for_once():
    waits = []
    maker, other = (SimpleNamespace(queue=n, wait=lambda n=n: waits.append(n)) for n in (1, 2))
    kept = Addends("array", maker)
    assert [kept.on(device) for device in (maker, other, other, maker)] == ["array"] * 4
    assert waits == [1]


def test_a_stream_that_others_capture_is_not_asked_for_its_device(cuda):
    """The driver refuses the questions, and the capture would be spoiled."""
    cuda.captured.add(16)
    for name in ("cuStreamGetDevice", "cuStreamGetId"):
        cuda.driver.calls[name] = lambda _: pytest.fail("asked")
    assert cuda.device.in_stream(16).queue == -16


def test_a_tensor_that_requires_a_gradient_is_refused(cuda):
    with pytest.raises(DtypeError, match=r"SimpleNamespace\) requires a gradient.*\ndetach it"):
        cuda.device.adopt(SimpleNamespace(requires_grad=True))


def test_a_tensor_that_does_not_say_where_it_lies_is_foreign():
    class Tensor:
        @property
        def __cuda_array_interface__(self):
            raise RuntimeError("Variable that requires grad")

    assert is_foreign(Tensor())
    assert not is_foreign(np.ones(3))


FOREIGN = {
    "taken": ({}, None),
    "of another device": (
        {"device_id": 1},
        r"on CUDA device 1\nthe call is for CUDA device 0\n.*CudaDevice\(1\)",
    ),
    "misaligned": (
        {"ptr": 4098},
        r"begins at address 0x1002\nkernels load float32 from multiples of 4 bytes",
    ),
    "not contiguous": ({"strides": (1, 5)}, r"not contiguous\n.*\n.*contiguous\(\)"),
    "of unknown elements": ({"dtype": "bfloat17"}, r"cannot be taken: data type 'bfloat17' .*\n.*detach"),
}


@pytest.mark.parametrize("how", FOREIGN)
def test_foreign_device_arrays_are_taken_as_they_are_or_refused(cuda, monkeypatch, how):
    facts, message = FOREIGN[how]
    view = {"ptr": 4096, "shape": (5, 4), "strides": None, "dtype": "float32", "device_id": 0} | facts
    viewer = SimpleNamespace(from_any_interface=lambda *_, **__: SimpleNamespace(**view))
    monkeypatch.setitem(sys.modules, "cuda.core", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cuda.core.utils", SimpleNamespace(StridedMemoryView=viewer))
    if message is None:
        array = cuda.device.in_stream(16).adopt(view)
        assert (array.pointer, array.shape, array.dtype, array.queue) == (4096, (5, 4), np.float32, 101)
        return
    with pytest.raises((DtypeError, ShapeError), match=message):
        cuda.device.adopt(view)
