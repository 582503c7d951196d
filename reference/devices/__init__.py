"""Arguments that simulated and real devices share: launches, tensor maps, textures, timelines.

These modules are vocabulary, as `reference.types`; the operations of `reference` do not import them.
"""

from reference.devices.tensor_map import Im2col, TensorMap

__all__ = ["Im2col", "TensorMap"]


def __dir__() -> list[str]:
    return sorted(__all__)
