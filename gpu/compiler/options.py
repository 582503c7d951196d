"""NVRTC's options: which of them count, and the files that they make a compilation read."""

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
    """The effect of options on a source.

    Attributes
    ----------
    text : list of str
        Macros and includes of the command line, as a source would write them.
    known : bool
        Whether all options are ones that read no other file and write none. ``-I`` is not among them: what
        is in its folders comes before CUDA's headers, and is not followed.
    """

    text: list[str] = field(default_factory=list[str])
    known: bool = True


_ONE_VALUE = frozenset("fmad ftz prec-div prec-sqrt std maxrregcount".split())  # noqa: SIM905 - a list of words


def last_of_each(options: Sequence[str]) -> list[str]:
    """The options without values that a later one replaces: NVRTC would take the last and warn."""
    names = [option.lstrip("-").partition("=")[0] for option in options]
    return [
        option
        for at, (option, name) in enumerate(zip(options, names, strict=True))
        if "=" not in option or name not in _ONE_VALUE or name not in names[at + 1 :]
    ]


_VALUES = {"D": "D", "define-macro": "D", "U": "U", "undefine-macro": "U"} | {
    "include": "include",
    "pre-include": "include",
}


def read_options(options: Sequence[str]) -> Options:
    """The macros and includes of NVRTC's options."""
    found, waiting = Options(), ""
    for option in options:
        if waiting:  # the value of the option before
            _add(found, waiting, option)
            waiting = ""
            continue
        name, equals, value = option.lstrip("-").partition("=")
        attached = not option.startswith("--") and name[:1] in ("D", "U")
        if name in _VALUES and equals:
            _add(found, _VALUES[name], value)
        elif name in _VALUES:
            waiting = _VALUES[name]
        elif attached:
            _add(found, name[0], option.lstrip("-")[1:])
        elif name not in _READS_NOTHING:
            found.known = False
    return found


def _add(found: Options, kind: str, value: str) -> None:
    if kind == "include":
        found.text.append(f'#include "{value}"')
    elif kind == "D":
        macro, _, body = value.partition("=")
        found.text.append(f"#define {macro} {body}")
