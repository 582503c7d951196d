"""The command ``simwarp exclude``: draw and count the taps of a convolution outside the image.

>>> exclude_command("5x5", "3x3", padding="2,0,2")
Traceback (most recent call last):
...
reference.errors.ShapeError: --padding 2,0,2 is not four numbers
padding is SAME, VALID, or the rows and columns added on each side
give for example --padding SAME, or 1,1,0,2 for top, bottom, left and right
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reference.errors import ShapeError
from simwarp.cli.output import Svg, as_options, integers, print_picture
from simwarp.draw import exclude_picture

if TYPE_CHECKING:
    from reference.conv_geometry import ConvGeometry

_MOST = 1_000_000
"""The most output pixels whose counts ``--json`` prints."""


def exclude_command(
    image: Annotated[str, typer.Option(help="Rows and columns of the image: 5x5.")],
    filter: Annotated[str, typer.Option(help="Rows and columns of the filter: 3x3.")],
    padding: Annotated[str, typer.Option(help="SAME, VALID or TOP,BOTTOM,LEFT,RIGHT.")] = "SAME",
    stride: Annotated[str, typer.Option(help="One number, or rows,columns.")] = "1",
    dilation: Annotated[str, typer.Option(help="One number, or rows,columns.")] = "1",
    pixel: Annotated[str, typer.Option(help="The output pixel whose window is drawn: p,q.")] = "0,0",
    channels: Annotated[
        int | None, typer.Option(min=1, help="Channels of the image: count the products of a dot product.")
    ] = None,
    svg: Svg = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the numbers and the picture's data.")
    ] = False,
) -> int:
    """Draw which taps of a convolution fall outside the image, and count them for every output pixel."""
    import reference

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
    """The number of taps outside the image, for every output pixel."""
    import reference

    if geometry.out_height * geometry.out_width > _MOST:
        raise ShapeError(
            f"the output has {geometry.out_height} x {geometry.out_width} pixels\n"
            f"--json lists the counts of at most {_MOST} pixels\n"
            "leave out --json, or give a smaller image or a larger stride"
        )
    return reference.excluded_taps(geometry).tolist()


def _refusal(name: str, text: str, wrong: str, rule: str, example: str) -> ShapeError:
    return ShapeError(f"--{name} {text} {wrong}\n{rule}\ngive for example --{name} {example}")


def _two(text: str, name: str, example: str) -> tuple[int, int]:
    numbers = integers(text)
    if len(numbers) != 2:
        raise _refusal(name, text, "is not two numbers", "rows come first, columns second", example)
    return numbers[0], numbers[1]


def _size(text: str, name: str, example: str) -> tuple[int, int]:
    numbers = _two(text, name, example)
    if min(numbers) < 1:
        raise _refusal(name, text, "is empty", "there must be at least one row and one column", example)
    return numbers


def _steps(text: str, name: str) -> tuple[int, int]:
    numbers = integers(text)
    if len(numbers) not in (1, 2):
        rule = "give one number for both axes, or one for rows and one for columns"
        raise _refusal(name, text, "is neither one number nor two", rule, f"2, or --{name} 2,1")
    return numbers[0], numbers[-1]


def _padding(text: str) -> Any:
    if text.upper() in ("SAME", "VALID"):
        return text.upper()
    numbers = integers(text)
    if len(numbers) != 4:
        rule = "padding is SAME, VALID, or the rows and columns added on each side"
        example = "SAME, or 1,1,0,2 for top, bottom, left and right"
        raise _refusal("padding", text, "is not four numbers", rule, example)
    return numbers[:2], numbers[2:]
