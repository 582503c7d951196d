"""Copies that happen between their instruction and a wait: of threads, in bulk, and through tensor maps."""
