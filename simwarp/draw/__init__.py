"""Diagrams of words, tiles, fragments and lane operations, computed from definitions, as text or SVG."""

from typing import TYPE_CHECKING

from reference.lazy import make_lazy

if TYPE_CHECKING:
    from simwarp.draw.bstc import operation, tile
    from simwarp.draw.exclude import exclude_picture
    from simwarp.draw.formats import layout
    from simwarp.draw.fragment import Held, holders, product, registers
    from simwarp.draw.fsb import fsb
    from simwarp.draw.lane_words import words
    from simwarp.draw.svg import to_svg
    from simwarp.draw.text import to_text

__all__ = [
    "Held",
    "exclude_picture",
    "fsb",
    "holders",
    "layout",
    "operation",
    "product",
    "registers",
    "tile",
    "to_svg",
    "to_text",
    "words",
]

make_lazy(
    __name__,
    {
        "bstc": ("operation", "tile"),
        "exclude": ("exclude_picture",),
        "formats": ("layout",),
        "fragment": ("Held", "holders", "product", "registers"),
        "fsb": ("fsb",),
        "lane_words": ("words",),
        "svg": ("to_svg",),
        "text": ("to_text",),
    },
)
