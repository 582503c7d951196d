"""The simulated device: arrays, streams, loaded modules and launches."""

from simwarp.device.array import DeviceArray
from simwarp.device.device import SCHEDULES, Device, HasText
from simwarp.device.graph import Graph
from simwarp.device.streams import Event, Stream

__all__ = ["SCHEDULES", "Device", "DeviceArray", "Event", "Graph", "HasText", "Stream"]
