"""The networks of the papers, with random weights.

Source: BSTC (SC'19), table 3; BTC (TPDS'20), table 5, and the programs that the papers publish. Both
count the output layer as the last of a group of fully connected ones. All convolutions are padded with half a
filter, except LeNet's second one.
"""

from __future__ import annotations

from reference.bnn.plans import (
    Form,
    Shortcut,
    plan_alexnet,
    plan_lenet,
    plan_mlp,
    plan_resnet14,
    plan_resnet18,
    plan_vgg16,
    plan_vgg_cifar,
)
from reference.bnn.random_parameters import RandomParameters
from reference.types.network import Network


def mlp(*, width: int = 1, seed: int = 0) -> Network:
    """Make the papers' MLP for MNIST: three hidden layers of 1024 on 28×28 images, 10 classes.

    The images become bits, pixel >= 128. Table 3 of SC'19 names three layers of 1024, table 5 of TPDS'20 four
    with the output's; the programs have three and the output.

    Parameters
    ----------
    width : int
        Divides the sizes of the hidden layers.
    seed : int
        Of weights and batch normalisations.

    Returns
    -------
    Network

    Examples
    --------
    >>> import numpy as np
    >>> from reference.bnn import run
    >>> images = np.random.default_rng(1).integers(0, 256, (2, 28, 28, 1), dtype=np.uint8)
    >>> run(mlp(), images).sums.shape
    (2, 10)
    """
    return plan_mlp(width).network(RandomParameters(seed))


def lenet(*, seed: int = 0) -> Network:
    """Make the LeNet of BSTC's figures 3 and 5 for MNIST: 6 and 16 filters of 5×5, 120, 84, 10 classes.

    The figures give the order of the layers, LeNet-5 (LeCun and others, 1998) the sizes. The images become
    bits, as those of `mlp`; the second convolution is not padded; OR pooling follows each.

    Parameters
    ----------
    seed : int
        Of weights and batch normalisations.

    Returns
    -------
    Network

    Notes
    -----
    Source: BSTC (SC'19), figures 3 and 5 and listing 9.

    Examples
    --------
    >>> import numpy as np
    >>> from reference.bnn import run
    >>> images = np.random.default_rng(1).integers(0, 256, (2, 28, 28, 1), dtype=np.uint8)
    >>> run(lenet(), images).sums.shape
    (2, 10)
    """
    return plan_lenet().network(RandomParameters(seed))


def vgg_cifar(*, size: int = 32, width: int = 1, seed: int = 0) -> Network:
    """Make the papers' VGG for CIFAR-10: 2×128, 2×256, 2×512 filters of 3×3, 2×1024, 10 classes.

    Each pair of convolutions ends with OR pooling of the bits.

    Parameters
    ----------
    size : int
        Height and width of the images, a multiple of 8.
    width : int
        Divides the channels of all layers.
    seed : int
        Of weights and batch normalisations.

    Returns
    -------
    Network

    Examples
    --------
    >>> len(vgg_cifar(size=8, width=8).layers)
    21
    """
    return plan_vgg_cifar(size, width).network(RandomParameters(seed))


def resnet14(
    *, form: Form = "code", shortcut: Shortcut = "A", size: int = 32, width: int = 1, seed: int = 0
) -> Network:
    """Make the papers' ResNet-14 for CIFAR-10: 128, 4×128, 4×256, 4×512 filters of 3×3, 512, 10 classes.

    The tables of both papers give the first convolution stride 2 (``form="paper"``), the programs stride 1
    (``form="code"``).

    Parameters
    ----------
    form : {"code", "paper"}
    shortcut : {"A", "B", "bireal", None}
        A, of the papers: the largest of each 2×2 window, and channels of zeros, where the size changes, else
        nothing. B: a 1×1 convolution of bits there. "bireal": around each convolution, with batch
        normalisations in fixed point.
    size : int
        Height and width of the images, a multiple of 8.
    width : int
        Divides the channels of all layers.
    seed : int
        Of weights and batch normalisations.

    Returns
    -------
    Network

    Notes
    -----
    The programs keep the first layer's float sums as truncated ints in the shortcut; here the images are
    integers, and no sum is rounded.

    Examples
    --------
    >>> resnet14(form="paper", size=8, width=8).layers[0].stride
    (2, 2)
    """
    return plan_resnet14(form, shortcut, size, width).network(RandomParameters(seed))


def alexnet(*, form: Form = "code", size: int = 224, width: int = 1, seed: int = 0) -> Network:
    """Make the papers' AlexNet for ImageNet: five convolutions, 2×4096, 1000 classes.

    The programs have 64 (11×11, stride 4), 192 (5×5), 384, 256 and 256 filters (``form="code"``), table 5 of
    TPDS'20 has 128, 256 and 3×256 (``form="paper"``), table 3 of SC'19 has 128, 256, 2×384 and 256
    (``form="sc19"``).

    Parameters
    ----------
    form : {"code", "paper", "sc19"}
    size : int
        Height and width of the images, a multiple of 32.
    width : int
        Divides the channels of all layers.
    seed : int
        Of weights and batch normalisations.

    Returns
    -------
    Network

    Examples
    --------
    >>> alexnet(form="paper", size=32, width=16).layers[0].filters.shape
    (11, 11, 3, 8)
    """
    return plan_alexnet(form, size, width).network(RandomParameters(seed))


def vgg16(*, size: int = 224, width: int = 1, seed: int = 0) -> Network:
    """Make the papers' VGG-16 for ImageNet: 2×64, 2×128, 3×256, 3×512, 3×512 filters, 2×4096, 1000 classes.

    Parameters
    ----------
    size : int
        Height and width of the images, a multiple of 32.
    width : int
        Divides the channels of all layers.
    seed : int
        Of weights and batch normalisations.

    Returns
    -------
    Network

    Examples
    --------
    >>> len(vgg16(size=32, width=32).layers)
    37
    """
    return plan_vgg16(size, width).network(RandomParameters(seed))


def resnet18(*, shortcut: Shortcut = "A", size: int = 224, width: int = 1, seed: int = 0) -> Network:
    """Make the papers' ResNet-18 for ImageNet: 64 (7×7, stride 4), 4×64 … 4×512 filters, 512, 1000 classes.

    Parameters
    ----------
    shortcut : {"A", "B", "bireal", None}
        As of `resnet14`.
    size : int
        Height and width of the images, a multiple of 32.
    width : int
        Divides the channels of all layers.
    seed : int
        Of weights and batch normalisations.

    Returns
    -------
    Network

    Examples
    --------
    >>> [type(layer).__name__ for layer in resnet18(size=32, width=16).layers[:2]]
    ['Conv', 'Residual']
    """
    return plan_resnet18(shortcut, size, width).network(RandomParameters(seed))
