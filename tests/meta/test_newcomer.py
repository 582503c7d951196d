"""The README's way from a clone to the first finding, in a folder and an environment of their own."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from simwarp.cli import main

ROOT = Path(__file__).parents[2]


@pytest.mark.gate
def test_the_readme_leads_from_a_clone_to_the_line_of_a_race(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    source = re.search(r"```cuda\n(.*?)```", readme, re.DOTALL)
    console = re.search(r"<!-- newcomer -->\n```console\n(.*?)```", readme, re.DOTALL)
    assert source is not None
    assert console is not None
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, tracked.decode().split("\0")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "my.cu").write_text(source[1])
    commands = re.findall(r"^\$ (.*)$", console[1], re.MULTILINE)
    assert len(commands) == 2
    clean = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    install, run = (
        subprocess.run(
            command, shell=True, cwd=tmp_path, env=clean, capture_output=True, text=True, check=False
        )
        for command in commands
    )
    assert install.returncode == 0, install.stderr
    assert run.returncode == 1
    assert console[1].split(commands[1])[1].strip() in run.stdout + run.stderr


def test_the_commands_of_the_readme_are_on_files_that_exist_or_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = (ROOT / "README.md").read_text()
    (source,) = re.findall(r"```cuda\n(.*?)```", readme, re.DOTALL)
    (tmp_path / "my.cu").write_text(source)
    monkeypatch.chdir(tmp_path)
    commands = [shlex.split(line, comments=True) for line in re.findall(r"^\$ (.*)$", readme, re.MULTILINE)]
    words = [word for command in commands for word in command if re.search(r"\.(cu|py|npy|ptx)$", word)]
    assert len(words) > 10
    assert [word for word in words if word != "my.cu" and not (ROOT / word).is_file()] == []
    mine = [command[1:] for command in commands if "my.cu" in command and command[0].endswith("simwarp")]
    assert [main(command) for command in mine] == [1, 0, 0]  # the race, the other kernel, coverage
