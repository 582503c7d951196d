"""Out-of-core convolutions on simulated machines: calls by sizes, and the figures of the paper."""
