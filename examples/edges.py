"""Find the edges of a photograph by a bit convolution, and compare with padding by zero bits.

Channel c of a pixel is +1 where it is brighter than its neighbourhood by at least the c-th of 24 steps, so
that a flat area has as many +1 as -1. The response to a filter of +1 and -1 is large at its edge and 0 in
flat areas, at the border too: taps outside the image are excluded. `--save` writes three pictures beside
one another: the photograph, its edges, and the frame that appears if the padding is zero bits, each a -1.
"""

import sys
from argparse import ArgumentParser

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_image

import gpu
import simwarp

EDGES = ("++++ ++++ ---- ----", "++-- ++-- ++-- ++--", "++++ -+++ ---+ ----", "++++ +++- +--- ----")
STEPS = 4 * (np.arange(24) - 11.5)  # in shades of grey; 8 bits of each 32-bit word stay unused
photograph = load_sample_image("china.jpg").mean(axis=2)[:425, :640].reshape(85, 5, 128, 5).mean(axis=(1, 3))
around = np.lib.stride_tricks.sliding_window_view(np.pad(photograph, 3, "edge"), (7, 7)).mean(axis=(2, 3))
x = ((photograph - around)[None, :, :, None] - STEPS).astype(np.float32)  # (1, 85, 128, 24): NHWC
filters = np.array([[[1 if tap == "+" else -1 for tap in row] for row in edge.split()] for edge in EDGES])
w = np.repeat(filters.transpose(1, 2, 0)[:, :, None], 24, axis=2).astype(np.int8)  # (4, 4, 24, 4): HWIO


def convolve(border: int) -> np.ndarray:
    """The convolution in NumPy's integers; TensorFlow's SAME pads one row above a 4 x 4 window, two below."""
    signs = np.pad(np.where(x >= 0, 1, -1), ((0, 0), (1, 2), (1, 2), (0, 0)), constant_values=border)
    return sum(signs[:, r : r + 85, s : s + 128] @ w[r, s].astype(int) for r in range(4) for s in range(4))


def picture(response: np.ndarray) -> Image.Image:
    shades = [255 / 192 * abs(y[0]).max(axis=2) for y in (response, convolve(border=-1))]
    return Image.fromarray(np.hstack([photograph, *shades]).clip(0, 255).astype(np.uint8))


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("sim", "cuda"), default="sim")
    parser.add_argument("--save", metavar="PNG")
    options = parser.parse_args()
    device = gpu.CudaDevice() if options.device == "cuda" else simwarp.Device()
    response = gpu.bconv2d(x, w, device=device)
    if options.save:
        picture(response).save(options.save)
    if not np.array_equal(response, convolve(border=0)):
        sys.exit(f"{device.name}: edges DIFFER FROM NumPy's")
    print(f"{device.name}: edges equal NumPy's")
