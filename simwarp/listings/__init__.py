"""The papers' listings as warp kernels in Python, line by line, with their errata corrected.

======================================== ====================================================
``pack32_column``, ``pack32_row``        listings 1 and 2
``pack64_column``, ``pack64_row``        listings 1 and 2 with 64-bit words, section 4
``unpack32``, ``unpack64``               bit-unpacking, section 4
``pack128_column``, ``pack128_row``      words of 128 bits, as two of 64, our own; ``unpack128``
``bmm``                                  listings 3 and 4: four approaches, either layout of A and B
``bmm32``, ``bmm64``                     listings 4 and 5; with ``thresholds=`` listing 7 (-32B, -64B)
``bmms32``, ``bmms64``                   their loops spread over warps (S-32, S-64, S-32B, S-64B)
``bconv32``, ``bconv64``                 listing 6; with ``thresholds=`` bits out (-32B, -64B)
``conv_pool32``                          pooling of bits in three ways, section 6.2; ``pooling_costs``
``sbnn32``                               listings 8 and 9: a network in one kernel, elastic blocks
``btc_bmm1``, ``btc_bmm2``, ``btc_bmm3`` bit tensor cores, listings 3 to 5 of BTC (`simwarp.listings.btc`)
``btc_bconv1``, ``btc_bconv2``           listing 6 of BTC
``skinny_bmm``, ``mma_bmm``              products by mma.sync from sm_80, our own
``wgmma_bmm``, ``wgmma_bconv``           product and convolution on the warpgroups of Hopper, our own
``mttkrp``                               algorithms 2, 6, 7 and 8 of MM-CSF (`simwarp.listings.mttkrp`)
======================================== ====================================================

These functions run the kernels on arrays of the host. Read the kernels (``PackTo32Col``, ``BMM32_Arow_Brow``
…) beside the papers; the docstring of each names the differences from print. They are written for
`simwarp.warp`.

Source: BSTC (SC'19), sections 4 to 6, listings 1 to 9, Table 2; BTC (TPDS),
sections 4 and 5, listings 1 to 6; MM-CSF (SC'19), sections 3.1 and 5, algorithms 2 and 5 to 8.
"""

from simwarp.listings.approaches import (
    BMM32_Acol_Bcol,
    BMM32_Acol_Brow,
    BMM32_Arow_Bcol,
    approach_costs,
    bmm,
    product_of,
)
from simwarp.listings.bconv import Conv2d_32bit, Conv2d_64bit, bconv32, bconv64
from simwarp.listings.bmm import BMM64_LARGEST_K, BMM32_Arow_Brow, BMM64_Arow_Brow, bmm32, bmm64
from simwarp.listings.btc import btc_bconv1, btc_bconv2, btc_bmm1, btc_bmm2, btc_bmm3
from simwarp.listings.delegation import FC, SBNN32, ConvPool, sbnn32, tasks
from simwarp.listings.fine_grained import BMMS32_Arow_Brow, BMMS64_Arow_Brow, bmms32, bmms64
from simwarp.listings.mma import mma_bmm, skinny_bmm
from simwarp.listings.mttkrp import mttkrp
from simwarp.listings.packing import (
    PackTo32Col,
    PackTo32Row,
    PackTo64Col,
    PackTo64Row,
    UnpackFrom32,
    UnpackFrom64,
    pack32_column,
    pack32_row,
    pack64_column,
    pack64_row,
    pack128_column,
    pack128_row,
    unpack32,
    unpack64,
    unpack128,
)
from simwarp.listings.pooling import ConvPool32, Pool, conv_pool32, pooling_costs
from simwarp.listings.wgmma import wgmma_bmm
from simwarp.listings.wgmma_conv import wgmma_bconv

__all__ = [
    "BMM64_LARGEST_K",
    "FC",
    "SBNN32",
    "BMM32_Acol_Bcol",
    "BMM32_Acol_Brow",
    "BMM32_Arow_Bcol",
    "BMM32_Arow_Brow",
    "BMM64_Arow_Brow",
    "BMMS32_Arow_Brow",
    "BMMS64_Arow_Brow",
    "Conv2d_32bit",
    "Conv2d_64bit",
    "ConvPool",
    "ConvPool32",
    "PackTo32Col",
    "PackTo32Row",
    "PackTo64Col",
    "PackTo64Row",
    "Pool",
    "UnpackFrom32",
    "UnpackFrom64",
    "approach_costs",
    "bconv32",
    "bconv64",
    "bmm",
    "bmm32",
    "bmm64",
    "bmms32",
    "bmms64",
    "btc_bconv1",
    "btc_bconv2",
    "btc_bmm1",
    "btc_bmm2",
    "btc_bmm3",
    "conv_pool32",
    "mma_bmm",
    "mttkrp",
    "pack32_column",
    "pack32_row",
    "pack64_column",
    "pack64_row",
    "pack128_column",
    "pack128_row",
    "pooling_costs",
    "product_of",
    "sbnn32",
    "skinny_bmm",
    "tasks",
    "unpack32",
    "unpack64",
    "unpack128",
    "wgmma_bconv",
    "wgmma_bmm",
]


def __dir__() -> list[str]:
    return sorted(__all__)
