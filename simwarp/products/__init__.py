"""What a tensor core computes: d = a · b + c of whole tiles, bit for bit, for many warps at once.

Operands are dense here; who holds which element is `simwarp.fragments`' subject. The last two axes are a
tile's rows and columns, every leading axis is more warps.
"""

from simwarp.products.binary import bits
from simwarp.products.double import doubles
from simwarp.products.floating import floats
from simwarp.products.integer import integers
from simwarp.products.rules import Rule, rule_of

__all__ = ["Rule", "bits", "doubles", "floats", "integers", "rule_of"]
