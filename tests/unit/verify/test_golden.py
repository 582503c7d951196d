"""`simwarp.testing.golden`: recordings are complete or absent, and every change is detected."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import simwarp
from reference.errors import InputFileError
from reference.files import write_whole
from simwarp.faults import Deadlock
from simwarp.testing import Golden, load, record, replay
from simwarp.testing.golden import commit
from simwarp.verify import CASES, Draw
from support.offenders import every_case

BMM, PACK = CASES["bmm"], CASES["pack-column"]


class StandIn(simwarp.Device):
    """A simulator that reports a GPU's name, so that `record` takes it for hardware."""

    name = "NVIDIA Test"
    uuid = "00112233445566778899aabbccddeeff"
    driver_version = "580.0"


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden")
    record(BMM, StandIn(), folder, inputs=5, seed=3)
    return files(folder)


@pytest.fixture
def golden(tmp_path, recorded):
    for name, data in recorded.items():
        (tmp_path / name).write_bytes(data)
    return load(tmp_path / "bmm.json")


def test_a_recording_writes_two_files(tmp_path):
    folder = tmp_path / "new" / "folder"
    written = record(BMM, StandIn(cc=(8, 0)), folder, inputs=3, seed=3)
    assert written == [folder / "bmm.npz", folder / "bmm.json"]
    assert set(files(folder)) == {"bmm.npz", "bmm.json"}
    meta = json.loads((folder / "bmm.json").read_text())
    assert meta.pop("date").count("-") == 2
    assert len((meta.pop("commit") or "0" * 40).partition("-")[0]) == 40  # none outside a checkout
    assert meta.pop("sha256") == hashlib.sha256((folder / "bmm.npz").read_bytes()).hexdigest()
    assert meta == {
        "version": 1,
        "subject": "bmm",
        "trial": False,
        "case": "bmm",
        "seed": 3,
        "inputs": 3,
        "gpu": {"name": StandIn.name, "uuid": StandIn.uuid},
        "driver": "580.0",
        "nvrtc": "NVRTC 13.0",
        "arch": [8, 0],
        "ptx": BMM.kernels((8, 0)),
        "command": "simwarp record bmm",
    }


def test_the_outputs_are_raw_words(golden):
    assert sorted(golden.outputs) == [0, 1, 2, 3, 4]
    for k in (0, 2):
        right = BMM.answers["reference"](BMM.draw(Draw(3, "bmm", k)))
        assert golden.outputs[k].dtype == np.int32
        np.testing.assert_array_equal(golden.outputs[k], right)


def test_the_same_recording_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        record(PACK, StandIn(), tmp_path / name, inputs=6, seed=0)
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_a_new_recording_replaces_the_old(tmp_path):
    record(PACK, StandIn(), tmp_path, inputs=2, seed=0)
    record(PACK, StandIn(), tmp_path, inputs=4, seed=1)
    found = load(tmp_path / "pack-column.json")
    assert (found.meta["seed"], len(found.outputs)) == (1, 4)


SMALL, LARGE = 32 * 1024 // 4, 32 * 1024 // 4 + 1


def sized(size, order="C"):
    """A case with a single output of the given number of words."""
    answer = np.arange(2 * size, dtype=np.int32)[::2].reshape(1, -1)
    answers = {"reference": lambda item: answer, "gpu": lambda item, device: answer}
    return replace(BMM, draw=lambda draw: None, answers=answers), answer


def test_large_outputs_are_kept_as_digests(tmp_path):
    for size, whole in ((SMALL, True), (LARGE, False)):
        case, answer = sized(size)
        record(case, StandIn(), tmp_path, inputs=1, seed=0)
        found = load(tmp_path / "bmm.json")
        stored = found.outputs[0]
        if whole:
            np.testing.assert_array_equal(
                stored, answer.view(np.uint32) if answer.flags.c_contiguous else answer
            )
        else:
            digest = hashlib.sha256(b"<i4 (1, %d)" % size + answer.astype("<i4").tobytes()).digest()
            assert stored.tobytes() == digest
        assert replay(found, case, case.answers["reference"]) == []
        assert replay(
            found, case, lambda item, right=answer: np.where(right == 2 * (SMALL - 1), 0, right)
        ) == [0]
        assert replay(found, case, lambda item, right=answer: right.T) == [0]


# Replay


def test_every_tier_is_compared_with_the_golden(golden):
    assert replay(golden, BMM, BMM.answers["reference"]) == []
    assert replay(golden, BMM, BMM.answers["listing"]) == []
    assert replay(golden, BMM, lambda item: BMM.answers["gpu"](item, simwarp.Device())) == []


def changed(change, at):
    """The reference's outputs with one of them changed."""
    seen = iter(range(1000))

    def answer(item):
        right = BMM.answers["reference"](item).copy()
        return change(right) if next(seen) == at else right

    return answer


def flip(answer):
    answer.flat[answer.size // 2] ^= 1
    return answer


@pytest.mark.singly
@pytest.mark.parametrize("at", [0, 1, 4])
@pytest.mark.parametrize(
    "change",
    [
        flip,
        lambda c: c.astype(np.int64),
        lambda c: c.view(np.uint32),
        lambda c: c[:-1],
        lambda c: c.reshape(1, -1),
    ],
    ids=["a bit", "int64", "unsigned", "a row less", "another shape"],
)
def test_a_changed_output_is_reported(golden, at, change):
    assert replay(golden, BMM, changed(change, at)) == [at]


def test_a_changed_golden_is_reported(golden):
    golden.outputs[3] = golden.outputs[3] ^ np.uint32(1 << 31)
    assert replay(golden, BMM, BMM.answers["reference"]) == [3]


def test_a_golden_of_other_inputs_is_reported(golden):
    other = Golden({**golden.meta, "seed": 4}, golden.outputs)
    assert replay(other, BMM, BMM.answers["reference"]) == [0, 1, 2, 3, 4]


# Refusals


def test_a_recording_of_the_simulator_is_refused(tmp_path):
    with pytest.raises(InputFileError) as caught:
        record(BMM, simwarp.Device(), tmp_path / "none", inputs=1, seed=0)
    what, advice = str(caught.value).splitlines()
    assert what.startswith("goldens are recorded on hardware, not on simwarp simulator")
    assert advice == "pass a gpu.CudaDevice()"
    assert not (tmp_path / "none").exists()


@pytest.mark.gate
def test_outputs_may_have_several_types(tmp_path):
    """Words of 32 and 64 bits alternate; a product is int32 or packed."""
    for case, inputs in ((PACK, range(4, 6)), (BMM, (2, 82, 87, 9 * 5 + 2))):
        drawn = {k: case.draw(Draw(0, case.name, number)) for k, number in enumerate(inputs)}
        some = replace(case, draw=lambda draw, drawn=drawn: drawn[draw.k])
        record(some, StandIn(), tmp_path, inputs=len(drawn), seed=0)
        found = load(tmp_path / f"{case.name}.json")
        answers = [case.answers["reference"](item) for item in drawn.values()]
        assert len({answer.dtype for answer in answers}) > 1
        assert replay(found, some, some.answers["reference"]) == []
        as_int64 = replay(
            found, some, lambda item, some=some: some.answers["reference"](item).astype(np.int64)
        )
        assert as_int64 == list(drawn)


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), Deadlock("stuck"), OSError("gone")])
def test_a_stopped_recording_keeps_the_old_files(tmp_path, stop):
    record(BMM, StandIn(), tmp_path, inputs=2, seed=0)
    before = files(tmp_path)
    answer = BMM.answers["gpu"]
    calls = []

    def fail(item, device):
        calls.append(item)
        if len(calls) == 3:
            raise stop
        return answer(item, device)

    with pytest.raises(type(stop)):
        record(replace(BMM, answers={**BMM.answers, "gpu": fail}), StandIn(), tmp_path, inputs=5, seed=1)
    assert files(tmp_path) == before


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_failed_write_leaves_no_partial_file(tmp_path, monkeypatch, stop):
    def fail(file, **outputs):
        file.write(b"half of it")
        raise stop

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(InputFileError if isinstance(stop, OSError) else KeyboardInterrupt) as caught:
        record(PACK, StandIn(), tmp_path, inputs=1, seed=0)
    assert files(tmp_path) == {}
    if isinstance(stop, OSError):
        assert "No space left" in str(caught.value)
        assert "--out" in str(caught.value)


def test_unwritable_metadata_is_refused_before_any_file_is_written(tmp_path):
    device = StandIn()
    device.uuid = b"bytes"
    with pytest.raises(TypeError):
        record(PACK, device, tmp_path, inputs=1, seed=0)
    assert files(tmp_path) == {}


def test_an_unwritable_folder_is_reported(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputFileError) as caught:
        record(PACK, StandIn(), tmp_path / "file", inputs=1, seed=0)
    assert "--out" in str(caught.value).splitlines()[1]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("bmm.json", None),
        ("bmm.json", b""),
        ("bmm.json", b"{"),
        ("bmm.json", b"\xff\xfe"),
        ("bmm.npz", None),
        ("bmm.npz", b""),
        ("bmm.npz", b"hello"),
        ("bmm.npz", b"PK\x03\x04 cut short"),
        ("bmm.npz", "cut"),
        ("bmm.npz", "one array"),
        ("bmm.npz", "objects"),
    ],
)
def test_missing_and_damaged_files_are_refused(tmp_path, name, data):
    record(BMM, StandIn(), tmp_path, inputs=2, seed=0)
    path = tmp_path / name
    if data is None:
        path.unlink()
    elif data == "cut":
        path.write_bytes(path.read_bytes()[:-40])
    elif data == "one array":
        with path.open("wb") as file:
            np.save(file, np.arange(3))
    elif data == "objects":
        np.savez(path, **{"0": np.array([None])})
    else:
        path.write_bytes(data)
    with pytest.raises(InputFileError) as caught:
        load(tmp_path / "bmm.json")
    what, advice = str(caught.value).splitlines()
    assert what.startswith(f"no recording at {tmp_path / 'bmm.json'}: ")
    assert advice == "record it on a GPU with `simwarp record bmm`"


def test_a_golden_with_a_flipped_byte_is_damaged(tmp_path):
    record(BMM, StandIn(), tmp_path, inputs=1, seed=0)
    path = tmp_path / "bmm.npz"
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 3] ^= 0x10
    path.write_bytes(whole)
    with pytest.raises(InputFileError):
        load(tmp_path / "bmm.json")


@pytest.mark.at_most(3)
@pytest.mark.parametrize(
    "kept", [[], [0], [0, 1, 2], [1, 2, 3, 4], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 7]], ids=str
)
def test_a_golden_with_missing_outputs_is_refused(tmp_path, golden, kept):
    """Its replay would succeed without comparing the missing outputs."""
    write_arrays(tmp_path, golden, {str(k): golden.outputs[min(k, 4)] for k in kept})
    with pytest.raises(
        InputFileError, match=rf"bmm.npz has .*: {len(kept)} answers\nbmm.json has 5 inputs\n"
    ):
        load(tmp_path / "bmm.json")


def test_outputs_of_other_names_are_refused(tmp_path, golden):
    write_arrays(tmp_path, golden, {f"first{k}": answer for k, answer in golden.outputs.items()})
    with pytest.raises(InputFileError, match=r"bmm\.npz has no answer to input 0: 5 answers\n"):
        load(tmp_path / "bmm.json")


def write_arrays(folder, golden, answers):
    """Write other arrays with a header that matches them."""
    np.savez_compressed(folder / "bmm.npz", **answers)
    digest = hashlib.sha256((folder / "bmm.npz").read_bytes()).hexdigest()
    (folder / "bmm.json").write_text(json.dumps({**golden.meta, "sha256": digest}))


def test_files_of_two_recordings_are_not_mixed(tmp_path, golden):
    """The files are left so by a recording that is killed between them."""
    answers = {str(k): answer ^ 1 for k, answer in golden.outputs.items()}
    np.savez_compressed(tmp_path / "bmm.npz", **answers)
    with pytest.raises(InputFileError, match=r"bmm\.npz has another SHA-256 than bmm\.json names\n"):
        load(tmp_path / "bmm.json")
    without = {name: value for name, value in golden.meta.items() if name != "sha256"}
    (tmp_path / "bmm.json").write_text(json.dumps(without))
    with pytest.raises(InputFileError, match=r"bmm\.npz has another SHA-256 than bmm\.json names\n"):
        load(tmp_path / "bmm.json")


def test_an_interrupt_between_the_files_restores_the_earlier_recording(tmp_path, monkeypatch):
    record(PACK, StandIn(), tmp_path, inputs=2, seed=0)
    before = files(tmp_path)

    def stop(path, write):
        if path.suffix == ".json":
            raise KeyboardInterrupt
        write_whole(path, write)

    monkeypatch.setattr("simwarp.testing.golden.write_whole", stop)
    with pytest.raises(KeyboardInterrupt):
        record(PACK, StandIn(), tmp_path, inputs=3, seed=1)
    assert files(tmp_path) == before
    with pytest.raises(KeyboardInterrupt):
        record(PACK, StandIn(), tmp_path / "new", inputs=3, seed=1)
    assert files(tmp_path / "new") == {}


def test_another_version_is_refused(tmp_path, golden):
    (tmp_path / "bmm.json").write_text(json.dumps({**golden.meta, "version": 2}))
    with pytest.raises(InputFileError, match=r"bmm\.json has version 2, this simwarp reads version 1\n"):
        load(tmp_path / "bmm.json")


def test_a_trial_is_refused_as_a_golden(tmp_path, golden):
    (tmp_path / "bmm.json").write_text(json.dumps({**golden.meta, "trial": True}))
    with pytest.raises(InputFileError, match=r"bmm\.json is a trial on NVIDIA Test, not evidence"):
        load(tmp_path / "bmm.json")
    assert load(tmp_path / "bmm.json", trial=True).outputs.keys() == golden.outputs.keys()


@pytest.mark.parametrize("data", [b"[]", b"3", b"null", b'"x"', b"{}", b"[" * 100_000])
def test_malformed_records_are_refused(tmp_path, golden, data):
    (tmp_path / "bmm.json").write_bytes(data)
    with pytest.raises(InputFileError, match="simwarp record bmm"):
        load(tmp_path / "bmm.json")


@every_case(
    "name",
    [
        *("case", "seed", "gpu", "driver", "nvrtc", "arch", "ptx", "date", "command"),
        *("version", "subject", "trial"),
    ],
)
@every_case("value", ["missing", None, 1.5, True])
def test_records_with_wrong_fields_are_refused(tmp_path, golden, name, value):
    meta = {**golden.meta, name: 1 if name == "trial" and value is True else value}
    if value == "missing":
        del meta[name]
    (tmp_path / "bmm.json").write_text(json.dumps(meta))
    with pytest.raises(InputFileError, match=rf"bmm.json (has|lacks) .*{name}"):
        load(tmp_path / "bmm.json")


@pytest.mark.parametrize("inputs", [None, 0, "5", -1])
def test_records_without_a_number_of_inputs_are_refused(tmp_path, golden, inputs):
    (tmp_path / "bmm.json").write_text(json.dumps({**golden.meta, "inputs": inputs}))
    with pytest.raises(InputFileError, match=rf"inputs: expected int|has {inputs} inputs"):
        load(tmp_path / "bmm.json")


def test_an_empty_replay_or_another_case_is_refused(golden):
    for wrong in (Golden(golden.meta, {}), Golden({**golden.meta, "case": "pack-row"}, golden.outputs)):
        with pytest.raises(InputFileError, match=r"^nothing to replay: "):
            replay(wrong, BMM, BMM.answers["reference"])


def test_the_goldens_of_the_project_are_complete():
    folder = Path(__file__).parents[2] / "golden" / "sm_90"
    for name in ("bmm", "bmm-btc", "bconv2d", "pack-row", "pack-column", "pack-lsb"):
        assert len(load(folder / f"{name}.json").outputs) >= 200


def test_a_tree_without_its_history_has_the_commit_of_the_environment(monkeypatch):
    monkeypatch.setenv("SIMWARP_COMMIT", "0" * 40)
    assert commit() == "0" * 40
