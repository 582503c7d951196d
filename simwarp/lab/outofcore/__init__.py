"""Out-of-core convolutions on simulated machines: calls by their sizes, and the paper's figures."""
