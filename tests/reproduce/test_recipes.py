"""The recipes are the paper's experiments: its hyperparameters, networks, methods and groups."""

from __future__ import annotations

from typing import Any

import pytest

from swiftfl.errors import UserError
from swiftfl.experiment.build import build, build_algorithm, build_costs, build_topology, resolve
from swiftfl.experiment.config import Config
from swiftfl.experiment.costs_config import CostsConfig
from swiftfl.graph import communication_coefficients
from swiftfl.reproduce.hardware import paper_costs
from swiftfl.reproduce.plan import (
    METHODS,
    SCALES,
    SYNCHRONOUS,
    Case,
    Experiment,
    ReproductionOptions,
    planned_steps,
)
from swiftfl.reproduce.printed import hyperparameters, printed, step_size
from swiftfl.reproduce.recipes import EXPERIMENTS

TABLES = {
    "noniid": "noniid_roc3c_10_resnet18",
    "slowdown": "slowdown_ring16_resnet18",
    "clients": "clients_ring_resnet18",
    "topologies": "topologies_16_resnet50",
}
STEPS_PER_EPOCH = {2: 782, 4: 391, 8: 196, 10: 157, 16: 98, 64: 25, 256: 7}


def plan(name: str, scale: str = "paper", **options: Any) -> Experiment:
    return EXPERIMENTS[name](scale, ReproductionOptions(**options))


def papers(experiment: Experiment) -> list[Case]:
    """Without the cases that we added."""
    return [case for case in experiment.cases if case.method in METHODS]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_papers_hyperparameters_at_its_scale(name: str) -> None:
    h = hyperparameters(name)
    for case in papers(plan(name)):
        c = case.config
        assert (c.data.dataset, c.data.augment, c.data.batch_size) == ("cifar10", True, h["batch"])
        assert c.model.name == f"thin_{h['model']}"
        assert (c.algorithm.momentum, c.algorithm.weight_decay) == (h["momentum"], h["weight_decay"])
        sizes = c.algorithm.step_size
        assert (sizes.initial, sizes.rate) == (h["step_size"], h["decay"]["rate"])
        assert list(sizes.at) == h["decay"].get("at", [])
        assert sizes.start == h["decay"].get("from")
        assert sizes.period == h["decay"].get("every", 1)
        assert _epochs(c) == h["epochs"]


def _epochs(config: Config) -> float:
    """Also of a run that ends after as many steps."""
    n = config.topology.clients
    per_epoch = n * STEPS_PER_EPOCH[n] * 32 // config.data.batch_size
    return config.engine.epochs or (config.engine.iterations or 0) / per_epoch


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_method_of_the_printed_table_has_a_case(name: str) -> None:
    experiment = plan(name)
    if name == "baseline":
        assert set(printed()["baseline_ring16_resnet18"]) == set(experiment.methods)
        return
    table = printed()[TABLES[name]]
    rows = table if name == "noniid" else next(iter(table.values()))
    assert set(rows) - {"degrees"} <= set(experiment.methods)
    if name != "noniid":
        assert set(table) <= set(experiment.groups)
    methods = [method for method in experiment.methods if method in METHODS]
    assert {(c.group, c.method) for c in papers(experiment)} == {
        (group, method) for group in experiment.groups for method in methods
    }


def test_methods_are_as_the_authors_ran_them() -> None:
    cases = {case.method: case.config.algorithm for case in plan("baseline").cases}
    assert list(cases) == list(METHODS)
    assert [cases[m].communication_set for m in ("swift_c0", "swift_c1")] == [0, 1]
    assert cases["pasgd_c1"].i1 == 1
    assert (cases["ldsgd_c1"].i1, cases["ldsgd_c1"].i2) == (1, 2)
    assert {m: resolve(c.config).algorithm.weights for m, c in _by_method(plan("baseline")).items()} == {
        m: "ccs" if m.startswith("swift") else "metropolis" for m in METHODS
    }
    uniform = _by_method(plan("baseline", baseline_weights="uniform"))
    assert {m: c.config.algorithm.weights for m, c in uniform.items()} == {
        m: None if m.startswith("swift") else "uniform" for m in METHODS
    }


def test_the_authors_order_broadcast_and_decay() -> None:
    for name in EXPERIMENTS:
        for case in plan(name, fidelity="authors").cases:
            algorithm = case.config.algorithm
            assert algorithm.step_size.options["epoch_of_decay"] == "authors"
            if algorithm.name == "swift":
                assert (algorithm.broadcast, algorithm.decay_at) == ("after", "average")
            elif algorithm.name == "adpsgd":
                assert algorithm.averaging == "background"
            else:
                assert algorithm.order == "average_first"


def test_the_authors_average_no_running_buffers() -> None:
    """Where there are any: the models of the smaller scales have none, and would be refused."""
    for scale, buffers in (("paper", "own"), ("small", "averaged"), ("smoke", "averaged")):
        assert {c.config.model.buffers for c in plan("baseline", scale, fidelity="authors").cases} == {
            buffers
        }
        assert {c.config.model.buffers for c in plan("baseline", scale).cases} == {"averaged"}
    assert plan("baseline", fidelity="authors", model="cnn").cases[0].config.model.buffers == "averaged"


def test_the_paper_is_the_default_and_differs_in_nothing_else() -> None:
    printed_, authors = plan("baseline"), plan("baseline", fidelity="authors")
    assert printed_ == plan("baseline", fidelity="paper")
    for one, other in zip(printed_.cases, authors.cases, strict=True):
        assert one.config.algorithm.step_size.options["epoch_of_decay"] == "printed"
        assert one.config.algorithm != other.config.algorithm
        same = {"algorithm": one.config.algorithm, "model": one.config.model}
        assert one.config == other.config.model_copy(update=same)


def test_synchronous_methods_wait_for_everybody_where_the_paper_did() -> None:
    def barriers(**options: Any) -> dict[str, str]:
        return {c.method: c.config.engine.barrier for c in plan("baseline", "smoke", **options).cases}

    waiting = {m: "global" if m in SYNCHRONOUS else "neighbours" for m in METHODS}
    nobody = dict.fromkeys(METHODS, "neighbours")
    assert barriers() == barriers(fidelity="authors") == waiting
    measured = CostsConfig(message_bytes=1000)
    assert barriers(costs=measured) == nobody
    assert barriers(costs=measured, fidelity="authors") == waiting
    assert barriers(engine="local") == waiting


@pytest.mark.parametrize("scale", SCALES)
def test_the_mean_of_the_clients_losses_is_taken_at_every_scale(scale: str) -> None:
    assert all(c.config.evaluation.clients > 0 for name in EXPERIMENTS for c in plan(name, scale).cases)


def _by_method(experiment: Experiment) -> dict[str, Any]:
    return {case.method: case for case in experiment.cases}


def test_networks_and_data() -> None:
    assert {build_topology(c.config.topology, 0).m for c in plan("noniid").cases} == {15}
    assert [c.config.data.partition for c in plan("noniid").cases if c.method == "dsgd_c0"] == [
        "label_skew:0.25", "label_skew:0.5", "label_skew:0.7", "label_skew:0.9", "cyclic_classes",
    ]  # fmt: skip
    edges = {c.group: build_topology(c.config.topology, 0).m for c in plan("topologies").cases}
    assert edges == {"roc2c": 57, "roc4c": 28, "ring": 16}
    sizes = {c.group: build_topology(c.config.topology, 0).n for c in plan("clients").cases}
    assert sizes == {"2": 2, "4": 4, "8": 8, "16": 16, "64": 64, "256": 256}
    assert {c.group for c in plan("clients").cases if not c.trained} == {"64", "256"}


def test_the_slow_client_and_the_slow_link() -> None:
    costs = {c.group: c.config.engine.costs for c in plan("slowdown").cases}
    factors = {g: [(s.client, s.factor) for s in c.slowdowns] for g, c in costs.items()}
    assert factors == {"1x": [], "2x": [(0, 2)], "4x": [(0, 4)], "16x": [(0, 16)], "link": []}
    config = plan("slowdown").case("link", "dsgd_c0").config
    built = build_costs(config)
    assert built.transit(0, 1, 703_272) == pytest.approx(10 * paper_costs().compute)
    assert built.transit(1, 2, 703_272) < paper_costs().compute


def test_swift_at_true_rates_and_for_half_the_time() -> None:
    experiment = plan("slowdown")
    rates = experiment.case("4x", "swift_rates").config.influence
    assert isinstance(rates, list)
    assert sum(rates) == pytest.approx(1)
    assert rates[0] < min(rates[1:]) < 4 * rates[0]  # communication is not slowed down
    half = experiment.case("4x", "swift_half").config
    assert (half.engine.iterations or 0) > 1.5 * (planned_steps(experiment.case("4x", "dsgd_c0").config))
    assert half.influence == rates


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_case_can_be_built(name: str, scale: str) -> None:
    for case in plan(name, scale).cases:
        config = resolve(case.config)
        graph = build_topology(config.topology, 0)
        build_algorithm(config.algorithm, graph, 0)
        build_costs(config).check_clients(graph.n)
        config.algorithm.step_size.make(config.engine.epochs)
        if graph.n <= 16:
            communication_coefficients(graph, None, str(config.algorithm.weights))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_planned_steps_are_those_of_the_run(name: str) -> None:
    for case in plan(name, "smoke").cases[:: len(METHODS)]:
        setup = build(case.config).setup
        per_epoch = sum(batches.steps_per_epoch for batches in setup.batches)
        assert planned_steps(case.config) == (setup.iterations or (setup.epochs or 0) * per_epoch)


def test_the_textbook_networks_and_other_choices() -> None:
    assert plan("baseline", model="resnet18").cases[0].config.model.name == "resnet18"
    assert plan("topologies", model="resnet50").cases[0].config.model.name == "resnet50"
    assert plan("baseline", "smoke", epochs=2).cases[0].config.engine.epochs == 2
    with pytest.raises(UserError, match="--scale paper"):
        plan("baseline", "small", model="resnet18")
    with pytest.raises(UserError, match="no scale"):
        plan("baseline", "tiny")
    assert plan("baseline", engine="local", device="cuda").cases[0].config.model.device == "cuda"


def test_schedules_shrink_in_proportion() -> None:
    assert step_size("baseline", 0.05, 20).at == (8, 12)
    assert (step_size("noniid", 0.05, 30).start, step_size("noniid", 0.05, 30).period) == (20, 1)
    assert step_size("slowdown", 0.05, 8).start == 4
