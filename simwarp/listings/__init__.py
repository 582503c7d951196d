"""The papers' listings as warp kernels in Python, one to one, and corrected where they had to be.

``pack32_column``, ``pack32_row`` and ``bmm32`` run the kernels ``PackTo32Col``, ``PackTo32Row`` and
``BMM32_Arow_Brow`` on the host's matrices. The kernels are there to be read; each one's docstring
names what differs from print. `simwarp.warp` explains the language they are written in.

Source: BSTC (SC'19), sections 4 and 5.1, listings 1, 2 and 4.
"""

from simwarp.listings.bmm import BMM32_Arow_Brow, bmm32
from simwarp.listings.packing import PackTo32Col, PackTo32Row, pack32_column, pack32_row

__all__ = ["BMM32_Arow_Brow", "PackTo32Col", "PackTo32Row", "bmm32", "pack32_column", "pack32_row"]
