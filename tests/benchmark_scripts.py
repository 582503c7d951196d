"""The scripts of ``benchmarks/`` as modules."""

import sys
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "benchmarks"


def scripts(*names):
    """Some scripts, as they run in their folder; other folders have modules of the same names."""
    own = [path.stem for path in FOLDER.glob("*.py")]
    before = {name: sys.modules.pop(name) for name in own if name in sys.modules}
    sys.path.insert(0, str(FOLDER))
    try:
        return [import_module(name) for name in names]
    finally:
        sys.path.remove(str(FOLDER))
        for name in own:
            sys.modules.pop(name, None)
        sys.modules.update(before)
