"""Page-locked host memory: registrations, shared by arrays, kept while their memory lives.

The driver locks pages, and refuses some that are locked already. So no two registrations share a page; an
array whose pages overlap some takes their place with one around all. Each pinned array lies in one
registration, as a copy from two would fail. A registration begins and ends with arrays: the driver
also refuses a copy that begins in one and ends behind it, which another library may make of an array beside
ours, or of one of which we have a part. So a part locks its whole array, unless that is much larger.

Locking takes longer than a product, so the last `unpin` keeps a registration if one NumPy array owns all its
memory: it ends when that array is deleted (a weak reference is called before its memory is freed), when it is
in the way of another, when page-locking fails, after a failed run, or with the machine. Memory of other
owners, a file's mapping say, could vanish unseen: its registrations end with the last `unpin`.

The driver knows one registration of a page in a process. So the machines of a process share theirs: one may
use what another has locked, and releases what another only keeps if it is in the way.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import byte_bounds

from gpu.cuda_machine.contexts import Contexts
from gpu.cuda_machine.driver import Driver, DriverError
from gpu.finalizers import undisturbed
from reference.errors import DtypeError, UnpinnedError

_LARGER = 16
"""An array more than this many times as large as its pinned part is not locked as a whole."""
_PORTABLE = 1
"""CU_MEMHOSTREGISTER_PORTABLE: for all contexts."""


@dataclass(eq=False)
class Registration:
    """Memory that the driver has locked: addresses from ``start`` up to ``end``."""

    start: int
    end: int
    maker: object  # of the machine that locked it
    users: int = 0  # pinned arrays in it, of all machines
    # weak references to the arrays whose memory it holds
    owners: list[Any] = field(default_factory=list[Any])
    is_kept: bool = True  # the last unpin leaves it locked
    is_stale: bool = False  # memory in it was freed
    is_released: bool = False


@dataclass
class Pinned:
    """A pinned array; without a registration it is page-locked by others."""

    start: int
    end: int
    registration: Registration | None
    array: npt.NDArray[Any]
    count: int = 1


_REGISTRATIONS: dict[Registration, Any] = {}
"""Registrations of all machines, each with its driver, which tests replace; finalisers remove some."""
_CHANGES = RLock()
"""Held while a thread changes registrations."""


class Pins:
    """The page-locked memory of a machine.

    ``settle`` waits for all copies; with ``keep``, registrations outlive the last unpin.
    """

    def __init__(
        self, driver: Driver, contexts: Contexts, settle: Callable[[], None], keep: bool = True
    ) -> None:
        self._driver, self._contexts, self._settle, self._keep = driver, contexts, settle, keep
        self._pinned: dict[tuple[int, int], Pinned] = {}
        self._maker = object()
        """Stands for this machine: a reference to it would keep it alive."""

    def _registrations(self) -> list[Registration]:
        """The page-locked registrations of all machines on this driver."""
        return [one for one, api in _REGISTRATIONS.copy().items() if api is self._driver.api]

    def _own(self) -> list[Registration]:
        """The page-locked registrations that this machine has made."""
        return [one for one in self._registrations() if one.maker is self._maker]

    def __len__(self) -> int:
        return len(self._pinned)

    @property
    def registered(self) -> int:
        """The bytes of the registrations that this machine has made."""
        return sum(one.end - one.start for one in self._own())

    def holds(self, start: int, end: int) -> bool:
        """True if a pinned array holds all these addresses."""
        return any(one.start <= start and end <= one.end for one in self._pinned.values())

    def count(self, array: npt.NDArray[Any]) -> int:
        """The number of times an array is pinned."""
        pinned = self._pinned.get(_bounds(array))
        return pinned.count if pinned else 0

    # ------------------------------------------------------------------------------------------- pin

    def pin(self, array: npt.NDArray[Any]) -> None:
        """Page-lock an array, or count one more pin if it is pinned."""
        bounds = _bounds(array)
        found = self._pinned.get(bounds)
        if found is not None:
            found.count += 1
            return
        with _CHANGES:
            try:
                registration = self._registration(array, *bounds) if bounds[0] < bounds[1] else None
                self._pinned[bounds] = Pinned(*bounds, registration, array)
            except BaseException:  # Ctrl-C is likely to come in long calls
                self.expire()
                raise
            if registration is not None:
                registration.users += 1

    def _registration(self, array: npt.NDArray[Any], start: int, end: int) -> Registration | None:
        """The registration for some addresses; None if others have locked them."""
        owner = _owner(array)
        whole = byte_bounds(owner)
        if self._keep and owner.flags.owndata and whole[1] - whole[0] <= _LARGER * (end - start):
            start, end = whole
        first, last = start & -mmap.PAGESIZE, _page_end(end)
        near = [one for one in self._registrations() if one.start < last and first < _page_end(one.end)]
        if len(near) == 1 and _holds(near[0], (start, end)) and not near[0].is_stale:
            self._end_with(near[0], owner)
            return near[0]
        if not near and self._is_locked(start) and self._is_locked(end - 1):
            return None
        self._check_others(near, array)
        if any(one.users for one in near):
            self._settle()
        for one in near:
            self._release(one)
        near = [one for one in near if one.users]
        start, end = min([start, *(x.start for x in near)]), max([end, *(x.end for x in near)])
        made = Registration(start, end, self._maker)
        try:
            self._lock(made, array)
        except BaseException:
            self._restore(near)
            raise
        for one in near:
            made.users += one.users
            made.is_kept &= one.is_kept and not one.is_stale
            for known in one.owners:
                self._end_with(made, known())
        for pinned in self._pinned.values():
            if pinned.registration in near:
                pinned.registration = made
        self._end_with(made, owner)
        return made

    def _check_others(self, near: list[Registration], array: npt.NDArray[Any]) -> None:
        """Check that no other machine uses registrations that must be replaced."""
        for one in near:
            if one.users > sum(pinned.registration is one for pinned in self._pinned.values()):
                raise DriverError(
                    f"an array of {array.nbytes} bytes cannot be page-locked",
                    "another machine uses an array that shares a page with it, and not all of its pages",
                    "let that call end, or pin a whole array of which both are parts on both machines first",
                    call="cuMemHostRegister",
                    status="CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
                    device=0,
                )

    def _lock(self, made: Registration, array: npt.NDArray[Any]) -> None:
        """Register pages; if the driver refuses, free registrations that are only kept, and try again."""
        with self._contexts.on(0):
            status = self._register(made)
            if status and self.forget(self._registrations()):
                status = self._register(made)
        if status:
            error = self._driver.error(status, "cuMemHostRegister", 0)
            if not isinstance(error, DriverError):
                raise error
            raise DriverError(
                f"an array of {array.nbytes} bytes cannot be page-locked",
                f"cuMemHostRegister of {made.end - made.start} bytes returned {status.name}",
                "copy it to memory of NumPy's own: mapped files and pages locked by others are refused",
                call="cuMemHostRegister",
                status=str(status.name),
                device=0,
            )

    def _register(self, made: Registration) -> Any:
        """Register pages and note that; the status. Python handles Ctrl-C behind the call of `extend`."""
        answers: list[Any] = []
        try:
            ask = self._driver.api.cuMemHostRegister
            answers.extend(map(ask, (made.start,), (made.end - made.start,), (_PORTABLE,)))
            if not answers[0][0]:
                made.is_released = False
                _REGISTRATIONS[made] = self._driver.api
        except BaseException:
            if answers and not answers[0][0]:
                self._unregister(made)
            raise
        return answers[0][0]

    def _restore(self, released: list[Registration]) -> None:
        """Lock the pages of pinned arrays again; if that fails, copies of them are slower, but right."""
        with self._contexts.on(0):
            for one in released:
                self._register(one)

    def _is_locked(self, address: int) -> bool:
        """True if the driver knows an address as page-locked."""
        which = self._driver.api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        with self._contexts.on(0):
            status, kind = self._driver.api.cuPointerGetAttribute(which, address)
        return not status and int(kind) == int(self._driver.api.CUmemorytype.CU_MEMORYTYPE_HOST)

    def _end_with(self, registration: Registration, owner: Any) -> None:
        """Let a registration end with the array that owns its memory; without one, at the last unpin."""
        if (
            owner is None
            or not owner.flags.owndata
            or not self._keep
            or not _holds(registration, byte_bounds(owner))
        ):
            registration.is_kept = False
            return
        mine, of = weakref.ref(self), weakref.ref(registration)

        def gone(_: object) -> None:
            pins, one = mine(), of()
            if pins is not None and one is not None:
                undisturbed(pins._owner_gone, one)

        if not any(known() is owner for known in registration.owners):
            registration.owners.append(weakref.ref(owner, gone))

    def _owner_gone(self, registration: Registration) -> None:
        """Release an unused registration; this runs in any thread, between any two statements of others."""
        registration.is_stale = True
        with _CHANGES:
            if registration.users or registration.is_released:
                return
            with self._contexts.apart():
                self._unregister(registration)

    # ----------------------------------------------------------------------------------------- unpin

    def unpin(self, array: npt.NDArray[Any]) -> None:
        """Undo one pin; the host must have waited for the copies of the array."""
        bounds = _bounds(array)
        pinned = self._pinned.get(bounds)
        if pinned is None:
            raise UnpinnedError(
                f"unpin of an array of {array.nbytes} bytes",
                "it is not pinned",
                "unpin each array as often as it was pinned",
            )
        pinned.count -= 1
        if pinned.count:
            return
        del self._pinned[bounds]
        registration = pinned.registration
        if registration is None:
            return
        with _CHANGES:
            registration.users -= 1
            if not registration.users and (registration.is_stale or not registration.is_kept):
                self._release(registration)

    def expire(self) -> None:
        """Release this machine's registrations as soon as their arrays are unpinned."""
        for one in self._own():
            one.is_kept = False
        self.forget()

    def forget(self, registrations: list[Registration] | None = None) -> int:
        """Release unused registrations, of this machine or among these; returns their number."""
        with _CHANGES:
            idle = [one for one in registrations or self._own() if not one.users]
            for one in idle:
                self._release(one)
        return len(idle)

    def close(self, release: Callable[..., None]) -> None:
        """Unpin all arrays, and release the registrations that no other machine uses."""
        with _CHANGES:
            for pinned in self._pinned.values():
                if pinned.registration is not None:
                    pinned.registration.users -= 1
            self._pinned.clear()
            for one in self._own():
                one.is_kept = False
                if not one.users:
                    release(0, self._release, one)

    def _release(self, registration: Registration) -> None:
        """Unregister a registration's pages once; raise the driver's error if it fails."""
        if registration.is_released:
            return
        with self._contexts.on(0):
            status = self._unregister(registration)
        if status:
            error = self._driver.error(status, "cuMemHostUnregister", 0)
            if 0 not in self._driver.lost:
                raise error

    def _unregister(self, registration: Registration) -> Any:
        """Unregister a registration's pages; return the driver's status."""
        registration.is_released = True
        _REGISTRATIONS.pop(registration, None)
        return self._driver.api.cuMemHostUnregister(registration.start)[0]


def _owner(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array that an array is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _bounds(array: npt.NDArray[Any]) -> tuple[int, int]:
    """The first and the end address of an array."""
    if not isinstance(array, np.ndarray):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DtypeError(
            f"the array is a {type(array).__name__}\nhost memory is given as NumPy arrays\n"
            "give a numpy.ndarray"
        )
    return byte_bounds(array)


def _holds(registration: Registration, bounds: tuple[int, int]) -> bool:
    """True if a registration covers the whole range of addresses."""
    return registration.start <= bounds[0] and bounds[1] <= registration.end


def _page_end(address: int) -> int:
    """Round an address up to the end of a page."""
    return -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
