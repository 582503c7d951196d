"""Accesses to memory and texels by the executing lanes: addresses, reach, values and journal."""
