"""Colours of the 32 lanes of a warp, for light and dark pages.

Four neighbouring lanes, which share a row of most fragments, have four tints of one hue. Seven hues are
from Okabe and Ito, "Color Universal Design" (2008), for colour-blind readers; olive, from Paul Tol's
"Colour Schemes" (2021), replaces their black. Every second hue is paler, to separate hues that some readers
confuse. Text on every tint has a contrast of at least 4.5 to 1 (WCAG 2.1, 1.4.3).
"""

from __future__ import annotations

from collections.abc import Iterable

_HUES = ("e69f00", "56b4e9", "009e73", "f0e442", "0072b2", "d55e00", "cc79a7", "999933")
_LIGHT_STEPS = ((0.3, 0.46, 0.62, 0.76), (0.22, 0.38, 0.54, 0.68))
_DARK_STEPS = (0.32, 0.54, 0.77, 1.0)
_BRIGHTEST = (0.135, 0.1)
"""The luminance of a hue's brightest tint on a dark page, for even and odd hues."""
_PAPER = (0x1E / 255, 0x21 / 255, 0x29 / 255)


def tint(lane: int, *, dark: bool = False) -> str:
    """The colour of a lane, modulo 32, as ``#rrggbb``.

    >>> tint(0), tint(3), tint(4), tint(0, dark=True)
    ('#f8e2b2', '#ecb63d', '#daeefa', '#41351c')
    """
    hue, step, paler = _HUES[lane // 4 % 8], lane % 4, lane // 4 % 2
    base = [int(hue[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    if dark:
        scale = _BRIGHTEST[paler] / luminance(f"#{hue}")
        base = [_encoded(_linear(channel) * scale) for channel in base]
        return _mixed(_PAPER, base, _DARK_STEPS[step])
    return _mixed((1.0, 1.0, 1.0), base, _LIGHT_STEPS[paler][step])


def luminance(colour: str) -> float:
    """The relative luminance of ``#rrggbb``, from 0 to 1 (WCAG 2.1).

    >>> luminance("#000000"), round(luminance("#ffffff"), 6)
    (0.0, 1.0)
    """
    red, green, blue = (_linear(int(colour[i : i + 2], 16) / 255) for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def rules(lanes: Iterable[int]) -> str:
    """The CSS rules for the colours of some lanes; class ``hue5`` is lane 5.

    >>> print(rules([0]))
    .simwarp-picture .hue0{fill:#f8e2b2}
    @media (prefers-color-scheme:dark){.simwarp-picture .hue0{fill:#41351c}}
    """
    hues = sorted(set(lanes))
    light, dark = (
        "".join(f".simwarp-picture .hue{lane}{{fill:{tint(lane, dark=at_night)}}}" for lane in hues)
        for at_night in (False, True)
    )
    return f"{light}\n@media (prefers-color-scheme:dark){{{dark}}}" if hues else ""


def _mixed(first: Iterable[float], second: Iterable[float], part: float) -> str:
    channels = (a + (b - a) * part for a, b in zip(first, second, strict=True))
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in channels)


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


def _encoded(linear: float) -> float:
    return linear * 12.92 if linear <= 0.0031308 else 1.055 * linear ** (1 / 2.4) - 0.055
