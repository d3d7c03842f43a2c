"""Seconds per epoch on the paper's hardware: predicted, beside the print, with the error of each prediction.

    python benchmarks/paper_times.py [--fidelity paper|authors]

All five tables of the paper. An epoch is computation and communication, as in the paper. The hardware is
calibrated on three of its rows (`swiftfl.reproduce.hardware`); their cells say so and have no error.
"""

from __future__ import annotations

import argparse
from statistics import median

from swiftfl.report.numbers import change
from swiftfl.reproduce.hardware import CALIBRATED
from swiftfl.reproduce.plan import METHODS, Case, Experiment, ReproductionOptions
from swiftfl.reproduce.prediction import PredictionCache, steps_per_epoch
from swiftfl.reproduce.printed import hyperparameters
from swiftfl.reproduce.recipes import EXPERIMENTS
from swiftfl.reproduce.report.times import change_in_paper, printed_row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--fidelity", choices=["paper", "authors"], default="paper")
    options = ReproductionOptions(fidelity=parser.parse_args().fidelity)
    errors: dict[str, list[float]] = {"epoch": [], "comm": []}
    print("| table | method | epoch, printed (s) | predicted (s) | error | communication, printed (s) | "
          "predicted (s) | error |")  # fmt: skip
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for name, recipe in EXPERIMENTS.items():
        known = PredictionCache(hyperparameters(name)["batch"])
        for case in recipe("paper", options).cases:
            if name == "noniid" and case.group != "25":
                continue  # one printed row stands for all degrees of non-IID data
            line = row(name, case, known, errors)
            if line:
                print(f"| {name} {'' if name in ('baseline', 'noniid') else case.group} {line}")
    for what, found in errors.items():
        worst = max(found, key=abs)
        typical = median(map(abs, found))
        print(f"{what}: {len(found)} predictions, median error {typical:.0f} %, largest {worst:+.0f} %")
    adpsgd(options)


def row(name: str, case: Case, known: PredictionCache, errors: dict[str, list[float]]) -> str:
    """One method of one table; empty if the paper printed no seconds of it."""
    printed = printed_row(name, case.group, case.method)
    if "epoch" not in printed:
        return ""
    times = known.predict(case.config).times
    predicted = {"epoch": times["compute"] + times["communication"], "comm": times["communication"]}
    cells = [METHODS[case.method]]
    for what, seconds in predicted.items():
        error = change(seconds, printed[what])
        assert error is not None
        fixed = what in CALIBRATED.get((name, case.group, case.method), ())
        if not fixed and (name, case.group) != ("clients", "16"):  # these rows repeat the baseline's
            errors[what].append(error)
        cells += [f"{printed[what]:.3f}", f"{seconds:.3f}", "calibrated" if fixed else f"{error:+.0f} %"]
    return f"| {' | '.join(cells)} |"


def adpsgd(options: ReproductionOptions) -> None:
    """Of AD-PSGD the paper quotes a change against D-SGD from that method's own paper, and no seconds."""
    baseline = EXPERIMENTS["baseline"]("paper", options)
    known = PredictionCache(hyperparameters("baseline")["batch"])
    epochs = {}
    for name, method, changes in (
        ("D-SGD", "dsgd_c0", {}),
        ("AD-PSGD, averaging after the gradient", "adpsgd_c0", {"algorithm.averaging": "after"}),
        ("AD-PSGD, averaging in the background", "adpsgd_c0", {"algorithm.averaging": "background"}),
    ):
        times = known.predict(baseline.case("ring16", method).config.with_changes(changes)).times
        epochs[name] = times["compute"] + times["communication"]
        against = change(epochs[name], epochs["D-SGD"])
        print(f"{name}: epoch {epochs[name]:.3f} s ({against:+.1f} %), waiting {times['waiting']:.4f} s")
    quoted = change_in_paper("baseline", "ring16", "adpsgd_c0", "epoch")
    assert quoted is not None
    print(f"quoted of AD-PSGD: {quoted:+.1f} %")
    what_would_have_to_hold(known, baseline, epochs, -quoted / 100)


def what_would_have_to_hold(
    known: PredictionCache, baseline: Experiment, epochs: dict[str, float], share: float
) -> None:
    """For the quoted share: a faster exchange of D-SGD, or an averaging of AD-PSGD that is not hidden."""
    dsgd, after, background = epochs.values()
    config = baseline.case("ring16", "dsgd_c0").config
    costs, steps = config.engine.costs, steps_per_epoch(16, known.batch_size)
    assert costs.message_bytes is not None
    assert costs.shared_bandwidth is not None
    exchange = costs.compute * share / (1 - share)
    rate = 2 * 16 * costs.message_bytes / (exchange - costs.latency)
    faster = {"engine.costs.shared_bandwidth": rate, "engine.costs.bandwidth": rate}
    then = [
        known.predict(baseline.case("ring16", method).config.with_changes(faster)).times
        for method in ("dsgd_c0", "adpsgd_c0")
    ]
    before, now = (times["compute"] + times["communication"] for times in then)
    here = dsgd / steps - costs.compute
    print(
        f"if an exchange of D-SGD took {1e3 * exchange:.1f} ms ({1e3 * here:.1f} here; {rate / 1e9:.1f} "
        f"instead of {costs.shared_bandwidth / 1e9:.1f} GB/s): {change(now, before):+.1f} %"
    )
    visible = ((1 - share) * dsgd - background) / steps
    print(
        f"or if {1e3 * visible:.1f} ms of each averaging of AD-PSGD were not hidden "
        f"({1e3 * (after - background) / steps:.1f} ms in all here)"
    )


if __name__ == "__main__":
    main()
