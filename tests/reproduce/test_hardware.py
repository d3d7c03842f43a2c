"""Hardware profiles: the paper's, derived from three rows of its tables, and this machine's."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from swiftfl.errors import UserError
from swiftfl.experiment.config import Config
from swiftfl.experiment.recipes import recipe
from swiftfl.reproduce import hardware
from swiftfl.reproduce.machine import median_seconds, rounded
from swiftfl.workload.models import model

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_example_file_holds_the_paper_costs() -> None:
    written = json.loads((EXAMPLES / "costs" / "paper.json").read_text())
    assert written == hardware.as_json()
    config = Config().with_changes({"engine.costs": written})
    assert config.engine.costs == hardware.profile("paper")


def test_the_constants_follow_from_the_printed_rows() -> None:
    """By hand: 98 steps of 9.5 ms; 32 messages share 6.4 ms less the latency; SWIFT has two neighbours."""
    costs = hardware.paper_costs()
    assert costs.message_bytes == 703_272
    assert 98 * costs.compute == pytest.approx(1.558 - 0.627)
    assert costs.shared_bandwidth == pytest.approx(32 * 703_272 / (0.627 / 98 - 0.00005))
    assert costs.bandwidth == costs.shared_bandwidth
    assert 98 * 2 * (costs.send + costs.mix) == pytest.approx(0.086)
    assert costs.send == costs.mix


@pytest.mark.parametrize("options", [{"send_share": 0.2}, {"send_share": 1.0}, {"latency": 0.0}])
def test_other_constants_keep_the_rows_they_are_calibrated_on(options: dict[str, float]) -> None:
    costs = hardware.paper_costs(**options)
    assert costs.shared_bandwidth is not None
    assert 98 * (costs.latency + 32 * 703_272 / costs.shared_bandwidth) == pytest.approx(0.627)
    assert 98 * 2 * (costs.send + costs.mix) == pytest.approx(0.086)


def test_a_latency_that_leaves_no_time_for_the_messages_is_refused() -> None:
    with pytest.raises(UserError, match="no time for the messages"):
        hardware.paper_costs(latency=0.01)


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_the_networks_are_what_they_are_said_to_be(name: str) -> None:
    said = hardware.network(name)
    net = model(said.trained, (3, 32, 32), 10)().to("meta")
    assert sum(p.numel() for p in net.parameters()) == said.parameters


def test_compute_does_not_grow_with_the_arithmetic() -> None:
    """4.9 times the operations of a batch take 2.7 times as long: so ResNet-50 has a row of its own."""
    counted = {}
    for name, said in hardware.NETWORKS.items():
        net = model(said.trained, (3, 32, 32), 10)().to("meta")
        with FlopCounterMode(display=False) as counter:
            net(torch.zeros(1, 3, 32, 32, device="meta")).sum().backward()
        counted[name] = counter.get_total_flops() * said.batch_size
    assert counted["resnet50"] / counted["resnet18"] == pytest.approx(4.9, abs=0.05)
    compute = [hardware.network(name).compute for name in ("resnet50", "resnet18")]
    assert compute[0] / compute[1] == pytest.approx(2.7, abs=0.05)


def test_the_larger_network_has_its_own_row_for_compute_and_pays_by_the_byte() -> None:
    small, large = hardware.paper_costs("resnet18"), hardware.paper_costs("thin_resnet50")
    assert large.message_bytes == 4 * 545_930
    assert 49 * large.compute == pytest.approx(2.241 - 0.962)
    assert large.send / small.send == pytest.approx(545_930 / 175_818)
    assert large.mix / small.mix == pytest.approx(545_930 / 175_818)
    assert (large.latency, large.shared_bandwidth) == (small.latency, small.shared_bandwidth)


def test_what_is_not_known_is_said() -> None:
    with pytest.raises(UserError, match="resnet18, resnet50, not for 'mlp'"):
        hardware.profile("paper", "mlp")
    with pytest.raises(UserError, match="paper or measured"):
        hardware.profile("quantum")
    with pytest.raises(UserError, match="needs the configuration"):
        hardware.profile("measured")


def test_this_machine_is_measured_on_the_given_workload() -> None:
    config = recipe("digits")
    costs = hardware.profile("measured", config=config)
    assert costs.message_bytes == 4 * 4810
    assert 1e-8 < costs.send < costs.compute < 1
    assert 1e-7 < costs.latency < 0.1
    assert costs.bandwidth > 1e7
    assert all(rounded(v) == v for v in (costs.compute, costs.send, costs.mix, costs.latency))
    assert config.with_changes({"engine.costs": costs.model_dump()}).engine.costs == costs


def test_the_median_is_of_what_is_timed() -> None:
    assert 0.002 <= median_seconds(lambda: time.sleep(0.002), 0.02) < 5
