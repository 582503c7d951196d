"""Recognise handwritten digits by products of signs, on every available device.

A digit is 64 pixels, each turned into +1 or -1. The product of two digits counts the pixels that agree
minus those that differ, so the known digit with the largest product is the nearest one (the least
Hamming distance), and its label is the guess.
"""

import sys

import numpy as np
from sklearn.datasets import load_digits

import gpu
import simwarp
from reference import MissingExtraError, NoGpuError

images, labels = load_digits(return_X_y=True)
# The sign says ink or paper: pixels are 0 to 16, and those above 7 become +1. Guessing the known digits
# from one another (five-fold), this is right for 87.0 %; pixels minus their means, for 86.7 %.
ink = images - 7.5
known, unknown = ink[:1297], ink[1297:]

# What every device must answer, in NumPy's plain integers. Of equal products, argmax takes the first.
products = np.where(unknown > 0, 1, -1) @ np.where(known > 0, 1, -1).T
neighbours = products.argmax(axis=1)
right = labels[neighbours] == labels[1297:]
print(f"{right.sum()} of {right.size} digits recognised: {right.mean():.1%}")

devices = [simwarp.Device()]
try:
    devices.append(gpu.CudaDevice())
except (MissingExtraError, NoGpuError):
    print("no GPU here: only the simulator")

agreed = True
for device in devices:
    answer = gpu.bmm(unknown, known, transpose_b=True, device=device)
    equal = np.array_equal(answer, products) and np.array_equal(answer.argmax(axis=1), neighbours)
    print(f"{device.name}: products and neighbours {'equal' if equal else 'DIFFER FROM'} NumPy's")
    agreed = agreed and equal
sys.exit(0 if agreed else 1)
