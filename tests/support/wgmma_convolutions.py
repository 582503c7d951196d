"""Convolutions on warpgroups, compared with the reference: geometries, kinds of output, and one launch."""

import numpy as np

import gpu
import reference
import simwarp
from gpu.bconv.convolution import Launch
from gpu.bconv.geometry import conv_shape
from gpu.bconv.prepared import placed
from gpu.bconv.warpgroups import WARPGROUP_SCHEMES
from simwarp.verify.draw import Draw

WGMMA = WARPGROUP_SCHEMES["wgmma"]
INT32 = np.iinfo(np.int32)

# images (N, H, W, C), filters (R, S, O), options
GEOMETRIES = {
    "one by one": ((3, 5, 4, 70), (1, 1, 64), {}),
    "same": ((2, 5, 6, 60), (3, 3, 33), {}),
    "same, stride 2": ((2, 7, 8, 128), (3, 3, 70), {"stride": 2}),
    "same is asymmetric": ((1, 4, 4, 9), (2, 4, 4), {}),
    "valid": ((1, 7, 6, 200), (5, 5, 8), {"padding": "VALID"}),
    "five by five": ((1, 6, 5, 40), (5, 5, 4), {}),
    "window larger than the image": ((3, 2, 2, 32), (5, 4, 1), {}),
    "asymmetric, above and left": ((1, 3, 4, 9), (3, 3, 4), {"padding": ((2, 0), (3, 0))}),
    "asymmetric, below and right": ((1, 3, 4, 9), (3, 3, 4), {"padding": ((0, 2), (0, 3))}),
    "padding beyond the filter": ((1, 2, 3, 3), (2, 2, 2), {"padding": ((4, 3), (2, 5))}),
    "dilation": ((2, 7, 6, 40), (3, 2, 5), {"dilation": (2, 3)}),
    "dilation that skips the image": ((1, 3, 3, 3), (2, 3, 4), {"dilation": (4, 5)}),
    "stride beyond the filter": ((1, 7, 9, 5), (2, 1, 3), {"stride": (3, 4)}),
    "windows far apart": ((1, 30, 1, 5), (2, 1, 3), {"stride": (13, 1)}),
    "taps far apart": ((1, 310, 2, 5), (2, 1, 3), {"dilation": (300, 1), "padding": "VALID"}),
    "padding far beyond the filter": ((1, 2, 1, 9), (1, 1, 2), {"padding": ((150, 0), (0, 1))}),
    "a stride of one output": ((1, 3, 3, 5), (1, 3, 3), {"stride": (2**31, 1)}),
    "all at once": (
        (3, 7, 5, 130),
        (2, 3, 37),
        {"stride": (2, 1), "dilation": (2, 1), "padding": ((1, 2), (0, 3))},
    ),
    "one of everything": ((1, 1, 1, 1), (1, 1, 1), {}),
}


def signs(*shape, k=0):
    return np.random.default_rng(k).choice(np.array([-1, 1], np.int8), shape)


def rule(dots):
    """Thresholds that split each channel, some beyond every dot product, and flips."""
    channels = dots.shape[3]
    draw = Draw(0, "rule of wgmma", channels)
    lines = dots.reshape(-1, channels)
    thresholds = lines[[draw.integer(0, len(lines) - 1) for _ in range(channels)], np.arange(channels)]
    thresholds = thresholds + np.array([draw.integer(-1, 1) for _ in range(channels)], np.int32)
    thresholds[::7] = draw.choice([INT32.min, INT32.max, -(10**6), 10**6])
    return thresholds, np.array([draw.integer(0, 1) for _ in range(channels)], np.bool_)


def added(x, w, sum_of, device, blocks, **options):
    """The sums of a convolution by so many blocks and their bits, and the expected ones."""
    shape = conv_shape(x.shape, w.shape, **options)
    images, filters = placed(x, "x", WGMMA, device), placed(w, "w", WGMMA, device)
    launch = Launch(WGMMA, shape, "none", sum_of, (9, 0), blocks)
    sums = reference.bconv2d(x, w, **options)
    lines, last = sums.shape[:3], sum_of.before + sum_of.channels
    other = np.random.default_rng(9).integers(-2000, 2000, (*lines, sum_of.channels)).astype(np.int16)
    sums[..., sum_of.before : last] += other
    thresholds, flip = rule(sums)
    y = launch.output_on(device)
    y.upload(np.full(y.shape, -1, y.dtype))
    rest, bits = (device.upload(other),), ()
    if sum_of.bits:
        bits = (device.upload(np.full((*lines, -(-shape.filters // 32)), 0xA5A5A5A5, np.uint32)),)
        rest = (*rest, *bits, device.upload(thresholds), device.upload(flip.astype(np.uint8)))
    launch(device, images, filters, y, rest)
    expected = sums
    if sum_of.pooled:
        n, p, q, o = sums.shape
        expected = sums.reshape(n, p // 2, 2, q // 2, 2, o).max((2, 4))
    words = (reference.threshold_tensor(sums, thresholds, flip).words,) if bits else ()
    return (y.download(), *(each.download() for each in bits)), (expected.astype(np.int16), *words)


def check(x, w, pools=(None, "or", "and"), device=None, **options):
    """Compare int32, and bits under each pooling that the output size allows, with the reference."""
    device = device or simwarp.Device((9, 0))
    dots = reference.bconv2d(x, w, **options)
    y = gpu.bconv2d(x, w, scheme="wgmma", device=device, **options)
    np.testing.assert_array_equal(y, dots, strict=True)
    thresholds, flip = rule(dots)
    for pool in pools if min(dots.shape[1:3]) > 1 else (None,):
        bits = {"thresholds": thresholds, "flip": flip, "pool": pool}
        packed = gpu.bconv2d(x, w, scheme="wgmma", device=device, **bits, **options)
        expected = reference.threshold_tensor(dots, thresholds, flip, pool=pool)
        assert (packed.shape, packed.layout, packed.word) == (expected.shape, "NHWC", 32)
        np.testing.assert_array_equal(packed.words, expected.words, strict=True)


def launched(tile, x, w, kind, pool, device, blocks, **options):
    """The convolution by one tile and so many blocks, and the expected one."""
    shape = conv_shape(x.shape, w.shape, **options)
    images, filters = placed(x, "x", WGMMA, device), placed(w, "w", WGMMA, device)
    launch = Launch(WGMMA, shape, pool, kind, (9, 0), blocks)
    plan = WGMMA.plan(shape, kind, pool, (9, 0), blocks, tile=tile)
    dots = reference.bconv2d(x, w, **options)
    thresholds, flip = rule(dots)
    of_output = (device.upload(thresholds), device.upload(flip.astype(np.uint8))) if kind == "bits" else ()
    y = launch.output_on(device)
    y.upload(np.full(y.shape, 0xA5A5A5A5, y.dtype) if kind == "bits" else np.full(y.shape, -1, y.dtype))
    device.launch(
        plan, (*WGMMA.operands(images, filters, launch.one_image, device, plan.name), y, *of_output)
    )
    if kind != "bits":
        return y.download(), dots.astype(y.dtype)
    pool = None if pool == "none" else pool
    return y.download(), reference.threshold_tensor(dots, thresholds, flip, pool=pool).words
