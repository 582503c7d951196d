"""Memory at chosen addresses, over a replaced driver that keeps the pages that were mapped."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpu.cuda import placed
from gpu.cuda.kernels import CudaModule
from reference.errors import LaunchError
from support.cuda_driver import replace_driver

PAGE, REGION = 1 << 21, 1 << 30
BASE = 0x2000_0000_0000
CALLS = {
    "cuMemGetAllocationGranularity": "granularity",
    "cuMemAddressReserve": "reserve",
    "cuMemAddressFree": "give_back",
    "cuMemCreate": "create",
    "cuMemMap": "map",
    "cuMemUnmap": "unmap",
    "cuMemRelease": "release",
    "cuMemSetAccess": "give_access",
}


class Driver:
    """A driver with virtual memory, which places small regions itself.

    ``elsewhere`` gives other addresses, ``room`` is for pages.
    """

    def __init__(self, real, elsewhere=False, room=9):
        self.real, self.elsewhere, self.room = real, elsewhere, room
        self.reserved, self.mapped, self.usable, self.memory = set(), {}, {}, set()

    def __getattr__(self, name):
        if name in CALLS:
            return getattr(self, CALLS[name])
        return getattr(self.real, name)

    def granularity(self, wanted, least):
        assert wanted.location.id == 3
        assert wanted.type == self.real.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        return self._ok, PAGE

    @property
    def _ok(self):
        return self.real.CUresult.CUDA_SUCCESS

    def reserve(self, size, alignment, address, flags):
        given = 0x7000_0000_0000 if self.elsewhere or size < REGION else address
        self.reserved.add((given, size))
        return self._ok, given

    def give_back(self, address, size):
        self.reserved.remove((address, size))
        return (self._ok,)

    def create(self, size, wanted, flags):
        if len(self.mapped) == self.room:
            return self.real.CUresult.CUDA_ERROR_OUT_OF_MEMORY, None
        self.memory.add(len(self.mapped))
        return self._ok, len(self.mapped)

    def map(self, address, size, offset, memory, flags):
        assert any(start <= address < start + whole for start, whole in self.reserved)
        self.mapped[address] = memory
        return (self._ok,)

    def unmap(self, address, size):
        assert size == PAGE
        del self.mapped[address], self.usable[address]
        return (self._ok,)

    def release(self, memory):
        self.memory.remove(memory)
        return (self._ok,)

    def give_access(self, address, size, access, count):
        (one,) = access
        assert (one.location.id, count) == (3, 1)
        self.usable[address] = one.flags
        return (self._ok,)


@pytest.fixture
def driver(monkeypatch):
    real = pytest.importorskip("cuda.bindings.driver")

    def make(**properties):
        found = Driver(real, **properties)
        replace_driver(monkeypatch, found)
        placed._pages.cache_clear()
        return found

    yield make
    placed._pages.cache_clear()


DEVICE = SimpleNamespace(ordinal=3)


def test_an_array_lies_where_it_was_asked_for(driver):
    found = driver()
    array = placed.array_at(DEVICE, BASE + 4096, 100)
    assert (array.pointer, array.nbytes) == (BASE + 4096, 100)
    assert found.usable == {BASE: found.real.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE}
    assert found.memory == set()  # the mapping alone keeps it


def test_neighbours_share_pages_and_long_arrays_have_several(driver):
    found = driver()
    for address, size in ((BASE, 8), (BASE + PAGE - 8, 8), (BASE + PAGE - 8, 9), (BASE, 3 * PAGE)):
        placed.array_at(DEVICE, address, size)
    assert sorted(found.mapped) == [BASE, BASE + PAGE, BASE + 2 * PAGE]
    assert found.reserved == {(BASE, REGION)}
    placed.array_at(DEVICE, BASE + REGION - 8, 16)
    assert found.reserved == {(BASE, REGION), (BASE + REGION, REGION)}


def test_pages_that_nobody_needs_are_given_back(driver):
    found = driver(room=3)
    placed.array_at(DEVICE, BASE, 3 * PAGE)
    placed.keep_only(DEVICE, [(BASE + PAGE, 5), (BASE + PAGE, 0), (BASE + PAGE + 8, 8)])
    assert [*found.mapped] == [*found.usable] == [BASE + PAGE]
    assert found.reserved == {(BASE, REGION)}
    placed.array_at(DEVICE, BASE + 8 * PAGE, 2 * PAGE)
    assert len(found.mapped) == 3


def test_another_address_is_given_back_and_said(driver):
    found = driver(elsewhere=True)
    with pytest.raises(
        LaunchError, match="no memory at 0x200000000000: the driver gave 0x700000000000 instead"
    ):
        placed.array_at(DEVICE, BASE, 8)
    assert found.reserved == set()


def test_memory_that_ends_is_said(driver):
    found = driver(room=1)
    with pytest.raises(LaunchError, match="no memory at 0x200000200000: CUDA_ERROR_OUT_OF_MEMORY"):
        placed.array_at(DEVICE, BASE, 2 * PAGE)
    assert found.reserved == {(BASE, REGION)}


def test_a_variable_has_a_place(monkeypatch):
    real = pytest.importorskip("cuda.bindings.driver")
    ok, missing = real.CUresult.CUDA_SUCCESS, real.CUresult.CUDA_ERROR_NOT_FOUND
    fake = SimpleNamespace(
        cuModuleLoadData=lambda image: (ok, "module"),
        cuModuleGetGlobal=lambda module, name: (ok, 4096, 8) if name == b"total" else (missing, None, 0),
    )
    replace_driver(monkeypatch, fake)
    module = CudaModule(".version 9.0")
    assert module.place_of("total") == (4096, 8)
    with pytest.raises(Exception, match="variable none cannot be found: CUDA_ERROR_NOT_FOUND"):
        module.place_of("none")
