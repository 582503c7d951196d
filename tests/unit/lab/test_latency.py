"""Studies of latency (figures 2 to 13 of BTC): counts against closed forms, cycles of a synthetic chip."""

import json
import re
import shutil
import subprocess
from math import gcd
from types import SimpleNamespace

import pytest

import simwarp
from reference.errors import SchemeError
from simwarp.cli.commands import run
from simwarp.fragments import fragments_of
from simwarp.lab.probe.latency import FIGURES, LOAD_STRIDES, STORE_STRIDES, latencies
from simwarp.lab.probe.latency_ptx import ACCESSES, TURNS, access, product, products
from simwarp.lab.probe.ptx import module
from support.pages import page_module

SECTOR, LINE, BANKS, WORD = 32, 128, 32, 4


def counts(rows, *names):
    return {row["ldm"]: tuple(row[name] for name in names) for row in rows}


def tile(row_bytes, stride):
    """The bytes of 8 rows; their first lies on a line."""
    return [row * stride + byte for row in range(8) for byte in range(row_bytes)]


def pieces(row_bytes, stride, size):
    return len({byte // size for byte in tile(row_bytes, stride)})


def test_sectors_and_lines_of_a_load_are_those_that_its_rows_touch():
    strides = (*LOAD_STRIDES[:3], 1024, 1664)
    found = counts(latencies(simwarp.Device(), 2, at=strides), "sectors", "lines")
    assert found == {ldm: (pieces(16, ldm // 8, SECTOR), pieces(16, ldm // 8, LINE)) for ldm in strides}
    assert [found[ldm] for ldm in (128, 256, 1024)] == [(4, 1), (8, 2), (8, 8)]


@pytest.mark.parametrize("figure", [3, 4])
def test_rows_of_a_load_meet_in_a_bank_by_the_common_divisor_of_their_stride(figure):
    strides = (128, 384, 1024, 1280)
    found = counts(latencies(simwarp.Device(), figure, at=strides), "wavefronts")
    assert found == {ldm: (gcd(ldm // 128, 8),) for ldm in strides}


@pytest.mark.parametrize(("figure", "memory"), [(6, "global"), (9, "shared")])
def test_a_store_of_a_row_is_one_access_of_eight_bytes_a_lane(figure, memory):
    strides = (*STORE_STRIDES[:2], 20, 1024)
    rows = latencies(simwarp.Device(), figure, at=strides)
    for row in rows:
        stride = row["ldm"] * WORD
        if memory == "global":
            assert (row["sectors"], row["lines"]) == tuple(
                pieces(32, stride, size) for size in (SECTOR, LINE)
            )
        # two phases of four rows; a phase takes as many wavefronts as words of it share a bank
        words = [{(r * stride // WORD + c) for c in range(8)} for r in range(8)]
        halves = [set().union(*words[:4]), set().union(*words[4:])]
        assert row["wavefronts"] == sum(
            max(sum(word % BANKS == bank for word in half) for bank in range(BANKS)) for half in halves
        )


@pytest.mark.parametrize(("figure", "depth"), [(10, lambda n: n), (13, lambda n: 1)])
def test_products_of_one_accumulator_wait_for_one_another(figure, depth):
    rows = latencies(simwarp.Device((8, 0)), figure, at=(1, 2, 7))
    assert {row["instruction"] for row in rows} == set(products((8, 0)))
    for row in rows:
        ((name, executed),) = row["executed"].items()
        assert (row["depth"], executed) == (depth(row["products"]), row["products"])
        assert "XOR" in name


def test_chips_are_asked_for_the_products_that_their_tensor_cores_have():
    assert [name.split(".sync")[0] for name in products((7, 5))] == ["wmma.mma.xor.popc"]
    assert all("and.popc" in name for name in products((9, 0)))


def test_every_figure_has_an_experiment_and_another_is_an_error():
    assert sorted(FIGURES) == list(range(2, 14))
    with pytest.raises(SchemeError, match="figures 2 to 13"):
        latencies(simwarp.Device(), 14)


class SyntheticChip:
    """Its clocks are 100, 10 and 1 times the timed instructions of the kernel, in three turns."""

    compute_capability, name = (9, 0), "synthetic"

    def load(self, text):
        timed = re.search(r"%began, 63;\n.*?\n(.*?)\nsetp", text, re.DOTALL)[1]
        links = len(re.findall(r"^(?:wmma|ldmatrix|mma|membar)", timed, re.MULTILINE))

        def launch(grid, block, tiles, clocks):
            clocks.host[:TURNS] = [100 * links, 10 * links, links]

        return SimpleNamespace(kernel=lambda name: launch)

    def upload(self, host):
        return SimpleNamespace(host=host, download=lambda: host.copy(), free=lambda: None)


def test_cycles_are_of_one_access_and_of_all_products():
    chip = SyntheticChip()
    (load,) = latencies(chip, 2, at=(128,), launches=3)
    assert (load["cycles"], load["cycles_again"]) == (10, 1)
    assert "sectors" not in load
    shared = latencies(chip, 5, at=(256,), launches=1)
    assert [row["cycles"] for row in shared] == [1, 1]
    (store,) = latencies(chip, 6, at=(8,), launches=2)
    assert (store["cycles"], store["fence_cycles"]) == (10, 10)
    assert [row["cycles"] for row in latencies(chip, 10, launches=1)][:3] == [1, 2, 3]


def test_the_command_prints_a_table_or_rows(capsys, monkeypatch):
    monkeypatch.setattr("simwarp.lab.probe.latency.STORE_STRIDES", (8, 16))
    assert run(["probe", "latency", "--figure", "9"]) == 0
    shown = capsys.readouterr().out
    assert "figures 7 and 9" in shown
    assert "wavefronts" in shown
    monkeypatch.setattr("simwarp.lab.probe.latency.PRODUCTS", (1, 2))
    assert run(["probe", "latency", "--figure", "11"]) == 0
    assert "2 BMMA.88128.AND.POPC" in capsys.readouterr().out
    assert run(["probe", "latency", "--figure", "10", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["depth"] for row in rows] == [1, 2, 1, 2]
    assert run(["probe", "latency", "--figure", "1"]) == 2
    assert run(["probe", "mma.sync", "--figure", "2"]) == 2
    assert "stands alone" in capsys.readouterr().err


def test_the_page_shows_counts_and_cycles_once_they_are_recorded(monkeypatch, tmp_path):
    made = page_module("page_microbenchmarks")
    for name, at in (("LOAD_STRIDES", (384,)), ("STORE_STRIDES", (12,)), ("PRODUCTS", (2,))):
        monkeypatch.setattr(f"simwarp.lab.probe.latency.{name}", at)
    monkeypatch.setattr(made, "PRODUCTS", (2,))
    recorded = tmp_path / "latency.json"
    monkeypatch.setattr(made, "LATENCIES", recorded)
    kinds = "loads", "stores", "products"
    counted = [made.filled(f"<!-- latency of {kind} -->").splitlines() for kind in kinds]
    assert [lines[2] for lines in counted] == [
        "| 384 | 8 | 3 | 1 |",
        "| 12 | 12 | 3 | 4 |",
        "| `wmma.mma.and.popc.sync.aligned` | 2 | 2 | 1 |",
    ]
    recorded.write_text(json.dumps({"rows": latencies(SyntheticChip(), launches=1)}))
    timed = [made.filled(f"<!-- latency of {kind} -->").splitlines() for kind in kinds]
    assert [lines[2] for lines in timed] == [
        "| 384 | 8 | 3 | 1 | 10.0 | 1.0 | 1.0 | 1.0 |",
        "| 12 | 12 | 3 | 4 | 10.0 | 10.0 | 10.0 | 10.0 |",
        "| `wmma.mma.and.popc.sync.aligned` | 2 | 2 | 2.0 | 1 | 2.0 |",
    ]


def test_the_table_of_all_results_leaves_latencies_out(monkeypatch, tmp_path):
    made = page_module("page_results")
    monkeypatch.setattr(made, "ROOT", tmp_path)
    folder = tmp_path / "benchmarks" / "results" / "h200"
    folder.mkdir(parents=True)
    (folder / "latency.json").write_text(json.dumps({"rows": latencies(SyntheticChip(), 2, at=(128,))}))
    assert made.filled(made.RESULTS_MARKER) == made.RESULTS_HEADER


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas of the CUDA toolkit")
@pytest.mark.parametrize("cc", [(7, 5), (8, 0), (9, 0)])
def test_ptxas_accepts_the_kernels(cc, tmp_path):
    bodies = [
        (opcode, access(opcode, memory, 128))
        for (_, memory), opcodes in ACCESSES.items()
        for opcode in opcodes
    ]
    bodies += [(opcode, product(fragments_of(opcode), 16, shared=False)) for opcode in products(cc)]
    for opcode, body in bodies:
        path = tmp_path / "module.ptx"
        path.write_text(module(opcode, cc, "tiles clocks", body))
        command = ["ptxas", f"-arch=sm_{cc[0]}{cc[1]}", "-o", str(tmp_path / "out"), str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
