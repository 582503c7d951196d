"""Temporary pytest projects that find the plugin as in an installation of simwarp."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import settings

from simwarp.device import module as module  # pytester forgets what a run in this process imports first
from simwarp.testing import profiles

ROOT = Path(__file__).resolve().parents[1]
ENTRY_POINT = "[pytest11]\nsimwarp = simwarp.testing.plugin\n"


@contextmanager
def project(pytester, monkeypatch, *folders) -> Iterator:
    """Pytester's folder with the plugin available; ``folders`` are added to the import path.

    Runs use this process (`runpytest_inprocess`) or a new one. The Hypothesis profile is restored afterwards.
    """
    installed = pytester.mkdir("installed")
    (installed / "entry-0.dist-info").mkdir()
    (installed / "entry-0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: entry\nVersion: 0\n"
    )
    (installed / "entry-0.dist-info" / "entry_points.txt").write_text(ENTRY_POINT)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, [*folders, installed, ROOT])))
    for folder in (installed, *folders):
        monkeypatch.syspath_prepend(folder)
    pytester.makeini("[pytest]\naddopts = --strict-markers -W error -p no:cacheprovider\n")
    profile = settings.get_current_profile_name()
    yield pytester
    profiles.load(profile)
