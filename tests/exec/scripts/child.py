"""A process that starts another, which has no device; its own goes on."""

import subprocess
import sys

from numba import cuda

assert cuda.is_available()
code = "import sys; from numba import cuda; sys.exit(7 if not cuda.is_available() else 0)"
assert subprocess.run([sys.executable, "-c", code], close_fds=False, check=False).returncode == 7
assert cuda.current_context().get_memory_info().total > 0
