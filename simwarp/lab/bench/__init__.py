"""Benchmarks of ±1 products and convolutions against other libraries: problems, peers, measurements."""
