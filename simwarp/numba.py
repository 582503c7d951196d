"""Run an unmodified script of ``numba.cuda``: ``python -m simwarp.numba x.py`` is ``simwarp exec x.py``.

The package Numba is ``numba``, which this module does not import.
"""

from __future__ import annotations

import sys

from simwarp.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["exec", *sys.argv[1:]]))
