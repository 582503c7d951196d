"""Calls that are given a machine for a device, a device for a machine, or neither."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpu
import simwarp
from gpu import blas3, outofcore
from gpu.blas3 import OneProcess
from gpu.bmm.fsb import pack_fsb
from gpu.bnn import prepare_ensemble, prepare_split, run_ensemble
from gpu.bnn import run as run_network
from gpu.device import check_device
from gpu.machine import check_machine
from gpu.outofcore import Dense, Flatten, Network, Trainer
from gpu.outofcore import run as outofcore_run
from reference.errors import DtypeError, MissingExtraError, NoGpuError, SchemeError
from reference.types import Coo
from simwarp.device.schedules import compare_schedules
from simwarp.run import run

COO = Coo([[0, 1], [1, 0]], [1.0, 2.0], (2, 2))
SIGNS, IMAGES, FILTERS = np.ones((2, 2)), np.ones((1, 4, 4, 1)), np.ones((3, 3, 1, 1))
FACTORS = [np.ones((2, 1), np.float32)] * 2
KERNEL = "__global__ void f(int* y) { y[0] = 1; }"
Call = Callable[[Any], Any]

OF_A_DEVICE: dict[str, Call] = {
    "bmm": lambda device: gpu.bmm(SIGNS, SIGNS, device=device),
    "bconv2d": lambda device: gpu.bconv2d(IMAGES, FILTERS, device=device),
    "pack": lambda device: gpu.pack(SIGNS, device=device),
    "pack_fsb": lambda device: pack_fsb(SIGNS, device=device),
    "pack_tensor": lambda device: gpu.pack_tensor(IMAGES, layout="NHWC", device=device),
    "mttkrp": lambda device: gpu.mttkrp(COO, FACTORS, 0, device=device),
    "cpd_als": lambda device: gpu.cpd_als(COO, 1, device=device),
    "prepare a": lambda device: gpu.prepare(SIGNS, "a", device=device),
    "prepare w": lambda device: gpu.prepare(FILTERS, "w", device=device),
    "prepare sparse": lambda device: gpu.prepare(COO, device=device),
    "run": lambda device: run(KERNEL, grid=1, block=1, args=[np.zeros(1, np.int32)], device=device),
}
OF_A_MACHINE: dict[str, Call] = {
    "dgemm": lambda device: blas3.dgemm(1.0, SIGNS, SIGNS, device=device),
    "dtrsm": lambda device: blas3.dtrsm(1.0, SIGNS, SIGNS, device=device),
    "matmul": lambda device: blas3.matmul(SIGNS, SIGNS, device=device),
    "solve_triangular": lambda device: blas3.solve_triangular(SIGNS, SIGNS, device=device),
    "cholesky": lambda device: blas3.cholesky(np.eye(2), device=device),
    "summa": lambda device: blas3.summa(
        1.0, SIGNS, SIGNS, 0.0, np.zeros((2, 2)), comm=OneProcess(), device=device
    ),
    "patched": lambda device: blas3.patched(device).__enter__(),
}
X, W, Y = np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 3, 3), np.float32), (1, 1, 4, 4)
OUT_OF_CORE: dict[str, Call] = {
    "conv2d": lambda device: outofcore.conv2d(X, W, device=device),
    "conv2d_backward_data": lambda device: outofcore.conv2d_backward_data(X, W, Y, device=device),
    "conv2d_backward_filter": lambda device: outofcore.conv2d_backward_filter(X, X, W.shape, device=device),
    "explain": lambda device: outofcore.explain("conv2d", X.shape, W.shape, device=device),
    "Trainer": lambda device: Trainer(Network((1, 4, 4), (Flatten(), Dense(2))), 1, device=device).explain(),
}
OF_A_MACHINE |= OUT_OF_CORE


@pytest.mark.parametrize("name", OF_A_DEVICE)
def test_what_is_not_a_device_is_refused_with_the_device_to_make(name: str) -> None:
    for given in (simwarp.Machine(), simwarp.Device, "cuda", 0, [], ""):
        with pytest.raises(DtypeError, match=r"^device is .*\n.*one device.*\n.*simwarp\.Device\(\)"):
            OF_A_DEVICE[name](given)


@pytest.mark.parametrize("name", OF_A_MACHINE)
def test_what_is_not_a_machine_is_refused_with_the_machine_to_make(name: str) -> None:
    for given in (simwarp.Device(), simwarp.Machine, "cuda", 0, []):
        with pytest.raises(DtypeError, match=r"device is .*\n.*a machine.*\n.*simwarp\.Machine\(\)"):
            OF_A_MACHINE[name](given)


@pytest.mark.parametrize("call", [prepare_split, prepare_ensemble, run_network, run_ensemble])
def test_networks_name_the_wrong_device(call: Any, tiny_network: Any) -> None:
    several = call in (prepare_ensemble, run_ensemble)
    network = [tiny_network] if several else tiny_network
    images = [np.ones((1, 1), np.uint8)] if call in (run_network, run_ensemble) else []
    wrong: list[tuple[Any, str]] = [([simwarp.Device(), simwarp.Machine()], r"devices\[1\] is a Machine")]
    if call is run_network:
        wrong = [(simwarp.Machine(), "device is a Machine")]
    else:
        wrong.append((simwarp.Device(), "devices= is a Device\nit must be a sequence"))
    for given, message in wrong:
        option = {"device": given} if call is run_network else {"devices": given}
        with pytest.raises(DtypeError, match=message):
            call(network, *images, **option)


@pytest.fixture
def tiny_network() -> Any:
    from reference import pack
    from reference.bnn import BitPlanes, Dense, Network

    one = np.ones(1, np.float32)
    return Network("one", BitPlanes((1,)), (Dense(pack(np.ones((8, 1)), layout="row")),), one, one)


class _Cuda:
    """The attributes by which hardware is known."""

    ordinal, ordinals = 3, (3, 4)


def test_advice_names_the_gpu_that_was_given() -> None:
    with pytest.raises(DtypeError, match=re.escape("pass gpu.CudaDevice(3), or simwarp.Device()")):
        check_device(_Cuda())
    with pytest.raises(DtypeError, match=re.escape("pass gpu.CudaMachine([3]), or simwarp.Machine()")):
        check_machine(_Cuda())


@pytest.mark.parametrize("given", [2, "cuda:0", -1, simwarp.Machine(), True])
def test_a_gpu_has_a_number(given: Any) -> None:
    if given != 2:
        with pytest.raises(DtypeError, match=r"^CudaDevice: ordinal is .*\n.*\npass CudaDevice\(0\)"):
            gpu.CudaDevice(given)
    advice = "range(2) for the first 2" if given == 2 else "[0] for the first one"
    with pytest.raises(DtypeError, match=r"^CudaMachine: devices is .*\n.*\npass " + re.escape(advice)):
        gpu.CudaMachine(given)


def test_a_machine_takes_the_name_of_a_topology() -> None:
    assert simwarp.Machine("H200x2").topology is simwarp.machine.H200x2
    assert simwarp.Machine("everest").devices == 3
    with pytest.raises(SchemeError, match="the topology 'A100' is unknown\nknown are H100, "):
        simwarp.Machine("A100")


@pytest.mark.parametrize("given", [1, 2, 3, 4, 8, True, 2.0, None, simwarp.Device(), [], simwarp.Device])
def test_a_machine_is_not_made_of_a_number(given: Any) -> None:
    with pytest.raises(DtypeError, match=r"^Machine: topology is .*\n.*H200x2.*\npass Machine\('") as error:
        simwarp.Machine(given)
    advised = re.search(r"pass Machine\('(\w+)'\)", str(error.value))
    assert advised is not None
    devices = simwarp.Machine(advised[1]).devices
    assert given not in (1, 2, 4, 8) or isinstance(given, float) or devices == given


@pytest.mark.parametrize("given", [0, "sm_90", "cuda", simwarp.Machine(), None])
def test_a_device_is_not_made_of_anything_but_a_compute_capability(given: Any) -> None:
    with pytest.raises(
        SchemeError, match=r"^Device: cc.* not a compute capability\nchoose among \("
    ) as error:
        simwarp.Device(given)
    assert " at 0x" not in str(error.value)


def test_compare_schedules_takes_a_constructor() -> None:
    with pytest.raises(DtypeError, match=r"device is a Device\n.*a constructor\npass simwarp\.Device, "):
        compare_schedules(lambda device: np.zeros(1), device=simwarp.Device())  # pyright: ignore[reportArgumentType]


class _Gpus:
    """In the place of `CudaMachine` and of the default one: gives a machine, or raises an error."""

    result: Any = None

    def __new__(cls, *_: object) -> Any:
        if isinstance(cls.result, Exception):
            raise cls.result
        return cls.result


@pytest.mark.parametrize("name", OUT_OF_CORE)
def test_out_of_core_without_a_device_takes_the_gpus(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("default_machine", "CudaMachine"):
        monkeypatch.setattr(outofcore_run, place, _Gpus)
    monkeypatch.setattr(_Gpus, "result", simwarp.Machine())
    found, expected = (str(OUT_OF_CORE[name](device)) for device in (None, simwarp.Machine()))
    assert found == expected
    for error in (NoGpuError("no driver\nsecond line"), MissingExtraError("no cuBLAS")):
        monkeypatch.setattr(_Gpus, "result", error)
        with pytest.raises(NoGpuError, match=rf"^{name} needs a GPU: no .*\n.*\npass device=simwarp.Machine"):
            OUT_OF_CORE[name](None)


def test_small_products_without_scipy_need_it_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpu.blas3 import routines

    monkeypatch.setattr(_Gpus, "result", ImportError("scipy"))
    monkeypatch.setattr(routines, "import_module", _Gpus)
    monkeypatch.setattr(routines, "blas", routines.blas.__wrapped__)
    with pytest.raises(MissingExtraError, match=r"needs SciPy.*\nthe host computes small problems"):
        blas3.matmul(SIGNS, SIGNS)


def test_the_plan_of_a_product_takes_the_number_of_devices() -> None:
    for given in (simwarp.Machine("H200x2"), 0, [2]):
        with pytest.raises(DtypeError, match=r"^devices is .*\n.*\n.*machine\.devices"):
            blas3.explain("dgemm", 8, devices=given)  # pyright: ignore[reportArgumentType]
