"""Faults planted in the kernels of gpu/bnn are found by random networks, those of `simwarp verify`."""

from dataclasses import dataclass
from pathlib import Path
from shutil import copytree

import pytest

import gpu.compile
from simwarp.verify import CASES, check, simulator

SOURCES = Path(gpu.compile.__file__).parent


@dataclass(frozen=True)
class Fault:
    """An edit of a source, and an input of the harness that finds it."""

    path: str
    old: str
    new: str
    input: int
    case: str = "bnn"


FAULTS = {
    "unsigned compare in the threshold": Fault(
        "integers.cu",
        "(numbers.of[i] >= limits.of[i])",
        "((unsigned)numbers.of[i] >= (unsigned)limits.of[i])",
        1,
    ),
    "forgotten flip": Fault(
        "integers.cu",
        "(ones ^ flips) & real",
        "ones & real",
        1,
    ),
    "OR into an output that is not cleared": Fault(
        "integers.cu",
        "group % (32 / width)] = ",
        "group % (32 / width)] |= ",
        1,
    ),
    "ones past the last channel": Fault("integers.cu", "(ones ^ flips) & real", "ones ^ flips", 1),
    "sum of a residual not stored": Fault(
        "integers.cu",
        "        store(made + row * channels, numbers, first, channels);\n",
        "",
        14,
    ),
    "a row outside counted as -1": Fault(
        "staging.cuh",
        "+ offsets[i] : 0;",
        "+ offsets[i] : -1;",
        42,
    ),
    "a column outside counted as -1": Fault(
        "staging.cuh",
        "offsets[i] = inside[i] ? offset[channel] : 0;",
        "offsets[i] = inside[i] ? offset[channel] : -1;",
        57,
    ),
    "sums in 16 bits": Fault(
        "dots.cu",
        "sum = (int)(((unsigned)sum << 8) +",
        "sum = (short)(((unsigned)sum << 8) +",
        115,
    ),
    "bytes of a number swapped": Fault(
        "staging.cuh",
        "bytes_of(numbers, planes - 1 - p)",
        "bytes_of(numbers, p)",
        15,
    ),
    "missing barrier": Fault(
        "dots.cu",
        "region, tile);\n    __syncthreads();",
        "region, tile);",
        1,
    ),
    "maximum that begins at zero": Fault(
        "integers.cu",
        "some ? join(joined.of[c], numbers.of[c]) : numbers.of[c]",
        "join(joined.of[c], numbers.of[c])",
        1,
    ),
    "flattened channels first": Fault(
        "flatten.cu",
        "pixel = feature / channels, channel = feature % channels",
        "pixel = feature % pixels, channel = feature / pixels",
        0,
    ),
    "flattened with the gaps of words": Fault(
        "flatten.cu",
        "(image * pixels + pixel) * words",
        "(image * pixels + pixel)",
        16,
    ),
    "shortcut truncated to 8 bits": Fault(
        "integers.cu",
        "number += added.of[i];",
        "number += (signed char)added.of[i];",
        79,
    ),
    "channels padded on the wrong side": Fault(
        "integers.cu",
        "first - view.before",
        "first",
        25,
    ),
    "bits of a byte from the lowest": Fault("images.cu", "__brev(x.of[i]) >> 24", "(unsigned)x.of[i]", 1),
    "logits rounded once": Fault(
        "answer.cuh",
        "__int2float_rn(sum) * scale[k] + offset[k]",
        "fmaf(__int2float_rn(sum), scale[k], offset[k])",
        4,
    ),
    "halves of a word of 64 exchanged": Fault(
        "words.cu", "high << 32 | low", "low << 32 | high", 1, "bnn-words"
    ),
    "a half past the last word of 32": Fault(
        "words.cu", "word + 1 < narrow ?", "word < narrow ?", 0, "bnn-words"
    ),
    "a tap outside that counts as one inside": Fault(
        "soft_products.cuh", "        exclude[h] += !inside[h];\n", "", 0, "bnn-whole-words"
    ),
    "the border's term left out": Fault(
        "fsb_products.cuh", "lane] + addend : 0;", "lane] : 0;", 0, "bnn-whole-fsb"
    ),
    "the low half of a word of 64 twice": Fault("words.cu", " >> 32 * (place.word % 2)", "", 5, "bnn-words"),
}


@pytest.fixture
def plant(monkeypatch, tmp_path):
    """Make the compiler use an edited source."""

    def edit(fault):
        for part in ("bmm", "bconv", "bnn", "include"):
            copytree(SOURCES / part, tmp_path / part)
        source = tmp_path / "bnn" / fault.path
        assert source.read_text().count(fault.old) == 1
        source.write_text(source.read_text().replace(fault.old, fault.new))
        monkeypatch.setattr(gpu.compile, "_PACKAGE", tmp_path)

    return edit


def wrong_about(fault):
    return check(CASES[fault.case], 0, fault.input, {"simulator": simulator}).mismatches


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_harness_finds_the_planted_fault(plant, name):
    fault = FAULTS[name]
    assert wrong_about(fault) == []
    plant(fault)
    assert wrong_about(fault)
