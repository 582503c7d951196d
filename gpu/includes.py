"""Which files a source includes: those that NVRTC is given in memory, and those that it will find on disk.

The cache of `gpu.compile` must know every text that PTX depends on. CUDA's own headers are known by the
compiler's version; the others are followed here, in the order in which NVRTC looks for them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

_INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
_COMPUTED = re.compile(r"^\s*#\s*include\s*[A-Za-z_]", re.MULTILINE)


@dataclass
class Includes:
    """What a source includes, directly or not, apart from CUDA's own headers.

    Attributes
    ----------
    package : Path
        Where ``#include "…"`` finds the headers of this project.
    folder : Path, optional
        Where the source lies.
    include : sequence of Path
        Where every include looks, after all other places.
    in_memory : dict of str to str
        Texts that NVRTC is given, by the name in the ``#include``.
    on_disk : dict of Path to str
        Texts that it will find.
    complete : bool
        Whether nothing else can be included: an ``#include MACRO`` may name any file of a folder.

    Examples
    --------
    >>> includes = Includes(Path("gpu"), in_memory={"answer.h": "#define ANSWER 42"})
    >>> includes.follow('#include "answer.h"')
    >>> list(includes.in_memory), includes.on_disk, includes.complete
    (['answer.h'], {}, True)
    """

    package: Path
    folder: Path | None = None
    include: Sequence[Path] = ()
    in_memory: dict[str, str] = field(default_factory=dict[str, str])
    on_disk: dict[Path, str] = field(default_factory=dict[Path, str])
    complete: bool = True

    def follow(self, source: str) -> None:
        """Find what a source includes, and what that includes."""
        waiting = [(source, self.folder), *((text, None) for text in self.in_memory.values())]
        seen: set[str | Path] = set(self.in_memory)
        while waiting:
            text, beside = waiting.pop()
            for quoted, angled in _INCLUDE.findall(text):
                found = self._find(quoted or angled, bool(quoted), beside)
                if found is not None and found not in seen:
                    seen.add(found)
                    waiting.append(self._take(found))
            if _COMPUTED.search(text) and (self.folder or self.include):
                self.complete = False

    def _find(self, name: str, quoted: bool, beside: Path | None) -> str | Path | None:
        """A path on disk, or the name of a text in memory or in the package; None for one of CUDA's."""
        if quoted and (path := _first(name, [beside, self.folder])):
            self.in_memory.pop(name, None)  # NVRTC would prefer that to the file
            return path
        if name in self.in_memory or (quoted and (self.package / name).is_file()):
            return name
        return _first(name, [self.folder, *self.include])

    def _take(self, found: str | Path) -> tuple[str, Path | None]:
        """The text of what was found, and the folder where its own includes look first."""
        if isinstance(found, Path):
            self.on_disk[found] = found.read_text(errors="replace")
            return self.on_disk[found], found.parent
        self.in_memory[found] = (self.package / found).read_text()
        return self.in_memory[found], None

    @property
    def texts(self) -> list[tuple[str, str]]:
        """Every text with its name or path: what the key of a cache must hold."""
        return sorted([*self.in_memory.items(), *((str(path), text) for path, text in self.on_disk.items())])

    @property
    def names(self) -> list[str]:
        """What PTX shall call these files: as they are included, or from the nearest known folder on."""
        places = [place for place in (self.folder, *self.include) if place is not None]
        paths = [
            path.relative_to(place).as_posix()
            for path in self.on_disk
            for place in places
            if path.is_relative_to(place)
        ]
        return [*self.in_memory, *sorted(paths, key=len, reverse=True)]


def _first(name: str, places: Sequence[Path | None]) -> Path | None:
    """The first of the folders' files of that name."""
    paths = (place / name for place in places if place is not None)
    return next((path for path in paths if path.is_file()), None)
