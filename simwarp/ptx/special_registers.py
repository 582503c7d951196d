"""The special registers (PTX ISA chapter 10): their names and types; their values are in `simwarp.engine`."""

from __future__ import annotations

_AXES = "xyz"
_THREE = ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
_FIXED = {
    **dict.fromkeys((f"{name}.{axis}" for name in _THREE for axis in _AXES), "u32"),
    **dict.fromkeys(("laneid", "warpid", "nwarpid", "smid", "nsmid", "cluster_ctarank"), "u32"),
    "cluster_nctarank": "u32",
    "gridid": "u64",
    "is_explicit_cluster": "pred",
    **dict.fromkeys((f"lanemask_{which}" for which in ("eq", "lt", "le", "gt", "ge")), "u32"),
    **dict.fromkeys((f"{which}_smem_size" for which in ("dynamic", "total", "aggr")), "u32"),
    **dict.fromkeys((f"reserved_smem_offset_{which}" for which in ("begin", "end", "cap", "0", "1")), "u32"),
    **dict.fromkeys((f"envreg{i}" for i in range(32)), "u32"),
}
_COUNTERS = {
    **{"clock": "u32", "clock_hi": "u32", "clock64": "u64"},
    **{"globaltimer": "u64", "globaltimer_lo": "u32", "globaltimer_hi": "u32"},
    **{f"pm{i}": "u32" for i in range(8)},
    **{f"pm{i}_64": "u64" for i in range(8)},
}

TYPES = {f"%{name}": kind for name, kind in {**_FIXED, **_COUNTERS}.items()}
"""The PTX type of each special register."""
CHANGING = frozenset(f"%{name}" for name in _COUNTERS)
"""Those that change while a block runs."""
