"""Hardware profiles: the paper's, derived from one row of its tables, and this machine's."""

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


def test_a_step_of_dsgd_takes_what_the_baseline_row_says() -> None:
    """By hand: 98 steps of 9.5 ms, and 98 times two sends, two mixes and one journey."""
    costs = hardware.paper_costs()
    assert hardware.STEPS_PER_EPOCH == 98
    assert costs.message_bytes == 703_272
    assert 98 * costs.compute == pytest.approx(1.558 - 0.627)
    assert costs.bandwidth == pytest.approx(703_272 / (0.627 / 98 - 4 * 0.00015 - 0.00005))


@pytest.mark.parametrize("options", [{"send": 0.0003}, {"mix": 0.000075}, {"latency": 0.0}])
def test_other_constants_keep_the_row_they_are_calibrated_on(options: dict[str, float]) -> None:
    costs = hardware.paper_costs(**options)
    journey = costs.latency + 703_272 / costs.bandwidth
    assert 98 * (2 * costs.send + 2 * costs.mix + journey) == pytest.approx(0.627)


def test_constants_that_leave_no_time_for_the_journey_are_refused() -> None:
    with pytest.raises(UserError, match="no time for the journey"):
        hardware.paper_costs(send=0.01)


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_the_networks_are_what_they_are_said_to_be(name: str) -> None:
    """Parameters and arithmetic, counted again."""
    said = hardware.network(name)
    net = model(said.trained, (3, 32, 32), 10)().to("meta")
    with FlopCounterMode(display=False) as counter:
        net(torch.zeros(1, 3, 32, 32, device="meta")).sum().backward()
    assert counter.get_total_flops() == said.flops
    assert sum(p.numel() for p in net.parameters()) == said.parameters


def test_the_larger_network_costs_more_by_what_was_counted() -> None:
    small, large = hardware.paper_costs("resnet18"), hardware.paper_costs("thin_resnet50")
    assert large.message_bytes == 4 * 545_930
    assert large.compute / small.compute == pytest.approx(2 * 388_709_376 / 159_059_712)
    assert large.send / small.send == large.mix / small.mix == pytest.approx(545_930 / 175_818)
    assert (large.latency, large.bandwidth) == (small.latency, small.bandwidth)


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
    assert 1e-6 < costs.send < costs.compute < 1
    assert 1e-7 < costs.latency < 0.1
    assert costs.bandwidth > 1e7
    assert all(rounded(v) == v for v in (costs.compute, costs.send, costs.mix, costs.latency))
    assert config.with_changes({"engine.costs": costs.model_dump()}).engine.costs == costs


def test_the_median_is_of_what_is_timed() -> None:
    assert 0.002 <= median_seconds(lambda: time.sleep(0.002), 0.02) < 0.05
