"""Tensor maps on the simulator: their 128 opaque bytes, and the addresses that a copy reads and writes."""

from simwarp.tensormaps.boxes import Units, check_coordinates, tile_bytes, units_of
from simwarp.tensormaps.encoding import ALIGNMENT, SIZE, decode, encode, replaced

__all__ = [
    "ALIGNMENT",
    "SIZE",
    "Units",
    "check_coordinates",
    "decode",
    "encode",
    "replaced",
    "tile_bytes",
    "units_of",
]
