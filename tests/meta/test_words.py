"""The mechanical rules of docs/style.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RULES = {
    "is no, are no: write 'is not a' (rule 3)": r"(?<![Tt]here )\b(?:is|are) no\b(?! longer| more\b| less\b)",
    "but for: write 'except' (rule 7)": r"\bbut for\b",
    "nothing gave: write 'uninitialised' (rule 1)": r"\b(?:nothing gave|nobody wrote)\b",
    "a clause for a name (rule 1)": r"\bwhat (?:it|they) (?:is|are)\b",
    "courtroom (rule 6)": r"\b(?:bears? witness|no error of anybody|a lie is told)\b",
}
FOLDERS = ("reference", "simwarp", "gpu", "docs", "benchmarks", "examples")


def files() -> list[Path]:
    """The text files of the project."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    kept = [path for path in found if path.suffix in {".py", ".md"}]
    return sorted({*kept, *ROOT.glob("*.md")} - {ROOT / "docs" / "style.md", ROOT / "CHANGELOG.md"})


def broken(text: str) -> list[str]:
    """The lines that violate a rule, with the rule."""
    numbered = enumerate(text.splitlines(), 1)
    return [
        f"{n}: {rule}: {line.strip()}"
        for n, line in numbered
        for rule, of in RULES.items()
        if re.search(of, line)
    ]


@pytest.mark.at_most(4)
@pytest.mark.parametrize("folder", [*FOLDERS, "README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_texts_follow_the_mechanical_rules(folder: str) -> None:
    of_folder = [path for path in files() if path.relative_to(ROOT).parts[0] == folder]
    assert of_folder
    found = {str(path.relative_to(ROOT)): broken(path.read_text()) for path in of_folder}
    assert not {name: lines for name, lines in found.items() if lines}


@pytest.mark.parametrize(
    ("line", "clear"),
    [
        ("a ndarray is no sparse tensor", False),
        ("there is no such device", True),
        ("it is no longer read", True),
        ("all lanes but for the last", False),
        ("all but four bits", True),
        ("what it is depends on the lane", False),
        ("a register that nothing gave a value", False),
    ],
)
def test_a_planted_violation_of_a_word_rule_is_reported(line: str, clear: bool) -> None:
    assert (broken(line) == []) is clear
