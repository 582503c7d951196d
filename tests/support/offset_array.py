"""A device array that does not start where its memory does."""

import numpy as np

from simwarp.device import DeviceArray


class OffsetArray(DeviceArray):
    """A device array that starts some bytes into its allocation, like a slice."""

    def __init__(self, device, x, offset):
        storage = device.upload(np.concatenate([np.zeros(offset, np.uint8), x.reshape(-1).view(np.uint8)]))
        super().__init__(device, storage._owner, x.shape, x.dtype)
        self.offset = offset

    @property
    def pointer(self):
        return super().pointer + self.offset
