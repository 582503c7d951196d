"""``simwarp exclude``."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

import reference
from simwarp.cli.commands import run
from simwarp.draw import to_text


def exclude(*arguments):
    return run(["exclude", *arguments])


def test_the_picture_counts_excluded_taps(capsys):
    assert exclude("--image", "5x5", "--filter", "3x3", "--stride", "2", "--pixel", "0,2") == 0
    text = capsys.readouterr().out
    assert text.startswith("3 × 3 filter over 5 × 5 pixels: output pixel (0, 2)\n")
    assert text.count("×  |") == 5
    assert "5 of 9 taps are outside and contribute nothing." in text


@pytest.mark.parametrize(
    ("padding", "resolved"),
    [("SAME", "SAME"), ("valid", "VALID"), ("1,0,2,3", ((1, 0), (2, 3)))],
)
def test_the_numbers_equal_the_reference(capsys, padding, resolved):
    options = ("--stride", "2,1", "--dilation", "1,2", "--padding", padding, "--json")
    assert exclude("--image", "6x5", "--filter", "2x3", *options) == 0
    facts = json.loads(capsys.readouterr().out)
    geometry = reference.conv_geometry(
        (1, 6, 5, 1), (2, 3, 1, 1), stride=(2, 1), dilation=(1, 2), padding=resolved
    )
    assert facts["excluded"] == reference.excluded_taps(geometry).tolist()
    assert [facts[name] for name in ("out_height", "out_width", "pad_top", "pad_left", "stride_h")] == [
        geometry.out_height,
        geometry.out_width,
        geometry.pad_top,
        geometry.pad_left,
        2,
    ]
    assert facts["pixel"] == [0, 0]
    assert facts["picture"]["title"] == "2 × 3 filter over 6 × 5 pixels: output pixel (0, 0)"


def test_the_number_of_channels_determines_the_remaining_products(capsys):
    assert exclude("--image", "4x4", "--filter", "3x3", "--channels", "64") == 0
    assert "correction: (9 - 5) taps x 64 channels = 256 products" in capsys.readouterr().out


def test_svg_is_written_to_the_named_file(tmp_path, capsys):
    path = tmp_path / "window.svg"
    assert exclude("--image", "5x5", "--filter", "3x3", "--svg", str(path)) == 0
    assert capsys.readouterr() == ("", f"wrote {path}\n")
    assert ElementTree.fromstring(path.read_text()).tag.endswith("svg")
    assert path.read_text().count('<rect class="padding"') == 5
    assert exclude("--image", "5x5", "--filter", "3x3", "--svg", str(tmp_path / "no" / "file.svg")) == 2
    assert "choose another file with --svg" in capsys.readouterr().err


SAME = ("--image", "5x5", "--filter", "3x3")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--image", "5", "--filter", "3x3"), "--image 5 is not two numbers"),
        (("--image", "5x5", "--filter", "3x3x3"), "--filter 3x3x3 is not two numbers"),
        (("--image", "5xfive", "--filter", "3x3"), "--image 5xfive is not two numbers"),
        (("--image", "0x5", "--filter", "3x3"), "--image 0x5 is empty"),
        ((*SAME, "--stride", "1,2,3"), "--stride 1,2,3 is neither one number nor two"),
        ((*SAME, "--stride", "0"), "--stride 0,0 has an entry below 1\n"),
        ((*SAME, "--dilation", "0,1"), "--dilation 0,1 has an entry below 1\n"),
        ((*SAME, "--padding", "1,1"), "--padding 1,1 is not four numbers"),
        ((*SAME, "--padding", "1,1,1,-1"), "--padding 1,1,1,-1 has a negative entry"),
        ((*SAME, "--padding", "FULL"), "--padding FULL is not four numbers\npadding is SAME, VALID"),
        ((*SAME, "--pixel", "5,0"), "--pixel 5,0 is not in the output\n"),
        ((*SAME, "--pixel", "-1,0"), "--pixel -1,0 is not in the output\n"),
        (
            ("--image", "2x2", "--filter", "3x3", "--padding", "VALID"),
            "output's height would be 0: --padding VALID\n",
        ),
        (("--image", "2000x2000", "--filter", "1x1", "--json"), "at most 1000000 pixels"),
    ],
)
def test_bad_requests_are_refused(arguments, part, capsys):
    assert exclude(*arguments) == 2
    error = capsys.readouterr().err
    assert part in error
    assert len(error.splitlines()) == 3


def test_a_large_image_is_drawn_in_part(capsys):
    assert exclude("--image", "2000x2000", "--filter", "3x3", "--pixel", "1999,1999") == 0
    assert "[5]" in capsys.readouterr().out


def test_the_text_equals_the_library_picture(capsys):
    from simwarp.draw import exclude_picture

    assert exclude("--image", "3x3", "--filter", "3x3") == 0
    assert capsys.readouterr().out == to_text(exclude_picture((3, 3), (3, 3), (3, 3), pad=(1, 1))) + "\n"
