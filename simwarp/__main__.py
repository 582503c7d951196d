"""``python -m simwarp`` is the command ``simwarp``."""

from simwarp.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
