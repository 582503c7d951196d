"""The benchmark of whole networks, on the simulator: it checks what it measures."""

import numpy as np
import pytest

import simwarp
from benchmark_scripts import scripts
from reference.bnn import mlp, resnet14, vgg_cifar

networks, peers = scripts("networks", "networks_peers")


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """Little is timed."""
    for name, value in {"BURSTS": 1, "RUNS": 1, "WARM": 0, "GAP": 0.0}.items():
        monkeypatch.setattr(peers, name, value)
    subject = networks.Subject(lambda: mlp(width=32), 2, 0.5, 3, 100.0)
    monkeypatch.setattr(networks, "NETWORKS", {"mlp": subject})
    monkeypatch.setattr(networks, "PIECES", (1, 2))
    return simwarp.Device((8, 0))


@pytest.mark.gate
def test_a_network_has_a_latency_and_two_rates(device):
    few, many, host = networks.rows_of(device, ["mlp"])
    assert (few.case, few.unit, few.better, few.target) == ("net/mlp/2", "ms", "lower", 0.5)
    assert (many.case, many.unit, many.better, many.target) == ("net/mlp/3", "images/s", "higher", 100.0)
    assert few.ours > 0
    assert many.ours > 0
    assert few.params["device"] >= 0
    assert few.peers.keys() == many.peers.keys() == {'way="whole"'}
    # images of the host, beside the link
    assert (host.case, host.unit, host.better) == ("net/mlp/3-host", "images/s", "higher")
    assert host.params["bytes"] == 3 * 784
    assert host.params["copy"] > 0
    assert host.ours > 0
    assert host.peers["link"] == round(55e9 / 784)
    slower = min(host.peers["link"], host.peers["on device"])
    assert host.target == pytest.approx(0.9 * slower, abs=1)
    beside = {"run", "run, pieces=1", "run, pieces=2", "run, ordinary memory"}
    assert host.peers.keys() == {"link", "on device"} | beside


@pytest.mark.gate
def test_a_network_in_one_launch_has_two_latencies_and_a_rate(device, monkeypatch):
    kernels = {name: networks.KERNELS[name] for name in ("SBNN-32", "SBNN-64-Fine")}
    monkeypatch.setattr(networks, "KERNELS", kernels)
    monkeypatch.setattr(networks, "WHOLE_MANY", 3)
    rows = list(networks.rows_of_kernels(device, ["mlp"]))
    assert [(row.case, row.unit) for row in rows] == [
        ("whole/mlp/1", "ms"),
        ("whole/mlp/2", "ms"),
        ("whole/mlp/3", "images/s"),
    ]
    assert all(row.peers.keys() == {"SBNN-32", "layers"} and row.target is None for row in rows)
    assert min(row.ours for row in rows) > 0


@pytest.mark.slow
def test_a_wrong_answer_for_images_of_the_host_ends_the_run(device):
    prepared = networks.gpu.bnn.prepare(mlp(width=32), device=device)
    images = np.zeros((3, 28, 28, 1), np.uint8)
    on_device = device.upload(images + np.uint8(200))  # other images
    with pytest.raises(SystemExit, match="host: the answer is wrong"):
        networks.row_of_host("net/mlp/3-host", prepared, images, on_device, 1.0)


def test_a_wrong_answer_ends_the_run(device, monkeypatch):
    honest = networks.run

    def lying(*args):
        answer = honest(*args)
        return answer._replace(sums=answer.sums + np.int32(1))

    monkeypatch.setattr(networks, "run", lying)
    with pytest.raises(SystemExit, match="mlp: the answer is wrong"):
        list(networks.rows_of(device, ["mlp"]))


def test_peers_are_rates_where_ours_are():
    subject = networks.Subject(mlp, 8, 1.0, 100, 2.0)
    times = networks.Times(0.5, 0.25)
    assert networks.row_of("net/mlp/8", subject, 8, times, {"torch": 0.125}).peers == {"torch": 125.0}
    row = networks.row_of("net/mlp/100", subject, 100, times, {"torch": 0.125})
    assert (row.ours, row.peers) == (200, {"torch": 800})


@pytest.mark.at_most(1)
@pytest.mark.parametrize(
    "make",
    [
        lambda: mlp(width=16),
        lambda: vgg_cifar(size=8, width=16),
        *(lambda s=s: resnet14(size=8, width=16, shortcut=s) for s in ("A", "B", "bireal")),
    ],
)
def test_float_models_of_torch_have_the_networks_shapes(make):
    torch = pytest.importorskip("torch")
    network = make()
    height, width, channels = network.input.shape
    model = peers.float_model(network).eval()
    with torch.no_grad():
        assert model(torch.zeros(2, channels, height, width)).shape == (2, network.scale.size)


def test_a_graph_without_work_has_a_row(device):
    row = networks.row_of_nothing(device)
    assert (row.case, row.unit, row.target) == ("net/nothing", "ms", None)
    assert row.ours > 0
