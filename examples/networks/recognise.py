"""Recognise handwritten digits by the networks that digits.py trained, on every available device.

For each of the 449 digits that the training did not see, a device must give the class that PyTorch gave, and
the exact integers of the reference.
"""

import json
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import gpu
import gpu.bnn
import reference.bnn
import simwarp
from reference import MissingExtraError, NoGpuError

FOLDER = Path(__file__).parent

pixels, labels = load_digits(return_X_y=True)
images = pixels[3::4].astype(np.uint8).reshape(-1, 8, 8, 1)
classes_of_pytorch = json.loads((FOLDER / "digits.json").read_text())
devices = [simwarp.Device()]
try:
    devices.append(gpu.CudaDevice())
except (MissingExtraError, NoGpuError):
    print("no GPU here: only the simulator")

agreed = True
for name, expected in classes_of_pytorch.items():
    network = reference.bnn.load(FOLDER / f"{name}.safetensors")
    sums = reference.bnn.run(network, images).sums
    for device in devices:
        answer = gpu.bnn.run(network, images, device=device)
        equal = answer.classes.tolist() == expected and np.array_equal(answer.sums, sums)
        right = (answer.classes == labels[3::4]).mean()
        print(f"{name}, {device.name}: {right:.1%} of {len(images)} digits, classes", end=" ")
        print("equal" if equal else "DIFFER FROM", "PyTorch's")
        agreed = agreed and equal
sys.exit(0 if agreed else 1)
