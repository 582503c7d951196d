"""The command ``simwarp ptx``."""

import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from simwarp.cli import main
from simwarp.run import load

SOURCE = """__global__ void scale(float* x, float a) {
    int i = threadIdx.x;
    x[i] = a * x[i];
}
__device__ __noinline__ float deep(float x) { return x < 1 ? x : x * 3; }
__global__ void other(float* x) {
    for (int i = 0; i < 1000; i++)
        *x = deep(*x);
}
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("k.cu").write_text(SOURCE)


def reported(capsys, *arguments):
    assert main(["ptx", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["functions"]


def test_each_source_line_has_its_ptx_and_its_cost(capsys):
    (scale,) = reported(capsys, "k.cu", "--kernel", "scale")
    lines = {line["line"]: line for line in scale["lines"]}
    assert scale["name"] == "scale"
    third = lines["k.cu:3"]
    assert third["source"] == "    x[i] = a * x[i];"
    assert [entry["text"].split()[0] for entry in third["ptx"]].count("st.global.f32") == 1
    assert (third["loaded"], third["stored"]) == ({"global": 4}, {"global": 4})
    ptx = load("k.cu").ptx.splitlines()
    for entry in third["ptx"]:
        assert entry["text"] in " ".join(ptx[entry["line"] - 1].split())
    total = scale["total"]
    assert total["instructions"] == sum(line["instructions"] for line in scale["lines"])
    assert total["stored"] == {"global": 4}


def test_all_kernels_and_the_functions_that_they_call_are_listed(capsys):
    assert [listing["name"] for listing in reported(capsys, "k.cu")] == ["scale", "other", "deep"]
    assert main(["ptx", "k.cu", "--kernel", "nothing"]) == 2
    assert "it has scale, other" in capsys.readouterr().err


def test_text_has_source_ptx_labels_and_totals(capsys):
    assert main(["ptx", "k.cu", "--kernel", "other"]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    head, *rows = printed.splitlines()
    assert head == "other"
    assert rows[0].split() == ["line", "source", "PTX", "bytes", "operations", "instructions"]
    assert any(row.startswith("k.cu:7 ") and "for (int i = 0" in row for row in rows)
    assert any(re.search(r"\$L__\w+:( |$)", row) for row in rows)
    assert any(row.startswith("total") for row in rows)


def test_the_ptx_is_written_instead_and_read_again(capsys):
    assert main(["ptx", "k.cu", "-o", "k.ptx", "--no-fmad"]) == 0
    assert capsys.readouterr() == ("", "wrote k.ptx\n")
    assert Path("k.ptx").read_text() == load("k.cu", options=["-fmad=false"]).ptx
    assert [listing["name"] for listing in reported(capsys, "k.ptx")] == ["scale", "other", "deep"]
    assert main(["ptx", "k.ptx", "-G"]) == 2
    assert main(["ptx", "k.cu", "-o", "k.cu"]) == 2
    assert Path("k.cu").read_text() == SOURCE


def test_g_shows_more_instructions(capsys):
    (plain,) = reported(capsys, "k.cu", "--kernel", "scale")
    (debugged,) = reported(capsys, "k.cu", "--kernel", "scale", "-G")
    assert debugged["total"]["instructions"] > plain["total"]["instructions"]


def test_a_narrow_terminal_has_the_ptx_below_each_line(capsys, monkeypatch):
    def narrow(**options):
        return Console(width=80, **options)

    monkeypatch.setattr("simwarp.cli.ptx.wide_console", narrow)
    assert main(["ptx", "k.cu", "--kernel", "scale"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("k.cu:3     x[i] = a * x[i];")
    assert "global: 4 read; global: 4 written" in lines[at + 1]
    assert re.match(r" +\d+ (mul|cvta|add|ld|st|ret)", lines[at + 2])
    assert lines[-3].startswith("total")
