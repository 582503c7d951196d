"""Kernels, tensors and projects that several tests share."""
