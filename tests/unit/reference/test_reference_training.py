"""Layers by definition: gradients against finite differences, convolutions against SciPy, bounds, errors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from reference import DtypeError, RangeError, SchemeError, ShapeError
from reference import training as layers
from reference.training import bounds
from support.offenders import every_case

RNG = np.random.default_rng(5)
GEOMETRIES: list[dict[str, Any]] = [
    {},
    {"stride": 2},
    {"stride": (3, 1), "padding": "VALID"},
    {"padding": ((2, 0), (1, 3))},
    {"stride": 2, "padding": ((0, 3), (4, 1)), "dilation": (1, 2)},
    {"dilation": 2, "groups": 2},
    {"stride": (1, 2), "groups": 2, "layout": "NHWC"},
    {"stride": 4, "padding": "VALID", "layout": "NHWC"},
]
"""Asymmetric padding, strides beyond the filter, dilation, groups, both layouts."""


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape)


def problem(options: dict[str, Any]) -> tuple[Any, Any]:
    """Images of 4 channels and 7 x 6 pixels, and 6 filters of 3 x 2."""
    x, w = normal(2, 4, 7, 6), normal(6, 4 // options.get("groups", 1), 3, 2)
    if options.get("layout") == "NHWC":
        x, w = np.moveaxis(x, 1, -1).copy(), np.moveaxis(w, 1, -1).copy()
    return x, w


def differences(function: Callable[[Any], Any], at: Any, weights: Any, step: float = 1e-5) -> Any:
    """Central differences of the sum of ``weights * function``, by each element of ``at``."""
    found = np.zeros_like(at)
    for index in np.ndindex(at.shape):
        above, below = at.copy(), at.copy()
        above[index] += step
        below[index] -= step
        found[index] = (weights * (function(above) - function(below))).sum() / (2 * step)
    return found


# ------------------------------------------------------------------------------------------ convolution


@pytest.mark.parametrize("padding", [((0, 0), (0, 0)), ((1, 1), (1, 1)), ((2, 0), (0, 3))])
@pytest.mark.parametrize("stride", [(1, 1), (2, 1), (3, 2)])
def test_a_convolution_equals_that_of_scipy(padding: Any, stride: tuple[int, int]) -> None:
    from scipy.signal import correlate

    x, w, b = normal(2, 3, 8, 7), normal(4, 3, 3, 2), normal(4)
    padded = np.pad(x, ((0, 0), (0, 0), *padding))
    expected = np.array(
        [
            [correlate(image, filters, "valid")[0] + c for filters, c in zip(w, b, strict=True)]
            for image in padded
        ]
    )
    found = layers.conv2d(x, w, b, stride=stride, padding=padding)
    np.testing.assert_allclose(found, expected[..., :: stride[0], :: stride[1]], atol=1e-13)


def test_dilation_inserts_zeros_into_filters() -> None:
    x, w = normal(2, 3, 9, 8), normal(4, 3, 3, 2)
    spread = np.zeros((4, 3, 5, 4))
    spread[..., ::2, ::3] = w
    found = layers.conv2d(x, w, padding="VALID", dilation=(2, 3))
    np.testing.assert_allclose(found, layers.conv2d(x, spread, padding="VALID"), atol=1e-13)


def test_groups_are_convolutions_of_parts() -> None:
    x, w = normal(2, 6, 5, 5), normal(9, 2, 3, 3)
    parts = [layers.conv2d(x[:, 2 * g : 2 * g + 2], w[3 * g : 3 * g + 3]) for g in range(3)]
    np.testing.assert_array_equal(layers.conv2d(x, w, groups=3), np.concatenate(parts, 1))


def test_both_layouts_have_the_same_numbers() -> None:
    x, w, b = normal(2, 4, 5, 6), normal(6, 2, 3, 3), normal(6)
    last = [np.moveaxis(a, 1, -1) for a in (x, w)]
    found = layers.conv2d(*last, b, groups=2, layout="NHWC")
    np.testing.assert_array_equal(np.moveaxis(found, -1, 1), layers.conv2d(x, w, b, groups=2))


@pytest.mark.at_most(2)
@pytest.mark.parametrize("options", GEOMETRIES, ids=str)
def test_gradients_of_a_convolution_are_its_differences(options: dict[str, Any]) -> None:
    x, w = problem(options)
    weights = normal(*layers.conv2d(x, w, **options).shape)
    by_x = differences(lambda x: layers.conv2d(x, w, **options), x, weights)
    by_w = differences(lambda w: layers.conv2d(x, w, **options), w, weights)
    np.testing.assert_allclose(layers.conv2d_backward_data(weights, w, x.shape, **options), by_x, atol=1e-8)
    np.testing.assert_allclose(layers.conv2d_backward_filter(x, weights, w.shape, **options), by_w, atol=1e-8)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_gradient_of_a_bias_is_its_differences(layout: Any) -> None:
    x, w = problem({"layout": layout})
    weights, bias = normal(*layers.conv2d(x, w, layout=layout).shape), normal(6)
    found = differences(lambda b: layers.conv2d(x, w, b, layout=layout), bias, weights)
    np.testing.assert_allclose(layers.conv2d_backward_bias(weights, layout=layout), found, atol=1e-8)


# --------------------------------------------------------------------------------------- other layers


@pytest.mark.parametrize("name", layers.ACTIVATIONS)
def test_gradients_of_activations_are_their_differences(name: str) -> None:
    function, backward = layers.ACTIVATIONS[name]
    x, weights = normal(40) * 3, normal(40)
    np.testing.assert_allclose(
        backward(weights, function(x)), differences(function, x, weights), rtol=1e-7, atol=1e-9
    )


def test_the_sigmoid_equals_that_of_scipy() -> None:
    from scipy.special import expit

    x = np.array([-1e3, -40.0, -1.0, 0.0, 0.5, 40.0, 1e3])
    np.testing.assert_allclose(layers.sigmoid(x), expit(x), rtol=1e-15)


POOLS: list[dict[str, Any]] = [
    {"window": 2},
    {"window": (3, 2), "stride": 1, "padding": "SAME"},
    {"window": 3, "stride": 2, "padding": ((1, 1), (2, 0))},
    {"window": 2, "stride": 3, "layout": "NHWC"},
]


@pytest.mark.at_most(2)
@pytest.mark.parametrize("options", POOLS, ids=str)
def test_gradients_of_pooling_are_its_differences(options: dict[str, Any]) -> None:
    x = normal(2, 3, 6, 5)
    for pool, backward, first in (
        (layers.max_pool2d, layers.max_pool2d_backward, x),
        (layers.average_pool2d, layers.average_pool2d_backward, x.shape),
    ):
        weights = normal(*pool(x, **options).shape)
        found: Any = backward(weights, first, **options)
        np.testing.assert_allclose(
            found, differences(lambda x, pool=pool: pool(x, **options), x, weights), atol=1e-8
        )


@pytest.mark.parametrize(
    ("given", "meant"), [("same", "SAME"), (1, ((1, 1), (1, 1))), ((1, 0), ((1, 1), (0, 0)))]
)
def test_paddings_and_windows_are_written_as_frameworks_write_them(given: Any, meant: Any) -> None:
    x, w = normal(1, 2, 6, 5), normal(3, 2, 3, 3)
    for pool in (layers.max_pool2d, layers.average_pool2d):
        np.testing.assert_array_equal(pool(x, [3, 2], padding=given), pool(x, (3, 2), padding=meant))
    np.testing.assert_array_equal(layers.conv2d(x, w, padding=given), layers.conv2d(x, w, padding=meant))


def test_pooling_leaves_out_pixels_outside_the_image() -> None:
    x = -np.ones((1, 1, 2, 2))
    for pool in (layers.max_pool2d, layers.average_pool2d):
        assert (pool(x, 3, stride=1, padding="SAME") == -1).all()
    with pytest.raises(ShapeError, match="outside the image"):
        layers.max_pool2d(x, 1, padding=((1, 0), (0, 0)))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_gradients_of_batch_normalization_are_its_differences(layout: Any) -> None:
    shape = (3, 2, 4, 5) if layout == "NCHW" else (3, 4, 5, 2)
    x, gamma, beta, weights = 3 + 2 * normal(*shape), normal(2), normal(2), normal(*shape)

    def function(*operands: Any) -> Any:
        return layers.batch_norm(*operands, epsilon=0.1, layout=layout)

    found = layers.batch_norm_backward(weights, x, gamma, epsilon=0.1, layout=layout)
    for gradient, at, of in (
        (found.x, x, lambda one: function(one, gamma, beta)),
        (found.gamma, gamma, lambda one: function(x, one, beta)),
        (found.beta, beta, lambda one: function(x, gamma, one)),
    ):
        np.testing.assert_allclose(gradient, differences(of, at, weights), rtol=1e-6, atol=1e-8)


def test_batch_normalization_gives_each_channel_mean_and_deviation() -> None:
    y = layers.batch_norm(5 + 3 * normal(4, 3, 6, 6), [1.0, 2.0, 0.0], [0.0, 1.0, 7.0], epsilon=1e-12)
    np.testing.assert_allclose(y.mean((0, 2, 3)), [0, 1, 7], atol=1e-12)
    np.testing.assert_allclose(y.std((0, 2, 3)), [1, 2, 0], atol=1e-9)
    with pytest.raises(RangeError, match="epsilon is 0"):
        layers.batch_norm(normal(1, 1, 2, 2), [1], [1], epsilon=0)
    with pytest.raises(ShapeError, match="gamma has shape"):
        layers.batch_norm(normal(1, 1, 2, 2), [1, 2], [1])


def test_gradients_of_a_dense_layer_are_its_differences() -> None:
    x, w, b, weights = normal(3, 5), normal(4, 5), normal(4), normal(3, 4)
    found = layers.dense_backward(weights, x, w)
    np.testing.assert_allclose(found.x, differences(lambda x: layers.dense(x, w, b), x, weights), atol=1e-8)
    np.testing.assert_allclose(found.w, differences(lambda w: layers.dense(x, w, b), w, weights), atol=1e-8)
    np.testing.assert_allclose(
        found.bias, differences(lambda b: layers.dense(x, w, b), b, weights), atol=1e-8
    )


def test_the_gradient_of_the_loss_is_its_differences() -> None:
    logits, labels = normal(4, 6) * 3, np.array([0, 5, 2, 2])
    found = differences(lambda x: np.array(layers.cross_entropy(x, labels)), logits, np.array(1.0))
    np.testing.assert_allclose(layers.cross_entropy_backward(logits, labels), found, atol=1e-9)


def test_sgd_with_momentum_ends_in_a_minimum() -> None:
    w, v = np.array([3.0, -2.0]), None
    for _ in range(200):
        w, v = layers.sgd(w, w - [1.0, 1.0], v, rate=0.1, momentum=0.9)
    np.testing.assert_allclose(w, [1.0, 1.0], atol=1e-3)


# ---------------------------------------------------------------------------------------- the bound


@pytest.mark.parametrize("options", GEOMETRIES, ids=str)
@pytest.mark.parametrize("routine", layers.CONVOLUTIONS)
def test_the_bound_holds_for_single_precision_and_not_for_a_missing_term(
    routine: str, options: dict[str, Any]
) -> None:
    x, w = (a.astype(np.float32) for a in problem(options))
    dy = normal(*layers.conv2d(x, w, **options).shape).astype(np.float32)
    operands = {
        "conv2d": (x, w, np.ones(6)),
        "conv2d_backward_data": (dy, w, x.shape),
        "conv2d_backward_filter": (x, dy, w.shape),
    }[routine]
    right = layers.CONVOLUTIONS[routine](*operands, **options).astype(np.float32)
    assert layers.error_of(routine, right, *operands, **options) <= 1
    largest = np.unravel_index(np.abs(right).argmax(), right.shape)
    right[largest] *= np.float32(1.001)
    assert layers.error_of(routine, right, *operands, **options) > 1


@pytest.mark.parametrize("activation", layers.ACTIVATIONS)
def test_the_bound_of_a_fused_activation(activation: str) -> None:
    x, w = (a.astype(np.float32) for a in problem({}))
    right = layers.ACTIVATIONS[activation][0](layers.conv2d(x, w)).astype(np.float32)
    assert layers.error_of("conv2d", right, x, w, activation=activation) <= 1
    assert layers.error_of("conv2d", right, x, w) > 1


@pytest.mark.parametrize("options", GEOMETRIES, ids=str)
@pytest.mark.parametrize("routine", layers.CONVOLUTIONS)
def test_the_bound_of_transforms_is_wider_and_finds_a_missing_number(
    routine: str, options: dict[str, Any]
) -> None:
    x, w = (a.astype(np.float32) for a in problem(options))
    dy = normal(*layers.conv2d(x, w, **options).shape).astype(np.float32)
    operands = {
        "conv2d": (x, w, np.ones(6)),
        "conv2d_backward_data": (dy, w, x.shape),
        "conv2d_backward_filter": (x, dy, w.shape),
    }[routine]
    right, products = layers.bounded(routine, *operands, **options)
    _, transforms = layers.bounded(routine, *operands, transforms=True, **options)
    assert (transforms > products).all()
    off = (right + 0.9 * transforms).astype(np.float32)
    assert layers.error_of(routine, off, *operands, transforms=True, **options) <= 1
    off[np.unravel_index(np.abs(right).argmax(), right.shape)] = 0
    assert layers.error_of(routine, off, *operands, transforms=True, **options) > 1


@pytest.mark.parametrize("results", [4, 6])
def test_winograd_in_single_precision_is_within_the_bound_of_transforms(results: int) -> None:
    """With large pixels beside small ones it is not within the bound of sums of products."""
    tile, channels = results + 2, 32
    for scale, is_even in ((1.0, True), (1e4, False)):
        x, w = normal(1, channels, tile, tile), normal(3, channels, 3, 3)
        x[..., 1] *= scale
        x, w = x.astype(np.float32), w.astype(np.float32)
        found = winograd(x, w, results)
        error = {
            how: layers.error_of("conv2d", found, x, w, padding="VALID", transforms=how)
            for how in (False, True)
        }
        assert error[True] <= 1
        assert (error[False] <= 1) == is_even


def test_the_amplification_of_tiles_is_that_of_winograds_matrices() -> None:
    for results, taps in ((2, 3), (4, 3), (3, 4), (6, 3), (3, 6), (4, 5)):
        a, b, g = matrices(results, taps)
        terms = np.abs(g).max(axis=1) * np.abs(b).sum(axis=1)
        found = ((np.abs(a) * terms) ** 2).sum(axis=1).max()
        assert found <= bounds._AMPLIFIED


def winograd(x: Any, w: Any, results: int) -> Any:
    """The convolution of one tile in float32: the sums over channels are between the transforms."""
    a, b, g = (matrix.astype(np.float32) for matrix in matrices(results, w.shape[2]))
    pixels, filters = b @ x @ b.T, g @ w @ g.T
    sums = np.zeros((len(x), len(w), *pixels.shape[2:]), np.float32)
    for channel in range(x.shape[1]):
        sums += pixels[:, None, channel] * filters[None, :, channel]
    return a @ sums @ a.T


def matrices(results: int, taps: int) -> tuple[Any, Any, Any]:
    """Winograd's A, B and G, transposed as they are applied, for points 0, 1, -1, 2, -2, 1/2, -1/2."""
    points = [0.0, 1, -1, 2, -2, 0.5, -0.5][: results + taps - 2]
    a = [[*(point**row for point in points), float(row == results - 1)] for row in range(results)]
    b, g = [np.poly(points)[::-1]], [[0.0] * (taps - 1) + [1.0]]
    for point in reversed(points):
        others = [other for other in points if other != point]
        b.insert(0, np.append(np.poly(others)[::-1], 0.0))
        g.insert(0, [point**tap / np.prod([point - other for other in others]) for tap in range(taps)])
    return np.array(a), np.array(b), np.array(g)


def test_a_nan_and_a_wrong_shape_are_wrong() -> None:
    x, w = np.ones((1, 1, 2, 2), np.float32), np.ones((1, 1, 1, 1), np.float32)
    assert layers.error_of("conv2d", x, x, w) == 0
    assert layers.error_of("conv2d", x[..., :1], x, w) == np.inf
    assert layers.error_of("conv2d", x * np.nan, x, w) == np.inf


# ----------------------------------------------------------------------------------------- bad input

X, W = np.ones((1, 4, 3, 3)), np.ones((2, 4, 3, 3))


@every_case(
    ("call", "kind", "message"),
    [
        (lambda: layers.conv2d(X[0], W), ShapeError, r"x has shape \(4, 3, 3\)"),
        (lambda: layers.conv2d(X, W, groups=3), ShapeError, "4 channels, .* groups=3"),
        (lambda: layers.conv2d(X, W[:, :3]), ShapeError, "2 filters have 3"),
        (lambda: layers.conv2d(X, W, [1.0]), ShapeError, "bias has shape"),
        (lambda: layers.conv2d(X, W, layout="CHWN"), SchemeError, "no layout='CHWN'"),
        (lambda: layers.conv2d(X * 1j, W), DtypeError, "x is of complex128"),
        (lambda: layers.conv2d_backward_data(X, W, X.shape), ShapeError, "the gradient has"),
        (lambda: layers.conv2d_backward_filter(X, X, W.shape), ShapeError, "the gradient has"),
        (lambda: layers.max_pool2d_backward(X, X, 2), ShapeError, "the gradient has"),
        (lambda: layers.relu_backward([1.0], [1.0, 2.0]), ShapeError, "both must have the same shape"),
        (lambda: layers.dense(X[0, 0], W), ShapeError, r"x must be \(N, I\)"),
        (lambda: layers.dense([[1.0]], [[1.0]], [1.0, 2.0]), ShapeError, "bias has shape"),
        (lambda: layers.dense_backward([1.0], [[1.0]], [[1.0]]), ShapeError, "the gradient has"),
        (lambda: layers.softmax([1.0]), ShapeError, "logits have shape"),
        (lambda: layers.cross_entropy([[1.0]], [1]), RangeError, "classes are 0 to 0"),
        (lambda: layers.cross_entropy([[1.0]], [0.0]), DtypeError, "integers are needed"),
        (lambda: layers.cross_entropy([[1.0]], [0, 0]), ShapeError, "one label for each"),
        (lambda: layers.sgd([1.0], [1.0, 2.0], rate=1.0), ShapeError, "all three must have the same shape"),
        (lambda: layers.error_of("conv3d", X, X, W), SchemeError, "no routine='conv3d'"),
        (lambda: layers.error_of("conv2d", X, X, W, activation="gelu"), SchemeError, "activation='gelu'"),
    ],
)
def test_bad_input_is_refused(call: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
