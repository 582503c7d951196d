"""Folders where pytest finds the plugin as it does where simwarp is installed."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENTRY_POINT = "[pytest11]\nsimwarp = simwarp.testing.plugin\n"


def project(pytester, monkeypatch, *folders):
    """Pytester's folder, ready for test runs that see the plugin; ``folders`` are imported from, too."""
    installed = pytester.mkdir("installed")
    (installed / "entry-0.dist-info").mkdir()
    (installed / "entry-0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: entry\nVersion: 0\n"
    )
    (installed / "entry-0.dist-info" / "entry_points.txt").write_text(ENTRY_POINT)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, [*folders, installed, ROOT])))
    pytester.makeini("[pytest]\naddopts = --strict-markers -W error -p no:cacheprovider\n")
    return pytester
