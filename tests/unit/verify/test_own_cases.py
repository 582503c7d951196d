"""Cases of users: from three functions, and files of ``simwarp verify FILE``."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import numpy as np
import pytest

from reference.errors import DtypeError, FormatError, InputFileError, SchemeError
from simwarp.cli import main
from simwarp.verify import Case, check, simulator, verify
from simwarp.verify.own import TEMPLATE, cases_in

ON_SIMULATOR = {"simulator": simulator}


def drawn(d):
    return {"x": d.matrix(1, d.integer(1, 9), "int8")[0].astype(np.int32), "by": d.integer(1, 3)}


def product(item):
    return item["x"] * item["by"]


def of(kernel, **options):
    return Case.of(drawn, product, kernel, name="mine", **options)


def mismatches(case, inputs=6):
    return [found for k in range(inputs) for found in check(case, 0, k, ON_SIMULATOR).mismatches]


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "case"]) == 0
    return tmp_path / "my_case.py"


def test_the_template_agrees_and_its_mutant_is_found_where_it_writes(file, capsys):
    assert main(["verify", "my_case.py", "--inputs", "5", "--jobs", "1", "--json"]) == 0
    capsys.readouterr()
    file.write_text(file.read_text().replace("i < columns;", "i < columns - (row == 0);"))
    assert main(["verify", "my_case.py", "--inputs", "5", "--jobs", "1", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["rows"][1]["mismatches"] >= 4
    first = report["mismatches"][0]
    assert (first["case"], first["element"], first["file"]) == ("row_sums", [0], "my_case.py")
    assert "sums[0], written from" in first["message"]
    assert first["replay"] == f"simwarp verify my_case.py --case row_sums --seed 0 --input {first['input']}"
    arguments = first["replay"].split()[1:]
    assert main([*arguments, "--json"]) == 1


def test_an_existing_file_is_kept(file, capsys):
    file.write_text("mine")
    assert main(["new", "case"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert file.read_text() == "mine"
    assert main(["new", "case", "other.py", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"] == "simwarp verify other.py"


def test_answers_are_compared_with_the_reference_in_type_shape_and_value():
    assert mismatches(of(lambda item, device: product(item))) == []
    assert len(mismatches(of(lambda item, device: product(item).astype(np.int64)))) == 6
    assert len(mismatches(of(lambda item, device: product(item)[:-1]))) == 6
    wrong = mismatches(of(lambda item, device: product(item) + 1))
    assert len(wrong) == 6
    assert "its answer[0]" in str(wrong[0])
    assert "x: int32" in str(wrong[0])
    assert "by: " in str(wrong[0])


def test_a_bound_admits_what_is_near_and_equal_infinities():
    def far(item, device):
        return product(item) + np.float32(0.5)

    def near(item):
        return 0.5

    assert mismatches(of(far, bound=near)) == []
    assert len(mismatches(of(far, bound=lambda item: 0.4))) == 6
    odd = np.array([np.inf, np.nan, -np.inf])
    assert mismatches(Case.of(drawn, lambda item: odd, lambda item, device: odd.copy(), bound=near)) == []


def test_a_listing_is_a_tier():
    case = of(lambda item, device: product(item), listing=lambda item: product(item) * 0)
    assert {found.tier for found in mismatches(case)} == {"listing"}


def test_booleans_are_compared_as_numbers():
    case = Case.of(drawn, lambda item: item["x"] > 0, lambda item, device: item["x"] >= 0, name="b")
    found = mismatches(case, 40)
    assert found
    assert {(one.expected, one.got) for one in found} == {(0, 1)}


def test_what_raises_is_named_with_its_line(tmp_path):
    for role, text in (("draw", "1 / 0"), ("reference", "[0][1]"), ("kernel", "{}['x']")):
        functions = {
            "draw": "def draw(d):\n    return d.integer(2, 2)\n",
            "reference": "def reference(x):\n    return [x]\n",
            "kernel": "def kernel(x, device):\n    return [x]\n",
        }
        functions[role] = functions[role].partition("\n")[0] + f"\n    return {text}\n"
        path = tmp_path / f"{role}_raises.py"
        made = "case = Case.of(draw, reference, kernel)\n"
        path.write_text("from simwarp.verify import Case\n" + "".join(functions.values()) + made)
        case = cases_in([path])["case"]
        line = 3 + 2 * list(functions).index(role)
        if role == "kernel":
            (found,) = mismatches(case, 1)
            assert f"kernel raised for 2: KeyError: 'x' ({path.name}, line {line})" in found.fault
            continue
        with pytest.raises(FormatError, match=rf"{role} raised for .*{path.name}, line {line}"):
            check(case, 0, 0, ON_SIMULATOR)


def test_files_that_hold_no_case_say_what_to_write(tmp_path):
    with pytest.raises(InputFileError, match="cannot be read: No such file"):
        cases_in([tmp_path / "none.py"])
    for text, what in (
        ("x = 1", "holds no case"),
        ("x = ", "cannot be run: SyntaxError"),
        ("1 / 0", "line 1"),
    ):
        path = tmp_path / "empty.py"
        path.write_text(text)
        with pytest.raises(InputFileError, match=what):
            cases_in([path])


def test_a_file_may_have_the_name_of_a_module_and_dataclasses(tmp_path):
    path = tmp_path / "random.py"
    path.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Item:\n    n: int\n" + TEMPLATE
    )
    assert [*cases_in([path])] == ["row_sums"]
    import random

    assert random.Random(0).random() > 0


def test_arguments_that_are_no_functions_are_refused():
    for wrong in ({"reference": None}, {"draw": 3}, {"kernel": "k"}, {"bound": 1.0}, {"listing": []}):
        (name,) = wrong
        functions = {"draw": drawn, "reference": product, "kernel": product, **wrong}
        with pytest.raises(DtypeError, match=rf"Case.of: {name} is a "):
            Case.of(**functions)


def test_answers_that_are_no_numbers_are_refused():
    with pytest.raises(DtypeError, match="reference returned"):
        check(Case.of(drawn, lambda item: "text", lambda item, d: 1, name="t"), 0, 0, ON_SIMULATOR)
    (found,) = mismatches(of(lambda item, device: None), 1)
    assert "kernel returned object" in found.fault


def test_cases_are_chosen_and_replayed_by_their_names(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    named = TEMPLATE.replace("reference, kernel, output", "reference, kernel, name='sums of rows', output")
    text = named.replace("i < columns;", "i < columns - (row == 0);") + "other = row_sums\n"
    (tmp_path / "named.py").write_text(text)
    assert [*cases_in([tmp_path / "named.py"])] == ["sums of rows"]  # one case, under two variables
    assert main(["verify", "named.py", "--inputs", "2", "--jobs", "1", "--json"]) == 1
    replay = json.loads(capsys.readouterr().out)["mismatches"][0]["replay"]
    assert main([*shlex.split(replay)[1:], "--json"]) == 1
    (tmp_path / "again.py").write_text(text)
    assert main(["verify", "named.py", "again.py"]) == 2
    assert "has one of that name" in capsys.readouterr().err


def test_two_cases_of_one_name_are_refused():
    def kernel(item, device):
        return product(item)

    def twice(item):
        return 2 * product(item)

    cases = [Case.of(drawn, product, kernel), Case.of(drawn, twice, kernel)]
    with pytest.raises(SchemeError) as refused:
        verify(cases, ON_SIMULATOR, inputs=1)
    assert str(refused.value).splitlines() == [
        "verify: two cases are called 'kernel', the name of its kernel's function",
        "inputs are counted and replayed by the name of their case",
        "name each: Case.of(…, name=…)",
    ]
    with pytest.raises(SchemeError, match=r"called 'mine'\n"):
        verify([of(kernel), of(kernel)], ON_SIMULATOR, inputs=1)
    cases[1] = replace(cases[1], name="other")
    outcome = verify(cases, ON_SIMULATOR, inputs=1)
    assert [row.case for row in outcome.rows if row.mismatches] == ["other"]


def test_a_case_without_a_name_has_that_of_its_kernel():
    def off_by_one(item, device):
        return product(item) + 1

    class Kernel:
        def __call__(self, item, device):
            return product(item) + 1

    for kernel, name in ((off_by_one, "off_by_one"), (Kernel(), "Kernel")):
        (found,) = mismatches(Case.of(drawn, product, kernel), 1)
        assert found.case == name
        assert str(found).startswith(f"{name}, input 0 (x: int32 ")
        assert found.command == f"simwarp verify --case {name} --seed 0 --input 0"


def test_a_case_without_a_reference_is_refused():
    case = of(lambda item, device: product(item))
    with pytest.raises(
        SchemeError, match="the case 'mine' has no reference: its answers are gpu\n"
    ) as caught:
        replace(case, answers={"gpu": case.answers["gpu"]})
    assert len(str(caught.value).splitlines()) == 3
    with pytest.raises(DtypeError, match=r"Case\.of: reference is a NoneType"):
        Case.of(drawn, None, product)
