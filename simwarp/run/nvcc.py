"""nvcc: where it is, and the kernels of a source that has code for the host, too."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gpu.compile import normalise
from gpu.compiler.cuda_headers import advice_for, cuda_folders
from reference.errors import CompileError, MissingExtraError

INSTANCES = "__nv_name_map"
"""The file that errors of asked instances of templates name: NVRTC's, and ours for nvcc."""


def nvcc_command() -> list[str]:
    """The command of nvcc: of its package, else of a toolkit."""
    spec = importlib.util.find_spec("nvidia")
    packages = (
        [Path(folder) / "cu13" / "bin" / "nvcc" for folder in spec.submodule_search_locations or []]
        if spec
        else []
    )
    toolkit = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    for path in (*packages, Path(toolkit) / "bin" / "nvcc", Path(shutil.which("nvcc") or "")):
        if path.is_file():
            return [str(path)]
    raise MissingExtraError(
        "a .cu file with code for the host needs nvcc\nit is in no package and no toolkit here\n"
        "pip install 'simwarp[nvcc]', or build the program elsewhere: nvcc -cudart shared -arch=compute_90"
    )


def host_compiler(*names: str) -> str:
    """The path of the first of the named C++ compilers in PATH; MissingExtraError if none is there."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        raise MissingExtraError(
            f"code for the host needs a compiler of the system: {' or '.join(names)}\nnone is in PATH\n"
            "install one, e.g. apt install g++"
        )
    return found


def has_nvcc() -> bool:
    """Whether nvcc and a host compiler are there to build CUDA programs."""
    try:
        nvcc_command()
        host_compiler("g++", "c++")
    except MissingExtraError:
        return False
    return True


def compile_kernels(
    text: str,
    path: Path,
    cc: tuple[int, int],
    include: Sequence[Path],
    options: Sequence[str],
    instances: Sequence[str] = (),
) -> tuple[str, str]:
    """The normalised PTX of a source's kernels, and nvcc's warnings; code for the host is left out.

    Errors are those of `run_nvcc`.
    """
    folders = [f"-I{folder.absolute()}" for folder in (path.parent, *include)]
    with tempfile.TemporaryDirectory() as work:
        source, output = Path(work) / path.name, Path(work) / "kernels.ptx"
        used = "".join(f"void *instance{i} = (void *) {name};\n" for i, name in enumerate(instances))
        source.write_text(f'{text}\n#line 1 "{INSTANCES}"\n{used}', encoding="utf-8")
        flags = ["-ptx", "-lineinfo", "-std=c++17", f"-arch={architecture(cc)}", *folders, *options]
        log = run_nvcc(flags, source, output, path)
        return normalise(output.read_text(), [path.name]), log


def architecture(cc: tuple[int, int]) -> str:
    """The virtual architecture for a chip with its own features, such as "compute_90a"."""
    return f"compute_{10 * cc[0] + cc[1]}{'a' if cc >= (9, 0) else ''}"


def run_nvcc(flags: Sequence[str], source: Path, output: Path, shown: Path) -> str:
    """Run nvcc with CUDA's headers, and return its output, in which the source is called ``shown``.

    MissingExtraError without nvcc or the host's C++ compiler; CompileError, with its output, if nvcc fails.
    """
    host_compiler("g++", "c++")
    headers = [f"-isystem={folder}" for folder in cuda_folders()]
    command = [*nvcc_command(), *headers, *flags, "-o", str(output), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    log = (done.stdout + done.stderr).strip()
    if source != shown:
        log = log.replace(str(source), shown.name)
    if done.returncode:
        missing = re.search(r"fatal error: (\S+): No such file", log)
        package = advice_for(missing[1]) if missing else ""
        advice = f"\n{package}" if package else ""
        reason = f"{shown} does not compile (nvcc ended with {done.returncode})"
        raise CompileError(f"{reason}:\n{log}{advice}", log)
    return log
