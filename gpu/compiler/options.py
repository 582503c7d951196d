"""NVRTC's options: their effective values, and the files that they make NVRTC read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

_READS_NOTHING = frozenset(
    """
    Ofast-compile Ofc Xptxas arch brief-diagnostics builtin-initializer-list builtin-move-forward
    default-device device-as-default-execution-space device-c device-debug device-float128 device-int128
    device-stack-protector device-w diag-error diag-suppress diag-warn disable-warnings
    display-error-number dopt dc dlto dlink-time-opt dw err-no ewp extensible-whole-program
    extra-device-vectorization fmad frandom-seed ftz G generate-line-info gpu-architecture
    jump-table-density lineinfo maxrregcount minimal modify-stack-limit no-cache no-display-error-number
    no-err-no no-source-include opt-info optimization-info prec-div prec-sqrt ptxas-options rdc
    relocatable-device-code restrict split-compile std use_fast_math w
    """.split()  # noqa: SIM905 - a list of words
)


@dataclass
class Options:
    """The effect of NVRTC's options on the files that are read."""

    # macros and includes of the options, as lines of a source
    text: list[str] = field(default_factory=list[str])
    known: bool = True  # False if an option, e.g. -I, makes NVRTC read or write another file


_ONE_VALUE = frozenset("fmad ftz prec-div prec-sqrt std maxrregcount".split())  # noqa: SIM905 - a list of words


def last_of_each(options: Sequence[str]) -> list[str]:
    """Remove options that a later option overrides, because NVRTC would warn about them."""
    names = [option.lstrip("-").partition("=")[0] for option in options]
    return [
        option
        for at, (option, name) in enumerate(zip(options, names, strict=True))
        if "=" not in option or name not in _ONE_VALUE or name not in names[at + 1 :]
    ]


_LINES = {"D": "#define {}", "define-macro": "#define {}", "U": "", "undefine-macro": ""} | {
    "include": '#include "{}"',
    "pre-include": '#include "{}"',
}
"""Option with a value → the line of a source that has its effect; "" for none."""


def read_options(options: Sequence[str]) -> Options:
    """Find the macros and includes in NVRTC's options, and whether all options are known."""
    effect, rest = Options(), iter(options)
    for option in rest:
        name, equals, value = option.lstrip("-").partition("=")
        if name in _LINES:
            _add(effect, name, value if equals else next(rest, ""))
        elif not option.startswith("--") and name[:1] in ("D", "U"):
            _add(effect, name[0], option.lstrip("-")[1:])
        elif name not in _READS_NOTHING:
            effect.known = False
    return effect


def _add(found: Options, name: str, value: str) -> None:
    """Add one compiler option to the options found so far."""
    line = _LINES[name]
    if line:
        found.text.append(line.format(value.replace("=", " ", 1) if "define" in line else value))
