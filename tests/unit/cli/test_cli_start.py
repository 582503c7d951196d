"""What the commands import, and what their help says."""

import os
import subprocess
import sys

import pytest

from reference.version import __version__
from simwarp.cli import commands, main
from support.offenders import every_case

NAMES = [name for panel in commands.PANELS.values() for name in panel]
HEAVY = {"numpy", "numba", "gpu", "scipy", "torch", "simwarp.device", "simwarp.engine", "simwarp.lab"}


def loaded(code):
    """The modules that a program has imported at its end."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"import sys\n{code}\nprint('\\n', *sys.modules)"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


def test_help_of_all_commands_imports_none_of_them():
    found = loaded("from simwarp.cli import main\nmain(['--help'])")
    assert found & HEAVY == set()
    assert {name for name in found if name.startswith("simwarp.cli.")} <= {
        "simwarp.cli.commands",
        "simwarp.cli.files",
        "simwarp.cli.output",
    }


@pytest.mark.slow
def test_help_of_each_command_imports_neither_numpy_nor_the_simulator():
    # One process for all: what one of them imports is missed by none.
    found = loaded(f"from simwarp.cli import main\nfor name in {NAMES!r}: main([name, '--help'])")
    assert {"simwarp.cli.run", "simwarp.cli.record"} < found
    assert found & HEAVY == set()


def test_the_packages_import_numpy_only_when_it_is_used():
    assert "numpy" not in loaded("import reference, simwarp, simwarp.testing, simwarp.draw")
    assert {"numpy", "reference.bmm"} < loaded("import reference\nreference.bmm")


@every_case("name", NAMES)
def test_the_table_has_the_first_sentence_of_each_command(name):
    place, text = next(panel[name] for panel in commands.PANELS.values() if name in panel)
    command = commands.load(name)
    assert command.help.splitlines()[0] == text, place
    assert command.name == name


def test_commands_are_ordered_by_use():
    assert NAMES[:3] == ["run", "exec", "check"]


@pytest.mark.parametrize("arguments", [[], ["run"], ["run", "bmm"], ["net"], ["net", "run"], ["info"]])
def test_h_is_help(capsys, arguments):
    assert main([*arguments, "-h"]) == 0
    short = capsys.readouterr().out
    assert main([*arguments, "--help"]) == 0
    assert short == capsys.readouterr().out
    assert " ".join(["Usage: simwarp", *arguments]) in short


def test_help_of_run_shows_the_options_of_a_kernel_of_your_own(capsys):
    assert main(["run", "--help"]) == 0
    printed = capsys.readouterr().out
    assert all(option in printed for option in ("--grid", "--block", "--arg", "--checks", "simwarp run bmm"))
    assert "FILE [" not in printed


def test_the_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"simwarp {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["--nothing"], "simwarp"),
        (["info", "--nothing"], "simwarp info"),
        (["run", "--nothing"], "simwarp run"),
        (["run", "bmm", "--nothing"], "simwarp run bmm"),
        (["net", "run", "--nothing"], "simwarp net run"),
    ],
)
def test_usage_errors_name_the_help_of_their_command(capsys, arguments, command):
    assert main(arguments) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"see {command} --help"


def test_completion_is_offered(capsys, monkeypatch):
    monkeypatch.setenv("_SIMWARP_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "simwarp ver")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit, match="0"):
        main([])
    assert capsys.readouterr().out.split() == ["verify"]
