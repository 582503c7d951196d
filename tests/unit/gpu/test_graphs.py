"""Captured launches: what they do when the graph is launched, and what a capture refuses, on both devices."""

from __future__ import annotations

import gc
import struct
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import simwarp
from gpu.cuda import capture as cuda_capture
from gpu.cuda.graphs import BoundChain, BoundLaunch
from gpu.device import LaunchChain, LaunchPlan
from reference.devices.tensor_map import TensorMap
from reference.errors import CaptureError, LaunchError
from simwarp.faults import DependentAccess, OutOfBounds, UseAfterFree
from support.cuda_driver import cuda_kernel
from support.small_kernels import text

__all__ = ["cuda_kernel"]

DOUBLE = text("ld.global.u32 %r2, [%at]; add.u32 %r2, %r2, %r2; st.global.u32 [%at], %r2; ret;")
INCREASE = text("ld.global.u32 %r2, [%at]; add.u32 %r2, %r2, 1; st.global.u32 [%at], %r2; ret;")

QUEUE = 77
"""The captured stream of the replaced driver."""


@pytest.fixture
def device():
    return simwarp.Device()


@pytest.fixture
def x(device):
    return device.upload(np.arange(32, dtype=np.uint32), "x")


def kernels(device):
    return (device.load(ptx).kernel("k") for ptx in (DOUBLE, INCREASE))


def test_captured_launches_are_made_when_the_graph_is_launched(device, x):
    double, increase = kernels(device)
    with device.capture() as graph:
        double(1, 32, x, x)
        increase(1, 32, x, x)
        double(1, 32, x, x)
    assert x.download().tolist() == list(range(32))
    expected = np.arange(32)
    for stream in (None, device.stream()):
        graph.launch(stream)
        expected = (2 * expected + 1) * 2
        assert x.download().tolist() == expected.tolist()


def test_arguments_are_those_of_the_capture(device, x):
    kernel = device.load(text("ld.param.u32 %r2, [in]; st.global.u32 [%at], %r2; ret;")).kernel("k")
    number = np.array(3)
    with device.capture() as graph:
        kernel(1, 32, x, number)
    number[()] = 4
    graph.launch()
    assert x.download().tolist() == [3] * 32


def test_a_graph_of_no_launches_does_nothing(device, x):
    with device.capture() as graph:
        pass
    graph.launch()
    assert x.download().tolist() == list(range(32))


def test_plans_and_graphs_are_captured_too(device, x):
    _, increase = kernels(device)
    plan = LaunchPlan(DOUBLE, "k", (1, 1, 1), (32, 1, 1), (None, None))
    with device.capture() as inner:
        increase(1, 32, x, x)
    with device.capture() as outer:
        inner.launch()
        device.launch_all(LaunchChain((plan, plan)), [(x, x), (x, x)])
        device.launch(plan, (x, x))
    outer.launch()
    assert x.download().tolist() == [8 * (i + 1) for i in range(32)]


def test_a_graph_keeps_its_arrays_alive(device):
    double, _ = kernels(device)
    array = device.upload(np.ones(32, np.uint32), "x")
    other, pointer = array.view((32,)), array.pointer
    with device.capture() as graph:
        double(1, 32, array, other)
    there = weakref.ref(array)
    del array, other
    gc.collect()
    graph.launch()
    assert device.memory.find(pointer).bytes.view(np.uint32).tolist() == [2] * 32
    del graph
    gc.collect()
    device.memory.settle()
    assert there() is None
    assert device.memory.find(pointer) is None


def test_a_graph_keeps_arrays_alive_that_it_knows_by_a_map():
    device = simwarp.Device((9, 0))
    ptx = """.version 9.0
.target sm_90a
.address_size 64
.visible .entry nothing(.param .align 64 .b8 map[128]) { ret; }
"""
    of_lines = TensorMap("uint32", 0, (32,), (), (32,), (1,))
    array = device.upload(np.ones(32, np.uint32), "x")
    with device.capture() as graph:
        device.launch(LaunchPlan(ptx, "nothing", (1, 1, 1), (32, 1, 1), (of_lines,)), (array,))
    there = weakref.ref(array)
    del array
    gc.collect()
    assert there() is not None
    del graph
    gc.collect()
    assert there() is None


def test_faults_are_those_of_each_launch(device, x):
    double, _ = kernels(device)
    with device.capture() as graph:
        double(1, 64, x, x)
    for _ in range(2):
        with pytest.raises(OutOfBounds):
            graph.launch()
    x.free()
    with pytest.raises(UseAfterFree):
        graph.launch()


def test_a_launch_that_does_not_fit_is_refused_in_the_capture(device, x):
    double, _ = kernels(device)
    with pytest.raises(LaunchError, match="threads"), device.capture() as graph:
        double(1, 2000, x, x)
    with pytest.raises(CaptureError, match="not ended"):
        graph.launch()
    double(1, 32, x, x)  # the capture is over
    assert x.download()[1] == 2


def test_loading_and_allocating_are_allowed_in_a_capture(device, x):
    with device.capture() as graph:
        module = device.load(
            text("ld.global.u32 %r2, [g]; st.global.u32 [%at], %r2; ret;", ".global .u32 g = 5;")
        )
        y = device.allocate(32, np.uint32)
        module.kernel("k")(1, 32, y, x)
    graph.launch()
    assert y.download().tolist() == [5] * 32


FORBIDDEN = {
    "an upload of": lambda device, x: device.upload(np.zeros(1)),
    "an upload to x": lambda device, x: x.upload(np.zeros(32, np.uint32)),
    "a download of x": lambda device, x: x.download(),
    "a download": lambda device, x: np.asarray(x),
    "a synchronisation": lambda device, x: device.synchronize(),
    "an upload of flag": lambda device, x: device.flag(),
    "a check of the host": lambda device, x: device.defer(lambda: None),
    "a capture in a capture": lambda device, x: device.capture().__enter__(),
    "a launch in a stream": lambda device, x: next(kernels(device))(1, 32, x, x, stream=device.stream()),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_work_of_the_host_is_refused_in_a_capture(device, x, what):
    with pytest.raises(CaptureError, match=what), device.capture():
        FORBIDDEN[what](device, x)
    assert x.download().tolist() == list(range(32))  # and allowed again behind it


def test_a_graph_cannot_be_launched_in_its_own_capture(device):
    with pytest.raises(CaptureError, match="not ended"), device.capture() as graph:
        graph.launch()


def test_dependent_launches_of_a_graph_overlap(device, x):
    primary = device.load(text("st.global.u32 [%at], %i; griddepcontrol.launch_dependents; ret;")).kernel("k")
    _, second = kernels(device)
    with device.capture() as graph:
        primary(1, 32, x, x)
        second(1, 32, x, x, dependent=True)
    with pytest.raises(DependentAccess):
        graph.launch()
    with device.capture() as alone:
        second(1, 32, x, x, dependent=True)
    primary(1, 32, x, x)
    alone.launch()  # a graph begins after all that was launched before
    assert x.download().tolist() == list(range(1, 33))


# ---- the CUDA device, whose driver is replaced


@pytest.fixture
def cuda(cuda_kernel):
    """A kernel, and a driver that keeps what is captured: calls by name and their arguments."""
    launch, driver = cuda_kernel()
    calls, ok = [], driver.success

    def keep(name, *results):
        def call(*args):
            calls.append((name, *args))
            return ok, *results

        driver.calls[name] = call

    keep("cuStreamCreate", QUEUE)
    keep("cuStreamEndCapture", "captured")
    keep("cuGraphInstantiate", "executable")
    for name in (
        "cuStreamBeginCapture",
        "cuStreamDestroy",
        "cuGraphLaunch",
        "cuGraphDestroy",
        "cuGraphExecDestroy",
    ):
        keep(name)
    return SimpleNamespace(kernel=launch, driver=driver, calls=calls)


def named(cuda, name):
    return [call[1:] for call in cuda.calls if call[0] == name]


def test_cuda_launches_go_to_the_captured_stream(cuda):
    with cuda_capture.capture() as graph:
        cuda.kernel(4, 32)
        with pytest.raises(CaptureError, match="not ended"):
            graph.launch()
    cuda.kernel(4, 32)
    assert [call[8] for call in cuda.driver.launched] == [QUEUE, 0]
    graph.launch()
    graph.launch(SimpleNamespace(handle="mine"))
    assert named(cuda, "cuGraphLaunch") == [("executable", 0), ("executable", "mine")]
    assert named(cuda, "cuStreamDestroy") == [(QUEUE,)]
    del graph
    gc.collect()
    assert named(cuda, "cuGraphExecDestroy") == [("executable",)]
    assert named(cuda, "cuGraphDestroy") == [("captured",)]


def test_a_cuda_capture_that_fails_is_ended_and_dropped(cuda):
    with pytest.raises(ZeroDivisionError), cuda_capture.capture():
        raise ZeroDivisionError
    assert [call[0] for call in cuda.calls][2:] == ["cuStreamEndCapture", "cuGraphDestroy", "cuStreamDestroy"]
    cuda.kernel(4, 32)
    assert cuda.driver.launched[0][8] == 0


def test_a_cuda_graph_holds_its_arrays_for_launches_in_a_stream(cuda):
    held = []
    array = SimpleNamespace(hold=lambda: held.append("array"), pointer=64)
    with cuda_capture.capture() as graph:
        cuda_capture.CAPTURES.graph.keep(int, [array, 5])
    graph.launch()
    assert held == []
    graph.launch(SimpleNamespace(handle="mine"))
    assert held == ["array"]
    assert named(cuda, "cuGraphLaunch") == [("executable", 0), ("executable", "mine")]


def test_a_capture_makes_the_launches_of_a_cuda_graph_again(cuda):
    """An H200's driver refuses cuGraphLaunch in a stream that is being captured."""
    chain = BoundChain([BoundLaunch(cuda.kernel, LaunchPlan("", "f", (7, 1, 1), (32, 1, 1), ()))])
    with cuda_capture.capture() as inner:
        cuda.kernel(4, 32)
        cuda.kernel(5, 32, dependent=True)
        chain([[]])
    with cuda_capture.capture() as outer:
        inner.launch()
        with pytest.raises(CaptureError, match="a launch in a stream"):
            inner.launch(SimpleNamespace(handle="mine"))
    with cuda_capture.capture():
        outer.launch()
    assert named(cuda, "cuGraphLaunch") == []
    grids = [getattr(call[0], "gridDimX", call[1]) for call in cuda.driver.launched]
    assert grids == [4, 5, 7] * 3


def test_cuda_plans_are_captured_one_by_one(cuda):
    cuda.driver.calls["cuGraphExecKernelNodeSetParams"] = lambda *_: (cuda.driver.success,)
    plans = [LaunchPlan("", "f", (n, 1, 1), (32, 1, 1), (), shared=n, dependent=n == 2) for n in (1, 2)]
    cuda.driver.calls["cuGraphAddDependencies"] = lambda *_: (cuda.driver.success,)
    chain = BoundChain([BoundLaunch(cuda.kernel, plan) for plan in plans])
    with cuda_capture.capture():
        chain([[], []])
    assert named(cuda, "cuGraphLaunch") == []
    configs = [call[0] for call in cuda.driver.launched]
    assert [(c.gridDimX, c.sharedMemBytes, c.numAttrs, int(c.hStream)) for c in configs] == [
        (1, 1, 0, QUEUE),
        (2, 2, 1, QUEUE),
    ]
    chain([[], []])
    assert named(cuda, "cuGraphLaunch") == [("executable", 0)]


def test_work_of_the_host_is_refused_in_a_cuda_capture(cuda):
    with cuda_capture.capture():
        for what in ("an upload", "a download"):
            with pytest.raises(CaptureError, match=f"{what} in a capture"):
                cuda_capture.refuse_in_capture(what)
        with pytest.raises(CaptureError, match="a launch in a stream"):
            cuda.kernel(4, 32, stream=SimpleNamespace(handle="mine"))
        with pytest.raises(CaptureError, match="a capture in a capture"), cuda_capture.capture():
            pass
    cuda_capture.refuse_in_capture("an upload")
    assert cuda.driver.launched == []


def test_a_launch_of_a_chain_reads_the_addresses_of_its_call(cuda):
    """Those that are as before are not written again, also behind a call that was refused."""
    cuda.kernel.places, cuda.kernel.types = [(0, 8), (8, 8), (16, 4)], ["u64", "u64", ""]
    cuda.driver.calls["cuGraphExecKernelNodeSetParams"] = lambda *_: (cuda.driver.success,)
    plan = LaunchPlan("", "f", (1, 1, 1), (32, 1, 1), (None, None, None))
    launch = BoundLaunch(cuda.kernel, plan)
    chain = BoundChain([launch])
    for given in ((1, 2, b"abcd"), (1, 3, b"abcd"), (4, 3, b"efgh"), (4, 3, b"efgh"), (1, 2, b"abcd")):
        chain.launch(given, 0)
        assert launch._buffer.bytes.raw == struct.pack("<QQ4s", *given)
    with pytest.raises(LaunchError, match="a structure has 3 bytes"):
        chain.launch((5, 6, b"abc"), 0)
    chain.launch((1, 2, b"abcd"), 0)
    assert launch._buffer.bytes.raw == struct.pack("<QQ4s", 1, 2, b"abcd")
