"""The command ``simwarp exclude``: which taps of a convolution fall outside the image.

>>> exclude_command("5x5", "3x3", padding="2,0,2")
Traceback (most recent call last):
...
reference.errors.ShapeError: --padding 2,0,2 is not four numbers
padding is SAME, VALID, or so many rows and columns on each side
give for instance --padding SAME, or --padding 1,1,0,2 for top, bottom, left and right
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated, Any

import typer

import reference
from reference.conv_geometry import ConvGeometry
from reference.errors import ShapeError
from simwarp.cli.output import Svg, print_picture
from simwarp.cli.words import as_options
from simwarp.draw import exclude_picture

_MOST = 1_000_000
"""More counts than this are not printed as data."""


def exclude_command(
    image: Annotated[str, typer.Option(help="Rows and columns of the image: 5x5.")],
    filter: Annotated[str, typer.Option(help="Rows and columns of the filter: 3x3.")],
    padding: Annotated[str, typer.Option(help="SAME, VALID or TOP,BOTTOM,LEFT,RIGHT.")] = "SAME",
    stride: Annotated[str, typer.Option(help="One number, or rows,columns.")] = "1",
    dilation: Annotated[str, typer.Option(help="One number, or rows,columns.")] = "1",
    pixel: Annotated[str, typer.Option(help="The output pixel whose window is drawn: p,q.")] = "0,0",
    channels: Annotated[int | None, typer.Option(min=1, help="Tell how many products remain.")] = None,
    svg: Svg = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the numbers and the picture's data.")
    ] = False,
) -> int:
    """Draw which taps of a convolution fall outside the image, and count them for every output pixel."""
    (height, width), (rows, columns) = _size(image, "image", "5x5"), _size(filter, "filter", "3x3")
    p, q = _two(pixel, "pixel", "0,0")
    with as_options(stride="--stride", padding="--padding", dilation="--dilation"):
        geometry = reference.conv_geometry(
            (1, height, width, channels or 1),
            (rows, columns, channels or 1, 1),
            stride=_steps(stride, "stride"),
            padding=_padding(padding),
            dilation=_steps(dilation, "dilation"),
        )
    if not (0 <= p < geometry.out_height and 0 <= q < geometry.out_width):
        raise ShapeError(
            f"--pixel {pixel} is not in the output\n"
            f"the output has {geometry.out_height} rows and {geometry.out_width} columns, counted from 0\n"
            f"give one from --pixel 0,0 to --pixel {geometry.out_height - 1},{geometry.out_width - 1}"
        )
    picture = exclude_picture(
        (height, width),
        (rows, columns),
        (geometry.out_height, geometry.out_width),
        pad=(geometry.pad_top, geometry.pad_left),
        stride=(geometry.stride_h, geometry.stride_w),
        dilation=(geometry.dilation_h, geometry.dilation_w),
        pixel=(p, q),
        channels=channels,
    )
    facts = {**asdict(geometry), "pixel": [p, q], "excluded": _counts(geometry)} if as_json else {}
    print_picture(picture, svg, as_json, **facts)
    return 0


def _counts(geometry: ConvGeometry) -> list[list[int]]:
    """The taps outside, for every output pixel."""
    if geometry.out_height * geometry.out_width > _MOST:
        raise ShapeError(
            f"the output has {geometry.out_height} x {geometry.out_width} pixels\n"
            f"--json lists the count of each, for at most {_MOST} of them\n"
            "leave out --json, or give a smaller image or a larger stride"
        )
    return reference.excluded_taps(geometry).tolist()


def _numbers(text: str) -> tuple[int, ...]:
    """The whole numbers between commas or ×; none if there is anything else."""
    parts = re.split("[x×,]", text.strip())
    return tuple(map(int, parts)) if all(re.fullmatch("[+-]?[0-9]{1,18}", part) for part in parts) else ()


def _refusal(name: str, text: str, *lines: str) -> ShapeError:
    return ShapeError("\n".join((f"--{name} {text} {lines[0]}", *lines[1:])))


def _two(text: str, name: str, example: str) -> tuple[int, int]:
    numbers = _numbers(text)
    if len(numbers) != 2:
        what = "is not two numbers", "rows come first, columns second"
        raise _refusal(name, text, *what, f"give for instance --{name} {example}")
    return numbers[0], numbers[1]


def _size(text: str, name: str, example: str) -> tuple[int, int]:
    numbers = _two(text, name, example)
    if min(numbers) < 1:
        what = "is empty", "there is at least one row and one column"
        raise _refusal(name, text, *what, f"give for instance --{name} {example}")
    return numbers


def _steps(text: str, name: str) -> tuple[int, int]:
    numbers = _numbers(text)
    if len(numbers) not in (1, 2):
        what = (
            "is neither one number nor two",
            "one is for rows and columns, two are for rows and for columns",
        )
        raise _refusal(name, text, *what, f"give for instance --{name} 2, or --{name} 2,1")
    return numbers[0], numbers[-1]


def _padding(text: str) -> Any:
    if text.upper() in ("SAME", "VALID"):
        return text.upper()
    numbers = _numbers(text)
    if len(numbers) != 4:
        what = "is not four numbers", "padding is SAME, VALID, or so many rows and columns on each side"
        advice = "give for instance --padding SAME, or --padding 1,1,0,2 for top, bottom, left and right"
        raise _refusal("padding", text, *what, advice)
    return numbers[:2], numbers[2:]
