"""Kernels, tensors and projects shared by several tests."""
