"""The entries of the papers: how one is found, made, compared with print, and kept."""

import json

import numpy as np
import pytest

import gpu
import simwarp
from reference import bnn
from reference.errors import InputFileError, MissingExtraError, NoGpuError, SchemeError
from reference.sparse import write_tns
from reference.types import Coo
from simwarp.lab.bench.table import WrongAnswerError
from simwarp.lab.network_studies import Counter
from simwarp.lab.papers import (
    NAMES,
    bits,
    compare,
    data,
    measure,
    mm_csf,
    nets,
    paper,
    plots,
    run,
    script,
    sparse,
)
from simwarp.lab.papers.data import Data
from simwarp.lab.papers.entries import Item, Made, Making, Paper
from simwarp.testing import golden

PAPERS = [paper(name) for name in NAMES]


def making(folder=None, **more):
    return Making(Data(folder), lambda done, total: None, **more)


# -------------------------------------------------------------------------------------------- entries


@pytest.mark.parametrize("each", PAPERS, ids=lambda each: each.name)
def test_no_figure_is_in_two_entries_and_each_is_made_or_has_a_note(each):
    numbers = [(item.kind, number) for item in each.items for number in item.numbers]
    assert len(numbers) == len(set(numbers))
    assert [item.name for item in each.items if bool(item.makers) == bool(item.note)] == []
    assert [item.name for item in each.items if item.printed and not item.keys] == []
    assert all(len(key) == len(item.keys) for item in each.items for key in item.printed)


def test_an_unknown_paper_and_an_unknown_figure_are_refused():
    with pytest.raises(SchemeError, match=r"'btcc' is unknown\nknown are bstc, btc"):
        paper("btcc")
    with pytest.raises(SchemeError, match=r"bstc has no figure 21\nits figures are 1, 2"):
        paper("bstc").item("figure", "21")


def test_roman_numbers_are_found_by_arabic_ones():
    blasx = paper("blasx")
    assert blasx.item("table", "5") is blasx.item("table", "v") is blasx.item("table", "V")
    assert blasx.item("figure", "5") is not blasx.item("table", "5")


def test_an_entry_that_a_device_does_not_make_names_the_device_that_does():
    btc, mixed = paper("btc"), paper("mm-csf")
    with pytest.raises(SchemeError, match=r"sim does not make it, cuda does\ngive --device cuda"):
        btc.maker(btc.item("figure", "25"), "sim")
    with pytest.raises(SchemeError, match=r"cuda does not make it, sim does\ngive --device sim"):
        mixed.maker(mixed.item("table", "8"), "cuda")
    with pytest.raises(SchemeError, match="no device makes it: a drawing"):
        btc.maker(btc.item("figure", "1"), "sim")


# -------------------------------------------------------------------------------------------- compare

ITEM = Item("table", ("1",), "times", keys=("n",), printed={(8,): {"ms": 2.0, "GHz": 1.5}, (9,): {"ms": 4.0}})


def test_rows_have_what_is_printed_for_them_and_the_ratio():
    rows = compare.beside(
        ITEM, [{"n": 8, "ms": 2.5}, {"n": 9, "ms": 4.1}, {"n": 10, "ms": 7.0}, {"n": 8, "ms": None}]
    )
    assert [row.get("ratio") for row in rows] == [{"ms": 1.25}, {"ms": pytest.approx(1.025)}, None, None]
    assert "printed" not in rows[2]
    assert compare.differences(rows) == {"ms": (pytest.approx(1.025), 1.25)}
    assert compare.differences(rows[1:]) == {}


def test_printed_and_ours_stand_side_by_side():
    rows = compare.beside(ITEM, [{"n": 8, "scheme": "a", "ms": 2.5}])
    of = compare.columns(rows)
    assert compare.heads(of) == ["GHz, printed", "n", "scheme", "ms, printed", "ms, ours", "ratio"]
    assert [compare.cell(rows[0], *each) for each in of] == ["1.5", "8", "a", "2", "2.5", "1.25"]


# ------------------------------------------------------------------------------------------------ run


@pytest.fixture
def counted(monkeypatch):
    """A paper of three entries that counts how often each is made; the second may be stopped."""
    calls, stops = [], set()

    def maker(number):
        def make(given):
            given.progress(0, 1)
            calls.append(number)
            if number in stops:
                raise KeyboardInterrupt
            return Made([{"n": number, "value": number / 4}], "one size")

        return make

    items = [
        Item("figure", (str(n),), "x", {"sim": maker(n)}, ("n",), {(n,): {"value": 1.0}}) for n in (1, 2, 3)
    ]
    monkeypatch.setattr(golden, "commit", lambda: "c0ffee")
    return Paper("toy", "a toy", items), calls, stops


def everything(toy, folder, **options):
    chosen = [(toy, item) for item in toy.items]
    return list(run.made(chosen, "sim", options.get("data", Data()), lambda item, done, total: None, folder))


def test_finished_entries_are_read_and_not_made_again(counted, tmp_path):
    toy, calls, _ = counted
    first = everything(toy, tmp_path)
    assert calls == [1, 2, 3]
    assert [facts["item"] for facts in first] == ["figure 1", "figure 2", "figure 3"]
    assert everything(toy, tmp_path) == first
    assert calls == [1, 2, 3]
    kept = json.loads((tmp_path / "toy" / "figure-2.json").read_text())
    assert kept == first[1]
    assert kept["meta"]["commit"] == "c0ffee"
    assert kept["meta"]["versions"]["simwarp"] == simwarp.__version__
    assert kept["rows"] == [{"n": 2, "value": 0.5, "printed": {"value": 1.0}, "ratio": {"value": 0.5}}]
    assert kept["reasons"] == {"value": ""}


@pytest.mark.parametrize("change", ["commit", "dirty", "damage", "data", "list"])
def test_an_entry_of_other_code_or_data_and_a_damaged_file_are_made_again(
    counted, tmp_path, monkeypatch, change
):
    toy, calls, _ = counted
    everything(toy, tmp_path / "out")
    data_folder, path = tmp_path / "data", tmp_path / "out" / "toy" / "figure-2.json"
    options = {}
    if change in ("commit", "dirty"):
        monkeypatch.setattr(golden, "commit", lambda: "c0ffee-dirty" if change == "dirty" else "decaf")
    elif change == "data":
        data_folder.mkdir()
        (data_folder / "mnist.npy").touch()
        options["data"] = Data(data_folder)
    else:
        path.write_text(path.read_text()[:40] if change == "damage" else "[]")
    everything(toy, tmp_path / "out", **options)
    assert calls[3:] == ([2] if change in ("damage", "list") else [1, 2, 3])


def test_a_stopped_run_keeps_what_is_finished_and_goes_on_from_there(counted, tmp_path):
    toy, calls, stops = counted
    stops.add(2)
    with pytest.raises(KeyboardInterrupt):
        everything(toy, tmp_path)
    assert [path.name for path in (tmp_path / "toy").iterdir()] == ["figure-1.json"]
    stops.clear()
    assert len(everything(toy, tmp_path)) == 3
    assert calls == [1, 2, 2, 3]


def test_nothing_is_made_before_all_entries_are_checked(counted, tmp_path):
    toy, calls, _ = counted
    chosen = [(toy, toy.items[0]), (toy, Item("table", ("9",), "y", note="a drawing"))]
    with pytest.raises(SchemeError, match="table 9 of toy"):
        list(run.made(chosen, "sim", Data(), lambda *_: None, tmp_path))
    with pytest.raises(InputFileError, match="is not a folder with data"):
        everything(toy, None, data=Data(tmp_path))
    assert calls == []


def test_an_output_that_is_a_file_is_refused(counted, tmp_path):
    (tmp_path / "toy").touch()
    with pytest.raises(InputFileError, match="choose another folder with --out"):
        everything(counted[0], tmp_path)


def test_gpu_entries_without_a_gpu_are_refused_at_once(monkeypatch):
    def none():
        raise NoGpuError("no GPU here\ninstall one")

    monkeypatch.setattr("gpu.cuda.default_device", none)
    btc = paper("btc")
    with pytest.raises(NoGpuError, match=r"no GPU here\ngive --device sim"):
        next(run.made([(btc, btc.item("figure", "25"))], "cuda", Data(), lambda *_: None))


# --------------------------------------------------------------------------------------------- makers


def test_a_product_costs_what_a_device_counts_by_itself():
    rows = bits.products(("bmm32", "btc1"), (33,))(making()).rows
    assert [(row["scheme"], row["n"], row["launches"]) for row in rows] == [("bmm32", 33, 1), ("btc1", 33, 1)]
    problem, device = bits.Product(33), simwarp.Device()
    given = [
        gpu.prepare(x, of, scheme="bmm32", device=device) for x, of in ((problem.a, "a"), (problem.b, "b"))
    ]
    rule = {
        "thresholds": device.upload(np.zeros(33, np.int32)),
        "flip": device.upload(np.zeros(33, np.uint8)),
    }
    alone = Counter(device).cost(lambda: gpu.bmm(*given, scheme="bmm32", **rule))
    assert rows[0]["instructions"] == alone["instructions"]
    assert rows[0]["conflicts"] == 0 < rows[0]["sectors"]


def test_a_wrong_product_has_no_cost(monkeypatch):
    right = gpu.bmm

    def wrong(a, b, **options):
        c = right(a, b, **options)
        words = a.words.device.upload(~c.words.download())
        return type(c)(words, c.shape, c.layout, c.word, c.first)

    monkeypatch.setattr(bits.gpu, "bmm", wrong)
    with pytest.raises(WrongAnswerError, match="bmm32 of 33: the answer is wrong"):
        bits.products(("bmm32",), (33,))(making())


def test_a_convolution_of_floats_packs_them_in_launches_of_its_own():
    sizes = ((33, 34),)
    (packed,) = bits.convolutions(("bconv32",), sizes, side=4)(making()).rows
    (real,) = bits.convolutions(("bconv32",), sizes, side=4, real=True)(making()).rows
    assert (packed["launches"], real["launches"]) == (1, 3)
    assert real["instructions"] > packed["instructions"]


def test_approaches_have_the_votes_of_the_paper_s_explanation():
    rows = {row["approach"]: row for row in bits.approaches(making()).rows}
    assert {name: row["votes"] for name, row in rows.items()} == {
        "row-by-row": 0,
        "row-by-column": 32,
        "column-by-row": 32,
        "column-by-column": 64,
    }
    assert rows["column-by-column"]["to row by row"] == 2.0


SMALL_MLP = nets.Subject(bnn.mlp, "mnist", 8, {"width": 16})


def test_networks_are_related_to_their_first_scheme(monkeypatch):
    monkeypatch.setitem(nets.SUBJECTS, "mlp", SMALL_MLP)
    schemes = {name: nets.BSTC[name] for name in ("SBNN-32", "SBNN-64-Fine")}
    given = making()
    found = nets.networks(("mlp",), schemes, 2)(given)
    first, second = found.rows
    assert first["to SBNN-32"] == 1.0
    assert second["to SBNN-32"] == second["instructions"] / first["instructions"]
    assert found.data == "random images for mnist"
    assert "mlp with channels / 16" in found.sizes
    before = dict(given.kept)
    nets.networks(("mlp",), schemes, 2)(given)
    assert given.kept == before


def test_a_network_with_another_answer_is_refused(monkeypatch):
    monkeypatch.setitem(nets.SUBJECTS, "mlp", SMALL_MLP)
    right = bnn.run
    monkeypatch.setattr(nets.bnn, "run", lambda network, images: right(network, 255 - images))
    with pytest.raises(WrongAnswerError, match="mlp by"):
        nets.networks(("mlp",), {"SBNN-32": nets.BSTC["SBNN-32"]}, 1)(making())


def test_the_parts_of_a_network_sum_to_the_whole(monkeypatch):
    monkeypatch.setitem(nets.SUBJECTS, "mlp", SMALL_MLP)
    rows = nets.study("breakdown", ("mlp",), 1)(making()).rows
    assert rows[0]["part"] == "first layer"
    assert sum(row["percent"] for row in rows) == pytest.approx(100)


def test_structures_have_the_weights_of_the_layers():
    (row,) = nets.structure(("mlp",))(making()).rows
    assert row["weights"] == row["multiply-adds"] == 784 * 1024 + 2 * 1024**2 + 1024 * 10


class Stopwatch:
    """In place of a timer of a GPU: every call takes 2 us, and a caller waits 3 ms; a run is a run."""

    unit = "seconds"

    def __init__(self, device):
        self.device = device

    def cost(self, work, together=1):
        work()
        return {"seconds": 2e-6}

    def times(self, work):
        work()
        return 1e-3, 3e-3


@pytest.fixture
def timed(monkeypatch):
    """What makers have on a GPU: a device, and here a simulated one."""
    for module in (measure, nets):
        monkeypatch.setattr(module, "Timer", Stopwatch)
    monkeypatch.setattr(measure, "medians", lambda work, wait: (work(), (4e-6, 1e-6))[1])
    monkeypatch.setitem(nets.SUBJECTS, "mlp", SMALL_MLP._replace(make=lambda: bnn.mlp(width=16), small={}))
    return making(device=simwarp.Device())


def test_on_a_gpu_products_have_times_of_kernels_and_of_real_operands_until_the_answer(timed):
    (packed,) = bits.products(("bmm32",), (33,))(timed).rows
    (real,) = bits.products(("bmm32",), (33,), real=True)(timed).rows
    assert packed == {"scheme": "bmm32", "n": 33, "us": pytest.approx(2), "TOPS": pytest.approx(33**3 / 1e6)}
    assert real == {"scheme": "bmm32", "n": 33, "us": pytest.approx(4), "TOPS": pytest.approx(33**3 / 2e6)}


def test_on_a_gpu_networks_have_a_latency_and_a_throughput(timed):
    found = nets.networks(("mlp",), {"SBNN-32": nets.BSTC["SBNN-32"]}, 2)(timed)
    rate = pytest.approx(8 / 3e-3)
    assert found.rows == [
        {"network": "mlp", "scheme": "SBNN-32", "ms": 3.0, "images/s": rate, "to SBNN-32": 1.0}
    ]
    assert "what a caller waits for" in found.sizes


# ------------------------------------------------------------------------------------------------ data


@pytest.fixture
def folder(tmp_path):
    """A folder with a tensor of four nonzeros in three fibers along its last mode, and images."""
    coords = np.array([[0, 0, 1, 2], [1, 1, 0, 2], [0, 3, 2, 1]], np.uint32)
    write_tns(tmp_path / "nell2.tns", Coo(coords, np.arange(1.0, 5.0), (3, 3, 4)))
    np.save(tmp_path / "mnist.npy", np.full((3, 28, 28, 1), 9, np.uint8))
    return tmp_path


def test_a_tensor_of_the_folder_takes_the_place_of_the_look_alike(folder):
    given = making(folder)
    stored = sparse.each_tensor(("nell2",), 1.0, sparse.storage, "x")(given)
    assert stored.data == "nell2 of nell2.tns"
    of = {row["format"]: row["bytes"] for row in stored.rows}
    assert of["coo"] == 12
    (histogram,) = [
        row for row in sparse.histograms("nell2", given.kept["nell2", 1.0][0]) if row["fibers"] == "selected"
    ]
    assert [histogram[name] for name in sparse.BINS] == [3, 0, 0, 0]
    counts = {row["format"]: row["thousands"] for row in sparse.fibers("nell2", given.kept["nell2", 1.0][0])}
    assert counts["b-csf-one"] == 3 / 1e3


def test_runs_of_a_tensor_are_related_to_mm_csf(folder):
    found = sparse.runs(("nell2",), sparse.costs, ("mm-csf", "coo"))(making(folder))
    of = {row["format"]: row for row in found.rows}
    assert of["mm-csf"]["to mm-csf"] == 1.0
    assert of["coo"]["to mm-csf"] == of["coo"]["instructions"] / of["mm-csf"]["instructions"]
    # each of 4 nonzeros asks for its indices (12 bytes), its value, and 2 rows of 32 floats, in each mode
    assert of["coo"]["bytes"] >= 3 * 4 * (16 + 2 * 128)


def test_slices_without_nonzeros_are_left_out():
    coords = np.array([[7, 2, 2], [0, 5, 0], [1, 1, 9]], np.uint32)
    small = sparse.without_empty_slices(Coo(coords, np.arange(3.0), (9, 9, 10)))
    assert small.shape == (2, 2, 2)
    assert small.coords.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_images_of_the_folder_are_used_where_they_fit(folder):
    images, used = Data(folder).images("mnist", (28, 28, 1), 2)
    assert (images == 9).all()
    assert images.shape == (2, 28, 28, 1)
    assert used == "images of mnist.npy"
    assert Data(folder).images("cifar10", (32, 32, 3), 2)[1] == "random images for cifar10"
    with pytest.raises(InputFileError, match=r"uint8 \(3, 28, 28, 1\)[\s\S]*4 or more"):
        Data(folder).images("mnist", (28, 28, 1), 4)
    (folder / "mnist.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(InputFileError, match="cannot be read"):
        Data(folder).images("mnist", (28, 28, 1), 1)


def test_look_alikes_outside_of_the_repository_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(data, "ROOT", tmp_path)
    with pytest.raises(InputFileError, match=r"made by benchmarks/tensors.py[\s\S]*give --data FOLDER"):
        Data().tensor("nell2", 1e-4)


# --------------------------------------------------------------------------------------------- scripts


def test_a_script_runs_once_and_its_rows_are_picked(monkeypatch, tmp_path):
    (tmp_path / "bench.py").write_text(
        "import json, sys\n"
        "rows = [{'case': 'cpd/toy', 'params': {'format': 'coo'}, 'ours': 3.0, 'peers': {'BLCO': 6.0}}]\n"
        "json.dump({'rows': rows}, open(sys.argv[2], 'w'))\n"
        "open('runs', 'a').write('x')\n"
    )
    monkeypatch.setattr(script, "ROOT", tmp_path)
    maker, given = script.Script("bench.py", "h200/x.json", sparse.iterations, "all"), making()
    assert (
        maker(given)
        == maker(given)
        == Made([{"tensor": "toy", "format": "coo", "ms": 3.0, "BLCO": 6.0}], "all")
    )
    assert (tmp_path / "runs").read_text() == "x"
    (tmp_path / "bench.py").write_text("raise SystemExit('no GPU')")
    with pytest.raises(script.ScriptFailedError, match=r"ended with 1:\nno GPU\n"):
        maker(making())


def test_a_script_that_is_not_installed_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(script, "ROOT", tmp_path)
    with pytest.raises(SchemeError, match=r"benchmarks/mttkrp.py of simwarp's repository makes it, on a GPU"):
        mm_csf.PAPER.item("figure", "11").makers["cuda"](making())


def test_committed_rows_of_a_script_are_those_of_its_result():
    rows = {row["tensor"]: row for row in mm_csf.PAPER.item("figure", "8").makers["cuda"].committed()}
    found = script.cases(script.ROOT / "benchmarks" / "results" / "h200" / "mttkrp.json")
    nell2 = found["mttkrp-mm-csf/nell2/r32-f32"]
    assert rows["nell2"]["percent"] == pytest.approx(100 * nell2["floor"] / nell2["ours"])
    assert rows["nell2"]["GFLOPS"] == pytest.approx(9 * 20e6 * 32 / nell2["ours"] / 1e6)


# ----------------------------------------------------------------------------------------------- plots

FACTS = {"paper": "toy", "item": "figure 1", "title": "speeds", "sizes": "small", "data": ""}


def test_sizes_give_curves_and_names_give_bars():
    pytest.importorskip("matplotlib")
    curves = [{"scheme": "bmm32", "n": n, "instructions": n**3} for n in (64, 128)]
    drawn = plots.to_svg({**FACTS, "rows": curves})
    assert [text for text in ("bmm32", ">n<", ">instructions<") if text not in drawn] == []
    assert drawn == plots.to_svg({**FACTS, "rows": curves})
    rows = compare.beside(
        Item("table", ("1",), "x", keys=("name",), printed={("a",): {"ms": 2.0}}), [{"name": "a", "ms": 3}]
    )
    drawn = plots.to_svg({**FACTS, "rows": rows})
    assert [text for text in (">printed<", ">ours<") if text not in drawn] == []


def test_words_alone_cannot_be_drawn_and_matplotlib_is_named_where_it_is_absent(monkeypatch):
    def absent(name):
        raise ImportError(f"No module named {name!r}")

    pytest.importorskip("matplotlib")
    with pytest.raises(SchemeError, match="has no numbers to draw"):
        plots.to_svg({**FACTS, "rows": [{"name": "a"}]})
    monkeypatch.setattr(plots, "import_module", absent)
    with pytest.raises(MissingExtraError, match=r"pip install 'simwarp\[plots\]'"):
        plots.to_svg({**FACTS, "rows": []})
