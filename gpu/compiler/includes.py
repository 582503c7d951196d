"""The files that a source includes: texts that NVRTC gets in memory, and files that it finds on disk.

The key of a cached PTX must cover every text on which the PTX depends. CUDA's own headers are covered by
their release; all others are found here, in the places that NVRTC searches, in its order:

1. texts in memory, by their whole name;
2. for ``#include "…"``, the folder of the file that includes; of a text in memory, the working directory;
3. CUDA's folders, then those of the caller.

A file beside the source precedes a text in memory of the same name, which NVRTC then does not get.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from gpu.compiler.cuda_headers import find_in_cuda
from gpu.compiler.directives import Asked, Directives, directives
from reference.errors import InputFileError

_directives = lru_cache(maxsize=256)(directives)


class _Text(NamedTuple):
    """A text to be searched for directives, and the folders that its quoted includes search first."""

    found: Directives
    beside: tuple[Path, ...]
    on_disk: bool = False


@dataclass
class Includes:
    """The files that a source includes, directly or indirectly; `follow` finds them."""

    # the folder where ``#include "…"`` finds this project's headers, which NVRTC gets in memory
    package: Path
    # more texts that NVRTC gets in memory, by name
    given: Mapping[str, str] = field(default_factory=dict[str, str])
    folder: Path | None = None  # the source's folder
    cuda: Sequence[Path] = ()  # CUDA's folders of headers
    include: Sequence[Path] = ()  # the caller's folders of headers
    # texts that NVRTC gets, by their names in an ``#include``
    in_memory: dict[str, str] = field(default_factory=dict[str, str])
    # digests of the files that NVRTC may read, except CUDA's
    on_disk: dict[Path, bytes] = field(default_factory=dict[Path, bytes])
    # each name in a ``__has_include``, with the paths of the files of that name
    answers: set[tuple[str, ...]] = field(default_factory=set[tuple[str, ...]])
    # included headers of CUDA, which may include a file of the user
    of_cuda: set[Path] = field(default_factory=set[Path])
    complete: bool = True  # whether the text can include no other file

    def follow(self, name: str, source: str, *more: str) -> None:
        """Find the files that a source includes, directly or indirectly.

        ``more`` are texts before the source: macros and includes of the command line.
        """
        gave_way: set[str] = set()
        while True:
            self.in_memory = {one: text for one, text in self.given.items() if one not in gave_way}
            self.on_disk, self.answers, self.of_cuda, self.complete = {}, set(), set(), True
            here = _working_folder()
            beside = ((self.folder or here) / name).parent
            start = [_Text(_directives(source), (beside,), on_disk=self.folder is not None)]
            start += [_Text(_directives(text), (here,)) for text in more]
            start += [text for one in self.in_memory for text in self._take(one)]
            replaced = self._walk(start)
            if not replaced:
                return
            gave_way |= replaced

    def _walk(self, waiting: list[_Text]) -> set[str]:
        """Search texts and all that they include; return names in memory that a file on disk precedes."""
        replaced: set[str] = set()
        seen: set[str | Path] = set(self.in_memory)
        read: list[_Text] = []
        while waiting:
            text = waiting.pop()
            read.append(text)
            for asked in text.found.included:
                for found in self._found(asked, text):
                    if text.on_disk and isinstance(found, Path) and asked.name in self.in_memory:
                        replaced.add(asked.name)
                    if isinstance(found, Path) and self._is_of_cuda(found):
                        self.of_cuda.add(found)
                        continue
                    place = found if isinstance(found, str) else _without_detours(found)
                    if place not in seen:
                        seen.add(place)
                        waiting += self._take(found)
        self._ask(read)
        return replaced

    def _ask(self, read: list[_Text]) -> None:
        """Evaluate ``__has_include`` and record the answers; read the files that a macro may name."""
        for text in read:
            self.complete = self.complete and text.found.complete
            for asked in text.found.wanted:
                places = [str(found) for found in self._candidates(asked, text)]
                self.answers.add((asked.name, *(places if asked.later else places[:1])))
        if any(text.found.computed for text in read):
            for text in read:
                for asked in text.found.in_macros:
                    list(self._candidates(asked, text))

    def _found(self, asked: Asked, text: _Text) -> list[str | Path]:
        """The file of an ``#include``, or all candidates for an ``#include_next``."""
        candidates = self._candidates(asked, text, with_package=True)
        return list(candidates) if asked.later else list(islice(candidates, 1))

    def _candidates(self, asked: Asked, text: _Text, *, with_package: bool = False) -> Iterator[str | Path]:
        """Yield every text or file of that name, in the order in which NVRTC searches."""
        near = [folder / asked.name for folder in text.beside] if asked.quoted else []
        if text.on_disk:
            yield from filter(_is_file, near)
        if asked.name in self.in_memory:
            yield asked.name
        if with_package and asked.quoted and self._of_package(asked.name) is not None:
            yield asked.name
        if not text.on_disk:
            yield from filter(_is_file, near)
        if self.include:  # without -I, CUDA's folders are searched last
            yield from filter(None, [find_in_cuda(asked.name, tuple(self.cuda))])
            yield from filter(_is_file, [place / asked.name for place in self.include])

    def _take(self, found: str | Path) -> list[_Text]:
        """Read a file that is included, record its digest, and return it for the search."""
        if isinstance(found, str):
            if found not in self.in_memory and (path := self._of_package(found)) is not None:
                self.in_memory[found] = path.read_text()
            here = _working_folder()
            return [_Text(_directives(self.in_memory[found]), (here, (here / found).parent))]
        try:
            content = found.read_bytes()
        except OSError:
            self.complete = False
            return []
        self.on_disk[found] = hashlib.sha256(content).digest()
        return [_Text(_directives(content.decode("latin-1")), (found.parent,), on_disk=True)]

    def _of_package(self, name: str) -> Path | None:
        """The package's header with a name: beside its sources, or shared in ``include/``."""
        return next(filter(_is_file, (self.package / name, self.package / "include" / name)), None)

    def _is_of_cuda(self, path: Path) -> bool:
        """True if a file is in one of CUDA's folders."""
        return str(path).startswith(tuple(f"{folder}{os.sep}" for folder in self.cuda))

    @property
    def key(self) -> tuple[object, ...]:
        """All included files, and all answers of ``__has_include``, as a part of the cache's key."""
        files = sorted((str(path), digest) for path, digest in self.on_disk.items())
        return sorted(self.in_memory.items()), files, sorted(self.answers)

    def borrowed(self, names: Iterable[str]) -> bool:
        """True if one of the user's folders has a file that CUDA's headers look for."""
        wanted = [name for name in names if name not in self.in_memory]
        return any((place / name).exists() for place in self.include for name in wanted)

    @property
    def names(self) -> list[str]:
        """The names by which the PTX refers to the files: as included, or relative to a known folder."""
        places = [place for place in (self.folder, *self.include) if place is not None]
        paths = [
            path.relative_to(place).as_posix()
            for path in self.on_disk
            for place in places
            if path.is_relative_to(place)
        ]
        return [*self.in_memory, *sorted(paths, key=len, reverse=True)]


def _working_folder() -> Path:
    """The working directory; an empty path if it was removed."""
    try:
        return Path.cwd()
    except OSError:
        return Path()


def _without_detours(path: Path) -> Path:
    """A file's path with its folder resolved, so that all includes of the file have the same path."""
    return Path(os.path.realpath(path.parent)) / path.name


def _is_file(path: Path) -> bool:
    """True if the compiler can read a file; raises for FIFOs, devices and sockets, on which it would hang."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise InputFileError(
            f"{path} is included, and is a FIFO, a device or a socket\n"
            "the compiler can read regular files only\ninclude a regular file"
        )
    return stat.S_ISREG(mode)
