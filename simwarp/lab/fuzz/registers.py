"""The registers of generated programs.

>>> register_class("f32"), register_class("s8"), register_class("pred")
('b32', 'b16', 'pred')
"""

from __future__ import annotations

from simwarp.ptx.rows import storage

POOLS: dict[str, tuple[str, ...]] = {
    "b64": ("%d0", "%d1", "%d2", "%d3"),
    "b32": ("%r0", "%r1", "%r2", "%r3", "%r4", "%r5"),
    "b16": ("%h0", "%h1", "%h2", "%h3"),
    "pred": ("%p0", "%p1", "%p2", "%p3"),
}
"""The registers of each class."""
REGISTERS: tuple[str, ...] = tuple(name for pool in POOLS.values() for name in pool)
CLASS: dict[str, str] = {name: kind for kind, pool in POOLS.items() for name in pool}


def register_class(type_name: str) -> str:
    """The class of registers that hold a PTX type."""
    return "pred" if type_name == "pred" else f"b{max(16, storage(type_name).itemsize * 8)}"
