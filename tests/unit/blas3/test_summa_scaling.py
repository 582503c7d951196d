"""The model of many hosts, and the page's figures."""

import re
from pathlib import Path

import pytest

from simwarp.lab.summa_scaling import Model, Network

PAGE = Path(__file__).resolve().parents[3] / "docs" / "blas3.md"
NEAR = 0.02
"""How far the page's figures may be from those of today's scheduler."""


def test_broadcasts_take_longer_to_more_hosts() -> None:
    for way in ("pipeline", "tree"):
        network = Network(broadcast=way)
        times = [network.broadcast_seconds(1e9, hosts) for hosts in (1, 2, 4, 8)]
        assert times[0] == 0
        assert times == sorted(times)
        assert times[1] == pytest.approx(0.020005)
    assert Network().broadcast_seconds(1e9, 8) < 0.025
    assert Network(broadcast="tree").broadcast_seconds(1e9, 8) == pytest.approx(3 * 0.020005)
    assert Network().broadcast_seconds(0, 8) == 0


def test_one_host_waits_for_no_network() -> None:
    model = Model(network=Network(bytes_per_second=1.0))
    assert model.predict(4096, 1, 4096).exposed_seconds == 0
    assert model.predict(4096, 4, 4096).exposed_seconds > 1e6


def test_a_fast_network_hides_all_but_the_first_broadcast() -> None:
    slow, fast = (Model(network=Network(1e-6, rate)).predict(8192, 4, 2048) for rate in (1e9, 1e12))
    assert fast.exposed_seconds == pytest.approx(2 * (1e-6 + 8 * 4096 * 2048 / 1e12))
    assert slow.exposed_seconds > 0.5 * slow.seconds
    assert slow.bytes_per_host == 8 * (3 * 4096**2 + 2 * 2048 * 2 * 4096)


@pytest.mark.gate
def test_the_table_of_the_page_is_that_of_the_model() -> None:
    rows = re.findall(
        r"^\| (\d+) \| (\d+|–)(?:, \d+ %)? \| (\d+), .*?\| (\d+), .*?\| (\d+), ", PAGE.read_text(), re.M
    )
    table = {
        (int(n), hosts): int(x)
        for n, *row in rows
        for hosts, x in zip((1, 4, 16, 64), row, strict=True)
        if x != "–"
    }
    assert len(table) == 15
    model = Model()
    for case in ((32768, 1), (32768, 4), (32768, 16), (65536, 4), (65536, 16), (131072, 64)):
        assert model.fastest(*case).tflops == pytest.approx(table[case], rel=NEAR), case
    for (n, hosts), tflops in table.items():
        text = f"{tflops}, {round(100 * tflops / hosts / table[131072, 1])} %"
        assert text in PAGE.read_text(), (n, text)
    tree = Model(network=Network(broadcast="tree"))
    assert tree.fastest(131072, 64).tflops == pytest.approx(2152, rel=NEAR)
    four_links = Model(network=Network(bytes_per_second=4 * 50e9))
    assert four_links.fastest(131072, 64).tflops == pytest.approx(10295, rel=NEAR)
