"""Machine code of products of floats: when it is made, and how it is called."""

from __future__ import annotations

from ctypes import c_int64, c_void_p
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from simwarp.floats.formats import FORMATS
from simwarp.llvm import code_of, llvm
from simwarp.products.format_text import LANES
from simwarp.products.rules import Rule, Types
from simwarp.products.text import module
from simwarp.products.warps import Tiles

PAYS = 1 << 24
"""Multiply-adds of one kind in NumPy, a tenth of a second, before LLVM compiles it: that takes as long."""


class Kind:
    """The products of some types by one rule: how many NumPy computed so far, and their machine code."""

    def __init__(self, types: Types, rule: Rule) -> None:
        self.types, self.rule = types, rule
        self.k = sum(map(len, rule.groups))
        self.computed = 0

    @cached_property
    def code(self) -> Any:
        """The function of the machine code, made when first needed; None without llvmlite, or if refused."""
        if llvm() is None:
            return None
        try:
            signature = [c_void_p] * 6 + [c_int64] * 3
            return code_of(module(self.types, self.rule)).function("product", None, *signature)
        except RuntimeError:
            return None

    def pays(self, tiles: int, m: int, n: int, k: int) -> bool:
        """Whether machine code takes these tiles; counts those that it leaves to NumPy."""
        if not self.rule.fraction_bits or k != self.k or n % LANES or m * k % LANES:
            return False
        if self.computed < PAYS:
            self.computed += tiles * m * n * k
            return False
        return self.code is not None

    def multiply(self, a: Tiles, b: Tiles, c: Tiles) -> tuple[Tiles, npt.NDArray[np.bool_]]:
        """D of contiguous tiles, and which of them hold infinities or NaN, so that D is wrong there."""
        tiles, m, n = c.shape
        d, outside = np.empty(c.shape, FORMATS[self.types[0]].word), np.empty(tiles, np.bool_)
        scratch = np.empty((m + n) * self.k * 12, np.uint8)  # a double and an i32 for each element
        arrays = (a, b, c, d, scratch, outside)
        self.code(*(array.ctypes.data for array in arrays), tiles, m, n)
        return d, outside


@cache
def kind_of(types: Types, rule: Rule) -> Kind:
    """The one kind of some types and a rule."""
    return Kind(types, rule)
