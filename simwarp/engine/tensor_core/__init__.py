"""Matrix products of warps and warpgroups, and the registers of products in flight."""
