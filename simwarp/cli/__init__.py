"""The command ``simwarp``; if packages are missing, an error names the extra to install."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: success. 1: a check failed, tiers differ, or a kernel faulted. 2: a wrong request. 130: Ctrl-C.

    >>> main(["run", "bmm", "no-such-file.npy", "b.npy", "-o", "c.npy"])
    2
    """
    try:
        from simwarp.cli.commands import run
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich", "click"):
            raise
        sys.stderr.write(
            f"the command line needs {error.name}, which is not installed\npip install 'simwarp[cli]'\n"
        )
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        return 130
    return run(list(sys.argv[1:] if arguments is None else arguments))
