"""``python -m simwarp.testing.evidence record --out FOLDER``."""

import sys

from simwarp.testing.evidence.record import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
