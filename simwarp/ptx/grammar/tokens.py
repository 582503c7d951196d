"""The tokens of PTX text, and a cursor that reads them.

A token is a name, an opcode with all its modifiers, a directive, a number, a string or a mark. Its first
character shows which one, so a token is just its text.

Source: PTX ISA 9.0, sections 4.1 to 4.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from simwarp.faults import PtxSyntaxError

_TOKEN = re.compile(
    r"""(?:[ \t\r\f\v]|//[^\n]*)*+(
        \n
      | /\*.*?\*/
      | "[^"\n]*"
      | 0[fF][0-9a-fA-F]{8}(?!\w) | 0[dD][0-9a-fA-F]{16}(?!\w)
      | 0[xX][0-9a-fA-F]+U? | 0[bB][01]+U?
      | (?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)? | \d+[eE][-+]?\d+ | \d+U?
      | \.[A-Za-z_](?:\w|::)*
      | [A-Za-z_$%](?:[\w$.]|::)*
      | && | \|\| | << | >> | [<>=!]=
      | .)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_LONGEST = 1200
"""Most characters of a line that errors quote whole; the longest instructions have about 1,100."""
_AROUND = 8
_NAME = re.compile(r"[A-Za-z][\w$]*|[_$%][\w$]+", re.ASCII)
_LETTER = re.compile(r"[\w$]", re.ASCII)
_MARKS = frozenset("-+*/%@!~?&^|,;:(){}[]<>=")


def is_name(text: str) -> bool:
    """Whether a token of PTX is an identifier."""
    return _NAME.fullmatch(text) is not None


class Cursor:
    """A position in PTX text, and methods that read the tokens after it.

    Attributes
    ----------
    texts : list of str
        The tokens, and "" twice for the end, so that every token with a text has a successor.
    lines : list of int
        The line of each token, from 1.
    at : int
        Index of the next token.
    """

    def __init__(self, text: str) -> None:
        self.source = text.split("\n")
        self.at = 0
        self.texts: list[str] = []
        self.lines: list[int] = []
        line = 1
        for token in _TOKEN.findall(text + "\n"):
            if token == "\n":
                line += 1
            elif token.startswith("/*"):
                line += token.count("\n")
            else:
                self.texts.append(token)
                self.lines.append(line)
        self.texts += ["", ""]
        self.lines += [min(line, len(self.source))] * 2
        self._check_characters()

    def _check_characters(self) -> None:
        """Raise a syntax error for characters that PTX does not allow."""
        for text in set(self.texts):
            if len(text) == 1 and text not in _MARKS and not _LETTER.fullmatch(text):
                self.at = self.texts.index(text)
                raise self.error("expected PTX, which is ASCII text")

    @property
    def text(self) -> str:
        """The text of the next token, which is not consumed."""
        return self.texts[self.at]

    @property
    def line(self) -> int:
        """The line of the next token in the PTX text."""
        return self.lines[self.at]

    def take(self) -> str:
        """Consume and return the next token of any kind."""
        text = self.texts[self.at]
        if not text:
            raise self.error("expected another token")
        self.at += 1
        return text

    def accept(self, text: str) -> bool:
        """Consume the next token if it is ``text``; returns whether it was."""
        if self.texts[self.at] == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Consume the next token; a syntax error if it is not ``text``."""
        if self.texts[self.at] != text:
            raise self.error(f"expected {text!r}")
        self.at += 1

    def separated(self, end: str) -> Iterator[None]:
        """Read commas up to the ``end`` of a list; yield before each item, which the caller reads."""
        while True:
            yield
            if self.accept(end):
                return
            if not self.accept(","):
                raise self.error(f"expected ',' or {end!r}")

    def directive(self) -> str:
        """Consume and return a word such as ``.align``; returns "" if none is next."""
        text = self.texts[self.at]
        if not text.startswith(".") or text[1].isdigit():
            return ""
        self.at += 1
        return text

    def name(self) -> str:
        """Consume the next token, an identifier, and return it."""
        text = self.texts[self.at]
        if not is_name(text):
            raise self.error("expected a name")
        self.at += 1
        return text

    def string(self) -> str:
        """Consume the next token, a string, and return it without its quotes."""
        if not self.text.startswith('"'):
            raise self.error("expected a string in quotes")
        return self.take()[1:-1]

    def error(self, expected: str) -> PtxSyntaxError:
        """A syntax error with the line, what was expected and the token found."""
        token = repr(self.text[:_LONGEST]) if self.text else "the end of the text"
        text = self.quote(max(self.at - _AROUND, 0), self.at + _AROUND, self.line)
        return PtxSyntaxError(f"line {self.line}: {expected}, found {token} in `{text}`")

    def quote(self, first: int, end: int, line: int) -> str:
        """A line of the text for an error; a very long one is cut to the tokens from ``first`` to ``end``."""
        text = self.source[line - 1].strip()
        if len(text) <= _LONGEST:
            return text
        return " ".join(["…", *self.texts[first : min(end, first + _LONGEST)]])[:_LONGEST] + " …"
