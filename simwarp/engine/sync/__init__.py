"""Synchronisation: warp operations, barriers, mbarriers, grid sync, and the pool of registers."""
