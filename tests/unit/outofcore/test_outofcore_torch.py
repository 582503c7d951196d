"""`outofcore` of PyTorch models: gradients, buffers and training are torch's, whatever the pieces."""

from __future__ import annotations

import copy
import importlib
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpu.outofcore import Cut, Segment, TrainingOptions
from reference.errors import DtypeError, LaunchError, SchemeError, ShapeError
from reference.training.bounds import UNITS
from simwarp.machine import AllocationFails, CopyError, CopyFails, DeviceLost, DeviceLostError, Machine
from support.training_networks import is_clean

torch: Any = pytest.importorskip("torch", reason="gpu.outofcore.in_torch needs torch")
outofcore: Any = importlib.import_module("gpu.outofcore.in_torch").outofcore
nn: Any = torch.nn
SHAPE = (5, 2, 9, 8)


def mixed() -> Any:
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.ReLU(inplace=True), nn.Identity()),
        nn.MaxPool2d(3, 2, padding=1),
        nn.Dropout(0.0),
        nn.Conv2d(4, 6, (3, 2), stride=(2, 1), dilation=(1, 2), groups=2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(24, 7),
        nn.Sigmoid(),
        nn.Linear(7, 5, bias=False),
    )


def normalized() -> Any:
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding="same", dilation=2),
        nn.BatchNorm2d(3, momentum=0.3),
        nn.ReLU(),
        nn.AvgPool2d(3, 2, padding=1, count_include_pad=False),
        nn.Conv2d(3, 4, 2, padding="valid"),
        nn.BatchNorm2d(4, momentum=None, affine=False),
        nn.AvgPool2d(2, 1),
    )


def activated() -> Any:
    return nn.Sequential(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3, track_running_stats=False), nn.Tanh())


def flat() -> Any:
    return nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(2, 4, 1), nn.Sigmoid(), nn.Flatten())


MODELS = {"mixed": mixed, "normalized": normalized, "activated": activated, "flat": flat}


class Case:
    """A model with drawn parameters, its images, and the gradient by its result."""

    def __init__(self, name: str, shape: tuple[int, ...] = SHAPE) -> None:
        torch.manual_seed(sum(map(ord, name)))
        self.model = MODELS[name]()
        self.x = torch.randn(shape)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape))
            self.dy = torch.randn(copy.deepcopy(self.model)(self.x).shape)

    def wrapped(self, machine: Machine, budget: int | None = None, **options: Any) -> Any:
        return outofcore(self.model, budget, device=machine, options=TrainingOptions(**options))

    def passes(self, model: Any, dtype: Any = None, *, images: bool = True) -> dict[str, Any]:
        """The result, all gradients and buffers after a pass each."""
        model.zero_grad()
        x = self.x.to(dtype).detach().requires_grad_(images)
        y = model(x)
        if y.requires_grad:
            y.backward(self.dy.to(dtype))
        found = {name: one.grad for name, one in model.named_parameters()} | dict(model.named_buffers())
        found |= {"result": y.detach()} | ({"images": x.grad} if images else {})
        return {name: one.numpy().copy() for name, one in found.items() if one is not None}

    def expected(self) -> dict[str, Any]:
        """The same by torch in double precision."""
        return self.passes(copy.deepcopy(self.model).double(), torch.float64)

    def least(self, *, images: bool = False) -> int:
        """The least budget."""
        with pytest.raises(LaunchError, match="memory_budget=") as refused:
            self.passes(self.wrapped(Machine(), 1), images=images)
        return int(str(refused.value).split("memory_budget=")[1].split()[0])


def same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return found.keys() == expected.keys() and all(np.array_equal(found[k], v) for k, v in expected.items())


def assert_close(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Within what roundings to float32 may change.

    Each tensor is rounded once, and sums are in double precision: at most 7 layers forward and back, about 20
    roundings, change a number. Terms of sums are up to 1 and may cancel: 4 times as much is allowed.
    """
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        error = np.abs(found[name] - value).max()
        assert error <= 80 * UNITS["float32"] * max(1.0, np.abs(value).max()), name


# -------------------------------------------------------------------------------------------- gradients


@pytest.mark.parametrize("name", MODELS)
def test_gradients_and_buffers_are_those_of_torch(name: str) -> None:
    case, machine = Case(name), Machine()
    expected = case.expected()
    with case.wrapped(machine) as wrapped:
        assert_close(case.passes(wrapped), expected)
    assert is_clean(machine)


@pytest.mark.parametrize("name", MODELS)
def test_a_small_budget_cuts_images_and_rows_and_changes_no_bit(name: str) -> None:
    case = Case(name)
    least = case.least(images=True)
    found = {}
    for budget in (None, least, 2 * least):
        other = Case(name)
        machine = Machine(seed=5, jitter=20.0)
        with other.wrapped(machine, budget) as wrapped:
            found[budget] = other.passes(wrapped)
            phases = wrapped._passes.plan.phases
        assert is_clean(machine)
        if budget == least:
            assert any(phase.cut.images < len(case.x) for phase in phases)
            assert any(len(phase.strips) > 1 for phase in phases)
    assert same(found[least], found[None])
    assert same(found[2 * least], found[None])


TWO = st.tuples(st.integers(1, 3), st.integers(1, 3))
LAYERS: Any = st.one_of(
    st.builds(
        lambda *given: lambda channels: nn.Conv2d(channels, 2 * given[4], *given[:4], given[4], given[5]),
        TWO,
        TWO,
        st.one_of(st.sampled_from(["same", "valid"]), st.tuples(st.integers(0, 3), st.integers(0, 3))),
        TWO,
        st.sampled_from([1, 2]),
        st.booleans(),
    ),
    st.builds(lambda *given: lambda _: nn.MaxPool2d(*given), TWO, TWO, st.sampled_from([0, 1])),
    st.builds(
        lambda *given: lambda _: nn.AvgPool2d(*given, count_include_pad=False),
        TWO,
        TWO,
        st.sampled_from([0, 1]),
    ),
    st.builds(lambda kind: lambda _: kind(), st.sampled_from([nn.ReLU, nn.Tanh, nn.Sigmoid])),
)


@pytest.mark.slow
@given(layers=st.lists(LAYERS, min_size=1, max_size=4), is_flat=st.booleans(), seed=st.integers(0, 9))
@settings(max_examples=25)
def test_gradients_of_drawn_models_are_those_of_torch(layers: list[Any], is_flat: bool, seed: int) -> None:
    case, model, channels = Case("flat"), nn.Sequential(), 2
    torch.manual_seed(seed)
    try:
        for layer in layers:
            model.append(layer(channels))
            channels = getattr(model[-1], "out_channels", channels)
        shape = model(case.x).shape
        wrapped = outofcore(model, device=Machine())
    except (RuntimeError, ValueError):  # an image smaller than a window, a misplaced activation
        assume(False)
        return
    if is_flat:
        model.extend([nn.Flatten(), nn.Linear(shape[1:].numel(), 3)])
    case.model, case.dy = model, torch.randn(5, 3) if is_flat else torch.randn(shape)
    expected = case.expected()
    for budget in (None, case.least(images=True)):
        with case.wrapped(Machine(seed=seed, jitter=20.0), budget) as wrapped:
            assert_close(case.passes(wrapped), expected)


def test_given_segments_are_taken() -> None:
    case = Case("mixed")
    segments = (
        Segment(1, 3, Cut(1, 1), Cut(1, 2), frozenset({1})),
        Segment(4, 5, Cut(2, 99), Cut(3, 99), frozenset({4})),
    )
    with case.wrapped(Machine(seed=2, jitter=20.0), segments=segments) as wrapped:
        assert_close(case.passes(wrapped), case.expected())
        assert wrapped.explain(SHAPE).segments == segments


def test_gradients_are_added_as_by_torch() -> None:
    case = Case("mixed")
    with case.wrapped(Machine()) as wrapped:
        once = {name: one for name, one in case.passes(wrapped).items() if name not in ("images", "result")}
        wrapped(case.x).backward(case.dy)
        for name, parameter in case.model.named_parameters():
            assert np.array_equal(parameter.grad.numpy(), 2 * once[name]), name


def test_frozen_parameters_get_no_gradient() -> None:
    case = Case("mixed")
    case.model[0][0].weight.requires_grad_(False)
    with case.wrapped(Machine()) as wrapped:
        found = case.passes(wrapped, images=False)
    assert "0.0.weight" not in found
    assert_close(found, case.passes(copy.deepcopy(case.model).double(), torch.float64, images=False))


def test_a_layer_that_is_used_twice_gets_the_sum_of_its_gradients() -> None:
    case = Case("flat")
    layer = nn.Conv2d(2, 2, 3, padding=1)
    case.model = nn.Sequential(layer, nn.Tanh(), layer, nn.MaxPool2d(9), nn.Flatten())
    case.dy = torch.randn(5, 2)
    case.model.pop(3)
    case.model.insert(3, nn.MaxPool2d((9, 8)))
    with case.wrapped(Machine(), 20_000) as wrapped:
        assert_close(case.passes(wrapped), case.expected())


def test_the_model_is_part_of_a_graph_of_torch() -> None:
    case = Case("normalized")
    before, after = nn.Conv2d(1, 2, 1), nn.Linear(4, 3)
    x = torch.randn(5, 1, 9, 8)
    results = []
    for dtype in (torch.float32, torch.float64):
        inner = copy.deepcopy(case.model).to(dtype)
        whole = copy.deepcopy(nn.ModuleList([before, after])).to(dtype)
        middle = outofcore(inner, 30_000, device=Machine()) if dtype == torch.float32 else inner
        y = whole[1](middle(whole[0](x.to(dtype))).mean(3).flatten(1)[:, :4]).square().sum()
        y.backward()
        results.append({name: one.grad.numpy() for name, one in whole.named_parameters()})
    assert_close(results[0], results[1])


def test_rows_of_numbers_go_through_linear_layers() -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))
    case = Case("flat")
    case.model, case.x, case.dy = model, torch.randn(5, 6), torch.randn(5, 3)
    with case.wrapped(Machine(), 3000) as wrapped:
        assert_close(case.passes(wrapped), case.expected())


# --------------------------------------------------------------------------------------------- training


OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, 0.05, momentum=0.9, weight_decay=1e-3),
    "adam": lambda parameters: torch.optim.Adam(parameters, 0.01),
}


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ["mixed", "normalized"])
def test_training_is_that_of_the_plain_model(name: str, optimizer: str) -> None:
    # Both round to float32, torch after each term of a sum, of which there are up to 400: gradients differ by
    # about 400 * 2**-24 = 2.4e-5 of their terms, which are below 0.1 here. With 4 steps of rate 0.05 and
    # momentum 0.9, weights move by less than 0.5 of that: 1.2e-6. Adam divides a gradient by its size: its 4
    # steps of 0.01 move weights by 0.04 times the relative error; terms may cancel to a hundredth: 1e-4. The
    # gradients by biases before batch normalization cancel to 0, so Adam moves them by what is left.
    case = Case(name)
    weights = {}
    for budget in (None, 30_000):
        model = copy.deepcopy(case.model)
        network = model if budget is None else outofcore(model, budget, device=Machine(seed=1, jitter=20.0))
        steps = OPTIMIZERS[optimizer](network.parameters())
        for name_of_bias in ("0.bias", "4.bias") if name == "normalized" else ():
            model.get_parameter(name_of_bias).requires_grad_(False)
        for step in range(4):
            steps.zero_grad()
            (network(case.x + step) - case.dy).square().mean().backward()
            steps.step()
        weights[budget] = {k: v.detach().double().numpy() for k, v in model.state_dict().items()}
    for key, value in weights[None].items():
        error = np.abs(weights[30_000][key] - value).max()
        assert error < {"sgd": 2e-6, "adam": 1e-4}[optimizer] * max(1.0, np.abs(value).max()), key


def test_layers_and_state_are_shared_with_the_model() -> None:
    case = Case("normalized")
    wrapped = case.wrapped(Machine())
    assert list(wrapped.state_dict()) == list(case.model.state_dict())
    assert [id(p) for p in wrapped.parameters()] == [id(p) for p in case.model.parameters()]
    wrapped.eval()
    assert not case.model[1].training
    wrapped.load_state_dict({k: v + 1 for k, v in case.model.state_dict().items()})
    assert int(case.model[1].num_batches_tracked) == 1
    with wrapped, torch.no_grad():
        assert np.allclose(wrapped(case.x), case.model(case.x), atol=1e-5)


def test_another_batch_has_another_plan() -> None:
    case, machine = Case("normalized"), Machine()
    with case.wrapped(machine, 30_000) as wrapped:
        for count in (5, 1, 5):
            other = Case("normalized", (count, *SHAPE[1:]))
            plain = copy.deepcopy(case.model).double()
            case.x, case.dy = other.x, other.dy
            expected = case.passes(plain, torch.float64)
            assert_close(case.passes(wrapped), expected)
        assert len(wrapped._plans) == 2
    assert is_clean(machine)


# ----------------------------------------------------------------------------------------- evaluation


def test_evaluation_normalizes_by_running_means() -> None:
    case, machine = Case("normalized"), Machine()
    with case.wrapped(machine, 30_000) as wrapped:
        wrapped(case.x)
        wrapped.eval()
        state = copy.deepcopy(wrapped.state_dict())
        with torch.no_grad():
            found = wrapped(case.x)
        assert_close(
            {"": found.numpy()}, {"": copy.deepcopy(case.model).double()(case.x.double()).detach().numpy()}
        )
        assert all(torch.equal(state[name], value) for name, value in wrapped.state_dict().items())
        y = wrapped(case.x)  # as many call it, without no_grad
        with pytest.raises(SchemeError, match=r"running means.*\n.*\ncall train"):
            y.sum().backward()


def test_evaluation_without_norms_has_gradients() -> None:
    case = Case("mixed")
    with case.wrapped(Machine()) as wrapped:
        wrapped.eval()
        assert_close(case.passes(wrapped), case.expected())


def test_without_gradients_statistics_of_the_batch_still_count() -> None:
    case = Case("normalized")
    plain = copy.deepcopy(case.model).double()
    with case.wrapped(Machine()) as wrapped, torch.no_grad():
        y = wrapped(case.x)
        plain(case.x.double())
    assert not y.requires_grad
    for (name, buffer), expected in zip(wrapped.named_buffers(), plain.buffers(), strict=True):
        assert np.allclose(buffer, expected, rtol=1e-5, atol=1e-7), name


# ------------------------------------------------------------------------------------ order of the calls


def test_a_second_backward_is_an_error() -> None:
    case = Case("mixed")
    with case.wrapped(Machine()) as wrapped:
        y = wrapped(case.x)
        y.backward(case.dy, retain_graph=True)
        with pytest.raises(SchemeError, match="no backward pass left"):
            y.backward(case.dy)


@pytest.mark.parametrize("between", ["forward", "other batch", "close", "no_grad"])
def test_a_backward_after_another_forward_or_close_is_an_error(between: str) -> None:
    case, machine = Case("mixed"), Machine()
    with case.wrapped(machine) as wrapped:
        y = wrapped(case.x)
        if between == "close":
            wrapped.close()
            assert is_clean(machine)
        else:
            with torch.set_grad_enabled(between != "no_grad"):
                wrapped(case.x[:3] if between == "other batch" else case.x)
        with pytest.raises(SchemeError, match="no backward pass left"):
            y.backward(case.dy)
        assert all(parameter.grad is None for parameter in case.model.parameters())
        assert_close(case.passes(wrapped), case.expected())


def test_two_uses_in_one_graph_are_an_error() -> None:
    case = Case("mixed")
    with case.wrapped(Machine()) as wrapped:
        y = wrapped(case.x) + wrapped(case.x + 1)
        with pytest.raises(SchemeError, match="no backward pass left"):
            y.backward(case.dy)


def test_gradients_of_gradients_are_an_error() -> None:
    case = Case("mixed")
    x = case.x.clone().requires_grad_()
    with case.wrapped(Machine()) as wrapped:
        y = wrapped(x)
        with pytest.raises(SchemeError, match="create_graph=True"):
            torch.autograd.grad(y.sum(), x, create_graph=True)
        assert_close({"": torch.autograd.grad(y, x, case.dy)[0].numpy()}, {"": case.expected()["images"]})


def test_parameters_changed_in_between_do_not_matter() -> None:
    case = Case("mixed")
    expected = case.expected()
    x = case.x.clone().requires_grad_()
    with case.wrapped(Machine(), case.least(images=True)) as wrapped:
        y = wrapped(x)
        with torch.no_grad():
            for parameter in case.model.parameters():
                parameter.zero_()
        y.backward(case.dy)
    found = {name: one.grad.numpy() for name, one in case.model.named_parameters()}
    assert_close(found, {name: expected[name] for name in found})


# ---------------------------------------------------------------------------------------------- failures


def repeat(case: Case, wrapped: Any) -> None:
    for _ in range(20):
        case.passes(wrapped)


@pytest.mark.parametrize("kind", ["in", "out"])
@pytest.mark.parametrize("after", [0, 3, 9, 17])
def test_a_copy_that_fails_leaves_nothing(kind: Any, after: int) -> None:
    case = Case("normalized")
    expected = case.expected()
    state = copy.deepcopy(case.model.state_dict())
    machine = Machine(seed=after, jitter=20.0, injections=[CopyFails(kind, 0, after)])
    wrapped = case.wrapped(machine, 30_000)
    with pytest.raises(CopyError):
        repeat(case, wrapped)
    assert is_clean(machine)
    case.model.load_state_dict(state)
    assert_close(case.passes(wrapped), expected)
    wrapped.close()
    assert is_clean(machine)


@pytest.mark.parametrize(
    ("injection", "error"), [(AllocationFails(0, 0), MemoryError), (DeviceLost(0, 1e-6), DeviceLostError)]
)
def test_a_failing_machine_leaves_buffers_as_they_were(injection: Any, error: Any) -> None:
    case, machine = Case("normalized"), Machine(injections=[injection])
    state = copy.deepcopy(case.model.state_dict())
    with pytest.raises(error):
        case.wrapped(machine, 30_000)(case.x)
    assert all(torch.equal(state[name], value) for name, value in case.model.state_dict().items())
    assert not machine.pinned()


def test_interrupts_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    case, machine = Case("mixed"), Machine()
    wrapped = case.wrapped(machine)
    y = wrapped(case.x)

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(machine, "run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        y.backward(case.dy)
    assert not machine.pinned()
    assert not machine.allocated(0)


# --------------------------------------------------------------------------------------------- refusals


REFUSED = {
    r"layer 1, GELU\nsupported are Conv2d, Linear": [nn.Conv2d(2, 3, 1), nn.GELU()],
    r"layer 0\.1, Conv1d": [nn.Sequential(nn.Identity(), nn.Conv1d(2, 3, 1))],
    r"layer 0, ReLU\nan activation must follow": [nn.ReLU(), nn.Conv2d(2, 3, 1)],
    r"layer 2, ReLU\nan activation must follow": [nn.Conv2d(2, 3, 1), nn.MaxPool2d(2), nn.ReLU()],
    r"layer 2, Tanh\nan activation must follow": [nn.Conv2d(2, 3, 1), nn.ReLU(), nn.Tanh()],
    r"layer 1, Dropout\np is 0.5": [nn.Conv2d(2, 3, 1), nn.Dropout(0.5)],
    r"layer 0, Conv2d\npadding_mode": [nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect")],
    r"layer 0, MaxPool2d": [nn.MaxPool2d(2, ceil_mode=True)],
    r"layer 0, MaxPool2d\n": [nn.MaxPool2d(2, dilation=2)],
    r"layer 0, MaxPool2d\nsupported": [nn.MaxPool2d(2, return_indices=True)],
    r"layer 0, AvgPool2d": [nn.AvgPool2d(2, padding=1)],
    r"layer 0, AvgPool2d\n": [nn.AvgPool2d(2, ceil_mode=True)],
    r"layer 0, AvgPool2d\nsupported": [nn.AvgPool2d(2, divisor_override=3)],
    r"layer 0, Flatten\nsupported is a Flatten that makes one row": [nn.Flatten(2)],
    r"layer 1, Linear\nit needs rows": [nn.Conv2d(2, 3, 1), nn.Linear(3, 3)],
    r"layer 1, Conv2d\nit needs images": [nn.Flatten(), nn.Conv2d(2, 3, 1)],
    r"the model has no layers": [nn.Identity()],
    r"the model has no layers\n": [],
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_not_supported_is_named_with_its_place(message: str) -> None:
    with pytest.raises(SchemeError, match=message):
        outofcore(nn.Sequential(*REFUSED[message]), device=Machine())


def test_dropout_in_evaluation_is_nothing() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.Dropout(0.5)).eval()
    with outofcore(model, device=Machine()) as wrapped:
        assert torch.allclose(wrapped(torch.ones(SHAPE)), model(torch.ones(SHAPE)))
        wrapped.train()
        with pytest.raises(SchemeError, match="layer 1, Dropout"):
            wrapped(torch.ones(SHAPE))


def test_models_that_are_not_sequences_are_refused() -> None:
    for other in (nn.Conv2d(2, 3, 1), "model", nn.ModuleList([nn.Conv2d(2, 3, 1)])):
        with pytest.raises(SchemeError, match="Sequential is needed"):
            outofcore(other, device=Machine())


def test_hooks_are_refused() -> None:
    for at in ((), (0,), (0, 0)):
        model = nn.Sequential(nn.Sequential(nn.Conv2d(2, 3, 1)))
        layer = model
        for index in at:
            layer = layer[index]
        layer.register_forward_hook(print)
        with pytest.raises(SchemeError, match="hooks"):
            outofcore(model, device=Machine())


@pytest.mark.parametrize(
    ("x", "error"),
    [
        (np.ones(SHAPE, np.float32), DtypeError),
        (torch.ones(SHAPE).double(), DtypeError),
        (torch.ones(0, 2, 9, 8), ShapeError),
        (torch.ones(2, 9, 8), ShapeError),
        (torch.ones(5, 3, 9, 8), ShapeError),
        (torch.ones(5, 2, 13, 8), ShapeError),
        (torch.ones(5, 24), SchemeError),
    ],
)
def test_images_that_do_not_fit_are_refused(x: Any, error: Any) -> None:
    wrapped = Case("mixed").wrapped(machine := Machine())
    with pytest.raises(error):
        wrapped(x)
    assert is_clean(machine)


def test_parameters_of_another_dtype_are_refused() -> None:
    case = Case("mixed")
    wrapped = case.wrapped(Machine())
    case.model[6].double()
    with pytest.raises(DtypeError, match=r"layer 6, Linear: weight is of torch.float64"):
        wrapped(case.x)


def test_one_pixel_has_no_variance() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3))
    with pytest.raises(ShapeError, match="layer 1, BatchNorm2d: a channel"):
        outofcore(model, device=Machine())(torch.ones(1, 2, 2, 2))


def test_norms_of_two_modes_are_refused() -> None:
    case = Case("normalized")
    case.model[1].eval()
    with pytest.raises(SchemeError, match=r"layer 1, BatchNorm2d\nit normalizes by running means"):
        case.wrapped(Machine())(case.x)
