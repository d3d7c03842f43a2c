"""Device traces become costs; what is wrong with a file is said on one line."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import swiftfl
from swiftfl.errors import UserError
from swiftfl.experiment.build import build_costs, resolve
from swiftfl.experiment.config import Config
from swiftfl.experiment.devices import costs_of, read_devices
from swiftfl.experiment.recipes import recipe

EXAMPLE = Path(__file__).parents[2] / "examples" / "costs" / "devices.csv"
THREE = {
    "a": {"computation": 10.0, "communication": 8000.0},
    "b": {"computation": 20.0, "communication": 4000.0},
    "c": {"computation": 40.0, "communication": 80000.0},
}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "devices.json"
    file.write_text(json.dumps(THREE))
    return file


def test_a_gradient_is_three_passes_over_the_batch_and_a_link_as_fast_as_its_slower_end(trace: Path) -> None:
    found = costs_of(str(trace), swiftfl.ring(3), batch_size=10, seed=0)
    assert found["engine.costs.compute"] == pytest.approx(3 * 10 * 0.020)
    factors = [found["engine.costs.trace"][i][0] for i in range(3)]
    assert sorted(factors) == pytest.approx([0.5, 1.0, 2.0])
    rate_of = {0.5: 1_000_000.0, 1.0: 500_000.0, 2.0: 10_000_000.0}  # kilobits become bytes
    for link in found["engine.costs.links"]:
        i, j = link["edge"]
        assert link["bandwidth"] == pytest.approx(min(rate_of[round(factors[k], 3)] for k in (i, j)))
    assert found["engine.costs.bandwidth"] == pytest.approx(500_000.0)


def test_the_seed_draws_the_devices(trace: Path) -> None:
    many = [costs_of(str(trace), swiftfl.ring(2), 1, seed)["engine.costs.trace"] for seed in range(20)]
    assert many[0] == costs_of(str(trace), swiftfl.ring(2), 1, 0)["engine.costs.trace"]
    assert len({json.dumps(each) for each in many}) > 1


def test_a_resolved_configuration_holds_the_numbers(trace: Path) -> None:
    config = recipe("digits").with_changes({"topology.clients": 3, "engine.costs.devices": str(trace)})
    resolved = resolve(config)
    assert resolved.engine.costs.devices is None
    assert build_costs(resolved) == build_costs(config)
    costs = build_costs(resolved)
    slowest = max(costs.gradient(i, 1, 0.0) for i in range(3))
    assert slowest == pytest.approx(3 * 16 * 0.040)
    assert costs.transit(0, 1, 10**6) > costs.latency


def test_the_example_is_what_it_says_it_is() -> None:
    devices = read_devices(str(EXAMPLE))
    r = np.random.default_rng(7)
    for key, middle, around in (("computation", 20, 0.8), ("communication", 5000, 1.0)):
        drawn = middle * np.exp(around * r.standard_normal(100))
        assert np.array([getattr(each, key) for each in devices.values()]) == pytest.approx(drawn, abs=0.051)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", "[1]", "an object of devices"),
        ("a.json", "{", "not JSON"),
        ("a.json", '{"a": {"computation": 1}}', "communication of device a"),
        ("a.json", '{"a": {"computation": true, "communication": 1}}', "computation of device a"),
        ("a.json", '{"a": {"computation": -1, "communication": 1}}', "must be a positive number"),
        ("a.json", "{}", "no devices"),
        ("a.csv", "x,y\n1,2\n", "the first line must name the columns"),
        ("a.csv", "device,computation,communication\n1,2,nan\n", "communication of device 1"),
        ("a.csv", "device,computation,communication\n1,2\n", "communication of device 1"),
        ("a.csv", "device,computation,communication\n1,2,3\n1,2,3\n", "stands there twice"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=words) as raised:
        read_devices(str(tmp_path / name))
    assert "\n" not in str(raised.value)


def test_a_pickle_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "trace").write_bytes(pickle.dumps(THREE))
    with pytest.raises(UserError, match="a pickle is not read: write it as JSON first"):
        read_devices(str(tmp_path / "trace"))


def test_too_few_devices_and_settings_said_twice_are_refused(trace: Path) -> None:
    with pytest.raises(UserError, match="has 3 devices: too few for 4 clients"):
        costs_of(str(trace), swiftfl.ring(4), 1, 0)
    with pytest.raises(UserError, match="no effect with devices"):
        Config().with_changes({"engine.costs.devices": str(trace), "engine.costs.compute": 1.0})
