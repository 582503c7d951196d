"""``python -m simwarp.lab.evidence record --out FOLDER``."""

import sys

from simwarp.lab.evidence.record import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
