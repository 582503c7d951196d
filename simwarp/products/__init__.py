"""Products of a tensor core: d = a · b + c of whole tiles, bit for bit, for many warps together.

Operands are dense; `simwarp.fragments` maps their elements to lanes and registers. The last two axes are a
tile's rows and columns; leading axes are more warps.
"""

from simwarp.products.double import doubles
from simwarp.products.floating import floats
from simwarp.products.integer import bits, integers
from simwarp.products.rules import Rule, rule_of

__all__ = ["Rule", "bits", "doubles", "floats", "integers", "rule_of"]


def __dir__() -> list[str]:
    return sorted(__all__)
