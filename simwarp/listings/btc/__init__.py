"""Bit tensor cores: the listings of the paper BTC as warp kernels in Python, and its FSB format.

============================== =============================================================
``btc_bmm1``, ``btc_bmm2``     listings 3 and 4: products of bit matrices, designs 1 and 2
``btc_bmm3``                   listing 5: design 3, on operands in FSB format
``btc_bconv1``, ``btc_bconv2`` listing 6: bit convolutions, on packed rows and in FSB format
``to_fsb``, ``from_fsb``       to and from FSB (figure 14); ``fsb_address`` is an element's address
============================== =============================================================

Read the kernels (``BMM``, ``BMMs``, ``BMMb``, ``BTC_Conv2d``) beside the paper; the docstring of each
names the differences from print. `simwarp.listings.btc.fragments` has the instructions of listing 1.

Source: BTC (TPDS), sections 4 and 5, listings 1 to 6, figure 14.
"""

from simwarp.listings.btc.bconv import BTC_Conv2d, btc_bconv1, btc_bconv2
from simwarp.listings.btc.bmm import BMM, BMMb, BMMs, btc_bmm1, btc_bmm2, btc_bmm3
from simwarp.listings.btc.fsb import from_fsb, fsb_address, fsb_words, rows_to_fsb, to_fsb

__all__ = [
    "BMM",
    "BMMb",
    "BMMs",
    "BTC_Conv2d",
    "btc_bconv1",
    "btc_bconv2",
    "btc_bmm1",
    "btc_bmm2",
    "btc_bmm3",
    "from_fsb",
    "fsb_address",
    "fsb_words",
    "rows_to_fsb",
    "to_fsb",
]
