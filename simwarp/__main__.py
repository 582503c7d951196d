"""Run the command ``simwarp`` as ``python -m simwarp``."""

from simwarp.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
