"""A simulated device with real streams: queued work waits until it is needed, or overtakes what it may."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager

import numpy as np

import simwarp
from simwarp.device import DeviceArray


class LazyDevice(simwarp.Device):
    """A device whose copies in a stream and launches are queued.

    ``order`` is the priority of streams, where several can go: 0 is the default one, others count from 1. If
    ``eager``, work is done as soon as its stream allows, else only when the host waits. Host arrays count as
    page-locked with ``pinned_memory``. ``done`` has the stream and the kind of all work that was done.
    """

    def __init__(self, order=(0, 1, 2), *, eager=False, pinned_memory=True):
        self.queues = {0: deque()}
        self.order, self.eager, self.pinned_memory, self.done = order, eager, pinned_memory, []
        super().__init__()

    def queue_work(self, stream, kind, act, ready=lambda: True):
        """Queue work of a stream that can begin when it is ready."""
        self.queues[stream].append((kind, act, ready))
        while self.eager and self._step():
            pass

    def until(self, reached):
        """Do work until a condition holds."""
        while not reached():
            assert self._step(), "streams wait for one another for ever"

    def _step(self):
        """Do the work that comes first; False if there is none that can begin."""
        for stream in sorted(self.queues, key=self.order.index):
            queue = self.queues[stream]
            if queue and queue[0][2]():
                kind, act, _ = queue.popleft()
                act()
                self.done.append((stream, kind))
                return True
        return False

    @property
    def idle(self):
        return not any(self.queues.values())

    def allocate(self, *args, **options):
        array = super().allocate(*args, **options)
        array.__class__ = LazyArray
        return array

    def launch(self, plan, arrays, stream=None):
        assert stream is None
        if self.capturing is not None:
            super().launch(plan, arrays)
            return
        launch = super().launch
        self.queue_work(0, "launch", lambda: launch(plan, arrays))

    @contextmanager
    def capture(self):
        with super().capture() as graph:
            launch = graph.launch
            graph.launch = lambda: self.queue_work(0, "launch", launch)
            yield graph

    def pinned(self, shape, dtype):
        array = super().pinned(shape, dtype)
        array.view(np.uint8)[...] = 0xA5
        return array

    def is_pinned(self, host):
        return self.pinned_memory

    def stream(self, *, independent=False):
        assert independent
        stream = LazyStream(self, len(self.queues))
        self.queues[stream.number] = deque()
        return stream

    def event(self):
        return LazyEvent(self)

    def wait(self):
        self.until(lambda: not self.queues[0])

    def synchronize(self):
        self.until(lambda: self.idle)
        super().synchronize()


class LazyArray(DeviceArray):
    """An array of a lazy device."""

    def upload(self, host, stream=None):
        if stream is None:
            self.device.wait()
            super().upload(host)
        else:
            copy = super().upload
            self.device.queue_work(stream.number, "there", lambda: copy(host))

    def copy_to(self, host, stream=None):
        copy = super().copy_to
        self.device.queue_work(stream.number, "back", lambda: copy(host))


class LazyStream:
    """An independent stream."""

    def __init__(self, device, number):
        self.device, self.number = device, number

    def synchronize(self):
        self.device.until(lambda: not self.device.queues[self.number])


class LazyEvent:
    """An event, which happens when the work before it is done."""

    def __init__(self, device):
        self.device, self.happened = device, [True]

    def record(self, stream=None):
        self.happened = happened = []
        self.device.queue_work(_number(stream), "event", lambda: happened.append(True))

    def wait(self, stream=None):
        happened = self.happened
        self.device.queue_work(_number(stream), "wait", lambda: None, lambda: bool(happened))

    def synchronize(self):
        happened = self.happened
        self.device.until(lambda: bool(happened))


def _number(stream):
    return 0 if stream is None else stream.number
