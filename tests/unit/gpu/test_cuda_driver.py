"""The stand-in for PyCUDA's driver module, over a replaced driver."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from gpu.cuda import contexts
from gpu.cuda import driver as cuda_driver
from gpu.cuda_machine.driver import Driver as Machine
from reference.errors import LaunchError, MissingExtraError, NoGpuError
from support.cuda_driver import replace_driver

NAMES = {1: "CUDA_ERROR_INVALID_VALUE", 2: "CUDA_ERROR_OUT_OF_MEMORY", 719: "CUDA_ERROR_LAUNCH_FAILED"}


class Status(int):
    @property
    def name(self):
        return NAMES[self]


class Driver:
    """Two contexts' stack, and memory that is given once; every call is noted, planted ones are refused."""

    CUdevice_attribute = int
    CUjit_option = SimpleNamespace(CU_JIT_ERROR_LOG_BUFFER=1, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES=2)

    def __init__(self):
        self.calls, self.refused, self.contexts, self.next, self.given = [], {}, ["first"], 4096, set()
        self.cuGetErrorString, self.cuModuleLoadDataEx = self.words, self.refuse
        self.answers = {
            "cuCtxGetCurrent": self.current,
            "cuCtxPushCurrent": self.push,
            "cuCtxPopCurrent": self.pop,
            "cuMemAlloc": self.give,
            "cuMemFree": self.take,
            "cuDeviceGetAttribute": self.attribute,
            "cuDeviceGetName": self.chip,
        }

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)
        return lambda *arguments: self._note(name, arguments)

    def _note(self, name, arguments):
        self.calls.append((name, *arguments))
        if name in self.refused:
            return Status(self.refused[name]), None
        return (0, *self.answers.get(name, lambda *_: (7,))(*arguments))

    def words(self, status):
        return 0, None if status == 719 else b"words for it"

    def refuse(self, image, count, names, values):
        values[0][: len(image)] = image
        return Status(1), None

    def current(self):
        return (self.contexts[-1],)

    def push(self, context):
        self.contexts.append(context)
        return ()

    def pop(self):
        return (self.contexts.pop(),)

    def give(self, size):
        assert self.contexts[-1] == "first"
        self.next += 1 << 30
        self.given.add(self.next)
        return (self.next,)

    def take(self, pointer):
        assert self.contexts[-1] == "first"
        self.given.remove(pointer)
        return ()

    def attribute(self, number, _):
        return ({16: 132, 75: 9, 76: 0}[number],)

    def chip(self, *_):
        return (b"NVIDIA H200\0\0",)


@pytest.fixture
def driver(monkeypatch):
    found = Driver()
    replace_driver(monkeypatch, found)
    return found


def test_the_module_stands_in_where_pycuda_is_missing(driver, monkeypatch):
    monkeypatch.setitem(sys.modules, "pycuda", None)
    assert cuda_driver.load.__wrapped__() is cuda_driver


def test_pycuda_is_taken_where_it_is_installed(monkeypatch):
    pycuda = SimpleNamespace(driver=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "pycuda", pycuda)
    monkeypatch.setitem(sys.modules, "pycuda.driver", pycuda.driver)
    assert cuda_driver.load.__wrapped__() is pycuda.driver


@pytest.mark.parametrize(
    ("status", "kind", "text"),
    [
        (1, "LogicError", "cuCtxSynchronize failed: words for it"),
        (2, "MemoryError", "cuCtxSynchronize failed: words for it"),
        (719, "LaunchError", "cuCtxSynchronize failed: CUDA_ERROR_LAUNCH_FAILED"),
    ],
)
def test_a_refusal_is_an_error_of_pycudas_kind(driver, status, kind, text):
    driver.refused["cuCtxSynchronize"] = status
    with pytest.raises(cuda_driver.Error) as caught:
        cuda_driver.Context.synchronize()
    assert (type(caught.value).__name__, str(caught.value)) == (kind, text)


def test_refused_ptx_has_the_log_of_the_drivers_compiler(driver):
    with pytest.raises(
        cuda_driver.LogicError, match=r"^cuModuleLoadDataEx failed: words for it - line 3: error$"
    ):
        cuda_driver.module_from_buffer(b"line 3: error\n\0")


def test_a_missing_driver_is_an_error(driver, monkeypatch):
    def missing(_):
        raise RuntimeError("libcuda is missing\nlooked in 7 places")

    monkeypatch.setattr(driver, "cuInit", missing, raising=False)
    with pytest.raises(cuda_driver.LogicError, match=r"^libcuda is missing$"):
        cuda_driver.init()


def test_starting_initialises_the_driver(driver):
    assert cuda_driver.started(cuda_driver, "simwarp.Machine()") is cuda_driver
    assert driver.calls == [("cuInit", 0)]


def test_a_refused_start_is_an_error_with_the_drivers_words(driver):
    driver.refused["cuInit"] = 1
    with pytest.raises(NoGpuError) as caught:
        Machine()
    assert str(caught.value) == (
        "CUDA cannot start: cuInit failed: words for it\ncheck nvidia-smi, or use simwarp.Machine()"
    )


@pytest.mark.parametrize("start", [Machine, contexts.driver.__wrapped__])
def test_missing_bindings_are_an_error(monkeypatch, start):
    monkeypatch.setattr(cuda_driver, "bindings", cuda_driver.Bindings())
    monkeypatch.setattr(contexts, "load", lambda: cuda_driver)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    with pytest.raises(MissingExtraError, match=r"needs cuda-bindings.*\npip install 'simwarp\[cuda\]'"):
        start()


def test_the_bindings_are_imported_by_the_first_use_of_a_name_of_theirs(monkeypatch):
    found, driver = cuda_driver.Bindings(), SimpleNamespace(cuInit=object(), CUresult=object())
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    assert not hasattr(found, "__wrapped__")
    with pytest.raises(ImportError):
        found.cuInit()
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)
    assert (found.cuInit, found.CUresult) == (driver.cuInit, driver.CUresult)
    assert vars(found) == vars(driver)


@pytest.mark.parametrize(
    ("answer", "value"), [((0,), None), ((0, 7), 7), ((0, None), None), ((0, 7, 8), (7, 8))]
)
def test_the_value_of_a_call_is_what_stands_beside_its_status(answer, value):
    assert cuda_driver.value_of(answer, ZeroDivisionError) == value


def test_a_refused_call_raises_the_error_that_its_caller_makes():
    with pytest.raises(ZeroDivisionError) as caught:
        cuda_driver.value_of((Status(719), 7), ZeroDivisionError, "a copy", 3)
    assert caught.value.args == (719, "a copy", 3)


def test_a_refused_launch_is_an_error_of_pycudas_or_of_a_wrong_cluster(driver, monkeypatch):
    with pytest.raises(
        cuda_driver.load().LaunchError, match=r"^kernel f: launch failed: CUDA_ERROR_LAUNCH_F"
    ):
        cuda_driver.checked("kernel f", (Status(719),))
    monkeypatch.setitem(NAMES, 912, "CUDA_ERROR_INVALID_CLUSTER_SIZE")
    with pytest.raises(LaunchError, match=r"^kernel f: the GPU cannot run clusters"):
        cuda_driver.refuse("kernel f", Status(912))


@pytest.mark.parametrize(
    ("module", "is_one"),
    [
        ("pycuda._driver", True),
        ("_pycuda", True),
        ("gpu.cuda.driver", True),
        ("gpu.cuda_machine.driver", False),
    ],
)
def test_errors_of_the_driver_are_known_by_their_module(module, is_one):
    assert cuda_driver.is_raised_here(type("LogicError", (Exception,), {"__module__": module})()) == is_one


def test_a_device_has_a_name_and_attributes(driver):
    device = cuda_driver.Device(0)
    assert (device.name(), device.compute_capability()) == ("NVIDIA H200", (9, 0))
    assert device.get_attribute(cuda_driver.device_attribute.MULTIPROCESSOR_COUNT) == 132
    device.retain_primary_context().push()
    cuda_driver.Context.pop()
    assert driver.contexts == ["first"]


@pytest.mark.parametrize(
    ("first", "second", "is_reused"),
    [
        (1, 512, True),
        (100, 513, False),
        (4000, 4096, True),
        (4096, 4097, False),
        (10**9, 10**9 - 10**6, True),
    ],
)
def test_freed_memory_is_used_again_for_arrays_of_about_its_size(driver, first, second, is_reused):
    pool = cuda_driver.DeviceMemoryPool()
    driver.contexts.append("another")
    one = pool.allocate(first)
    address = int(one)
    one.free()
    one.free()
    two, three = pool.allocate(second), pool.allocate(second)
    assert (int(two) == address) == is_reused
    assert int(three) not in (address, int(two))
    assert driver.contexts == ["first", "another"]
    for name, *arguments in driver.calls:
        if name == "cuMemAlloc":
            assert arguments[0] >= min(first, second)
            assert arguments[0] <= 512 + 1.25 * max(first, second)


def test_memory_without_an_owner_returns_to_the_pool_and_from_there_to_the_driver(driver):
    pool = cuda_driver.DeviceMemoryPool()
    kept = pool.allocate(1000)
    pool.allocate(2000)
    gc.collect()
    assert len(driver.given) == 2
    pool.free_held()
    assert driver.given == {int(kept)}
    pool.stop_holding()
    kept.free()  # the driver takes it with the process
    assert driver.given == {int(kept)}


def test_too_little_memory_is_an_error_and_leaves_the_context(driver):
    pool = cuda_driver.DeviceMemoryPool()
    driver.refused["cuMemAlloc"] = 2
    with pytest.raises(cuda_driver.MemoryError, match="cuMemAlloc failed"):
        pool.allocate(1)
    assert driver.contexts == ["first"]


def test_copies_give_addresses_and_sizes(driver):
    host, stream = np.zeros(3, np.int32), cuda_driver.Stream(1)
    cuda_driver.memcpy_htod(64, host)
    cuda_driver.memcpy_dtoh(host, 64)
    cuda_driver.memcpy_htod_async(64, host, stream)
    cuda_driver.memcpy_dtoh_async(host, 64, stream)
    stream.synchronize()
    at = host.ctypes.data
    assert driver.calls == [
        ("cuStreamCreate", 1),
        ("cuMemcpyHtoD", 64, at, 12),
        ("cuMemcpyDtoH", at, 64, 12),
        ("cuMemcpyHtoDAsync", 64, at, 12, 7),
        ("cuMemcpyDtoHAsync", at, 64, 12, 7),
        ("cuStreamSynchronize", 7),
    ]
    del stream
    gc.collect()
    assert driver.calls[-1] == ("cuStreamDestroy", 7)
    assert cuda_driver.get_driver_version() == 7
