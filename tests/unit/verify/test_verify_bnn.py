"""The case of binarized networks: what it draws, and how it names the layer that is wrong."""

from collections import Counter
from functools import partial
from itertools import pairwise

import pytest

import gpu.bnn.launches
from gpu.bnn.launches import LAUNCHES
from gpu.bnn.operations import OPERATIONS
from gpu.bnn.plan import steps_of, values_of
from gpu.bnn.stages import COMPUTED_AS
from reference.bnn import Residual, Threshold
from reference.bnn.inference import ANSWERS
from reference.types.layers import LAYERS
from reference.types.network_values import follow
from simwarp.verify import CASES, Draw, check, simulator

CASE = CASES["bnn"]


def drawn(k):
    return CASE.draw(Draw(0, "bnn", k))


@pytest.mark.slow
def test_networks_have_every_input_layer_shortcut_and_sign():
    kinds, ways, flips = Counter(), Counter(), set()
    for k in range(200):
        network = drawn(k).network
        kinds[type(network.input).__name__] += 1
        for _, layer, _ in follow(network):
            kinds[type(layer).__name__] += 1
            if isinstance(layer, Residual):
                ways[tuple(type(each).__name__ for each in layer.shortcut)] += 1
            if isinstance(layer, Threshold):
                flips |= {
                    (bool(f), int(t) == -(2**31)) for t, f in zip(layer.thresholds, layer.flip, strict=True)
                }
    assert len(kinds) == 13
    assert min(kinds.values()) >= 8
    assert set(ways) == {(), ("Pool", "PadChannels"), ("Threshold", "Conv"), ("Clip",)}
    assert len(flips) == 4
    assert {len(drawn(k).network.layers) for k in range(99)} >= {3, 4, 5, 6, 7, 8}


def test_every_layer_has_an_answer_what_computes_it_and_a_line():
    drawn = Counter[type]()
    for k in range(60):
        network = CASES["bnn-layers"].draw(Draw(0, "bnn-layers", k)).network
        drawn.update(type(layer) for _, layer, _ in follow(network))
    assert drawn.keys() == set(LAYERS) == ANSWERS.keys()
    for known in (LAUNCHES, OPERATIONS):
        assert set(LAYERS) <= known.keys() | COMPUTED_AS.keys()


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("k", [0, 4, 7, 14, 19])
def test_a_network_of_lines_agrees_on_the_simulator(k):
    assert check(CASES["bnn-layers"], 0, k, {"simulator": simulator}).mismatches == []


def test_words_of_both_sizes_meet_at_every_kind_of_layer():
    """By turns a layer's words are as wide as those before it, wider, or narrower."""
    met = set()
    for k in range(100):
        item = CASES["bnn-words"].draw(Draw(0, "bnn-words", k))
        names = [(path, type(layer).__name__) for path, layer, _ in follow(item.network)]
        layers = [(kind, "64" in item.schemes[path]) for path, kind in names if path in item.schemes]
        met.update(pairwise(layers))
    assert len(met) == 12  # a convolution never follows a dense layer


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("k", range(5))
def test_a_network_on_words_of_64_agrees_on_the_simulator(k):
    assert check(CASES["bnn-words"], 0, k, {"simulator": simulator}).mismatches == []


def test_networks_for_one_launch_have_every_kernel_and_scheme():
    kinds, options = Counter(), Counter()
    for case, k in ((case, k) for case in ("bnn-whole-words", "bnn-whole-fsb") for k in range(80)):
        item = CASES[case].draw(Draw(0, case, k))
        kinds.update(item.schemes.values())
        options.update(item.whole.items())
    schemes = ("bconv32", "bconv64", "bmm32", "bmm64", "bmms32", "bmms64", "btc2", "btc3")
    assert kinds.keys() == set(schemes)
    assert min(kinds.values()) >= 10
    assert {value for name, value in options if name == "threads"} == {32, 128, 256}
    assert {value for name, value in options if name == "blocks"} == {None, 1, 2}


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("k", [3, 5, 8])
@pytest.mark.parametrize("case", ["bnn-whole-words", "bnn-whole-fsb"])
def test_a_network_in_one_launch_agrees_on_the_simulator(case, k):
    assert check(CASES[case], 0, k, {"simulator": simulator}).mismatches == []


@pytest.mark.gate
@pytest.mark.parametrize("start", range(0, 300, 10))
@pytest.mark.parametrize("case", ["bnn-whole-words", "bnn-whole-fsb"])
def test_300_networks_in_one_launch_agree_on_the_simulator(case, start):
    for k in range(start, start + 10):
        assert check(CASES[case], 0, k, {"simulator": simulator}).mismatches == []


@pytest.mark.gate
@pytest.mark.parametrize("cc", [(7, 5), (8, 0)])
@pytest.mark.parametrize("k", range(0, 20, 5))
def test_networks_in_one_launch_agree_on_earlier_chips(cc, k):
    for case, number in ((case, n) for case in ("bnn-whole-words", "bnn-whole-fsb") for n in range(k, k + 5)):
        devices = {"simulator": partial(simulator, cc=cc)}
        assert check(CASES[case], 0, number, devices).mismatches == []


@pytest.mark.gate
@pytest.mark.parametrize("start", range(0, 300, 10))
def test_300_networks_on_words_of_64_agree_on_the_simulator(start):
    for k in range(start, start + 10):
        assert check(CASES["bnn-words"], 0, k, {"simulator": simulator}).mismatches == []


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("k", [3, 7, 28, 33, 48])
def test_a_network_agrees_on_the_simulator(k):
    assert check(CASE, 0, k, {"simulator": simulator}).mismatches == []


@pytest.mark.gate
@pytest.mark.parametrize("start", range(0, 100, 10))
def test_networks_agree_on_the_simulator(start):
    """`make verify` draws the same inputs."""
    for k in range(start, start + 10):
        assert check(CASE, 0, k, {"simulator": simulator}).mismatches == []


@pytest.mark.gate
def test_values_inside_launches_of_a_chip_are_not_compared():
    """On sm_90 a convolution adds its residual: its own integers leave no launch."""
    item = CASE.draw(Draw(9, "bnn", 750))
    steps = steps_of(item.network, values_of(item.network))
    assert {path for step in steps for path in step.writes} - item.steps().keys() == {"1.body.1"}
    assert check(CASE, 9, 750, {"simulator": simulator}).mismatches == []


@pytest.mark.slow
def test_the_layer_that_is_wrong_is_named(monkeypatch):
    monkeypatch.setattr(gpu.bnn.launches.Chain, "__call__", lambda self, x, *_: (x,))
    (found,) = check(CASE, 0, 71, {"simulator": simulator}).mismatches
    assert "of layer 4 (Clip)" in found.meaning
    assert not found.traced
    assert "nothing wrote" not in str(found)


@pytest.mark.parametrize(
    ("element", "meaning"), [(-1, "class 0 of"), (-2, "logit 11 of"), (0, "bits [0, 0, 0, 0] of layer input")]
)
def test_every_element_of_an_answer_is_explained(element, meaning):
    item = drawn(33)
    size = CASE.answers["reference"](item).size
    assert meaning in CASE.explain(item, (element % size,), 0)


@pytest.mark.at_most(1)
@pytest.mark.gate
@pytest.mark.parametrize("arch", [(7, 5), (9, 0)])
def test_the_listed_kernels_compile(arch):
    assert len(CASE.kernels(arch)) > 40
