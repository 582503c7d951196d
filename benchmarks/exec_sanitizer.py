"""Our own programs under `simwarp exec`, and under compute-sanitizer on a GPU.

    python benchmarks/exec_sanitizer.py --json sanitizer.json              # where a GPU and a toolkit are
    python benchmarks/exec_sanitizer.py --simwarp --json simwarp.json      # anywhere

Programs of ``tests/exec/programs``, each with the findings of a tool: their lines, and whether the program
ended within the time.
"""

import json
import re
import subprocess
import tempfile
import time
from pathlib import Path

from common import about_this_run, parser_of

from reference.files import write_whole

PROGRAMS = Path(__file__).parents[1] / "tests" / "exec" / "programs"
TOOLS = ("", "memcheck", "racecheck", "initcheck", "synccheck")
"""The tools of compute-sanitizer; "" for the program by itself."""
SECONDS = 20
_FOUND = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
_LINE = re.compile(r"in ([\w.]+\.cu):(\d+)")


def ran(command: list[str]) -> tuple[int | None, str, float]:
    """The exit code, None after the time limit; the output; and the seconds."""
    began = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        code, text = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as stopped:
        code, text = None, str((stopped.stdout or b"") + (stopped.stderr or b""))
    return code, text, round(time.monotonic() - began, 2)


def under_sanitizer(program: Path, folder: Path) -> dict[str, object]:
    """A program's exit code, findings, lines and seconds under each tool."""
    binary, found = folder / program.stem, {}
    flags = ["-arch=sm_90a", "-lineinfo", "-lcuda"]
    subprocess.run(["nvcc", *flags, "-o", str(binary), str(program)], check=True, capture_output=True)
    for tool in TOOLS:
        code, text, seconds = ran(
            ["compute-sanitizer", "--tool", tool, str(binary)] if tool else [str(binary)]
        )
        count = _FOUND.search(text)
        lines = sorted({f"{file}:{line}" for file, line in _LINE.findall(text)})
        found[tool or "alone"] = {
            "exit_code": code,
            "findings": int(count[1]) if count else None,
            "lines": lines,
            "seconds": seconds,
        }
    return found


def under_simwarp(program: Path) -> dict[str, object]:
    """A program's exit code, findings and seconds under `simwarp exec`."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        code, _, seconds = ran(["simwarp", "exec", "--report", file.name, str(program)])
        report = json.loads(Path(file.name).read_text() or '{"findings": []}')
    places = [(fault["class"], fault.get("place") or {}) for fault in report["findings"]]
    lines = [f"{kind} {at.get('source_file')}:{at.get('source_line')}" for kind, at in places]
    return {"exit_code": code, "findings": lines, "missing": report.get("missing"), "seconds": seconds}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--simwarp", action="store_true", help="run them under simwarp exec")
    options = parser.parse_args()
    programs = [path for path in sorted(PROGRAMS.glob("*.cu")) if not path.stem.startswith("linked")]
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for program in programs:
            found = under_simwarp(program) if options.simwarp else under_sanitizer(program, Path(folder))
            rows[program.stem] = found
            print(program.stem, json.dumps(found))
    if options.json:
        text = json.dumps({"meta": about_this_run(), "programs": rows}, indent=1) + "\n"
        write_whole(options.json, lambda file: file.write(text.encode()))


if __name__ == "__main__":
    main()
