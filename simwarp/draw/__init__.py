"""Pictures of words, tiles and lane operations, as text and as SVG, computed from the code's own maps."""

from simwarp.draw.bstc import operation, tile
from simwarp.draw.formats import layout
from simwarp.draw.lane_words import words

__all__ = ["layout", "operation", "tile", "words"]
