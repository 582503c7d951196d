"""Textures and surfaces: the texels that a read or write accesses, and the filters.

The rules are those of the CUDA C++ Programming Guide, with the chip's own rounding; `docs/textures.md` says
how each was found.
"""

from __future__ import annotations

from simwarp.textures.objects import Objects, Surface, Texels, Texture

__all__ = ["Objects", "Surface", "Texels", "Texture"]
