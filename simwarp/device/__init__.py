"""The simulated device: arrays, streams, loaded modules and launches."""

from simwarp.device.device import SCHEDULES, Device, DeviceArray, Event, HasText, Stream
from simwarp.device.graph import Graph

__all__ = ["SCHEDULES", "Device", "DeviceArray", "Event", "Graph", "HasText", "Stream"]
