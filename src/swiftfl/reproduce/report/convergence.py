"""The convergence experiment's tables, pictures and findings, from its results.json."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from swiftfl.report.figures import Picture
from swiftfl.report.numbers import Cell, deviation, mean
from swiftfl.report.table import Table
from swiftfl.reproduce.report.convergence_figures import (
    clients_figure,
    delay_figure,
    lemma_figure,
    rate_figure,
)

PROBLEMS = {"convex": "convex", "rippled": "non-convex"}
DATA = {"iid": "IID", "noniid": "non-IID"}
METHODS = {"swift_rates": "SWIFT, p = rates", "swift_uniform": "SWIFT, p uniform", "adpsgd": "AD-PSGD"}
NOT_REACHED = "not reached"
Rows = list[dict[str, Any]]
FIRST, AVERAGED = "first_below_by_rate", "averaged_by_rate"


def tables(results: dict[str, Any]) -> list[Table]:
    return [
        rate_table(results),
        reach_table(results),
        delay_table(results),
        lemma_table(results),
        clients_table(results),
    ]


def _has_exact(results: dict[str, Any], problem: str) -> bool:
    return any(row["exact"] for row in results["rate"] if row["problem"] == problem)


def pictures(results: dict[str, Any]) -> list[Picture]:
    """The figures with what they show in words."""
    found = [
        Picture(
            f"convergence-rate-{problem}",
            f"Averaged squared gradient norm against T, {label}: each point is a run with the theorem's step "
            "size for its T, mean over seeds. Grey: the slope -1/2."
            + (" Crosses: the exact expectation." if _has_exact(results, problem) else ""),
            partial(rate_figure, results, problem, label),
        )
        for problem, label in PROBLEMS.items()
    ]
    found += [
        Picture(
            f"convergence-delay-{problem}-{data}",
            f"One slow client, {PROBLEMS[problem]}, {DATA[data]}: iterations until the squared gradient norm "
            "of the consensus model is at the level for the first time; if it never is, there is none.",
            partial(delay_figure, results, problem, data, METHODS),
        )
        for problem, data in dict.fromkeys((row["problem"], row["data"]) for row in results["delay"])
    ]
    found.append(
        Picture(
            "convergence-lemma",
            "Lemma 1: the error as printed and as the proof needs it, for the worst client, under the "
            "right-hand side without its constants (convex, uniform p).",
            partial(lemma_figure, results, DATA),
        )
    )
    found += [
        Picture(
            f"convergence-clients-{row['graph']}",
            f"Iterations until the averaged squared gradient norm has a level: a {_graph(row)} of n clients.",
            partial(clients_figure, row),
        )
        for row in results["clients"]
    ]
    return found


def short(values: list[Any], digits: int = 3) -> Cell:
    """Mean ± standard deviation in few digits; of values that are missing in part, how many there are."""
    there = [float(value) for value in values if value is not None]
    if not there:
        return NOT_REACHED
    around = deviation(there)
    text = f"{mean(there):.{digits}g}" + ("" if around is None else f" ± {around:.1g}")
    return text if len(there) == len(values) else f"{text} ({len(there)} of {len(values)} seeds)"


def whole(values: list[Any]) -> Cell:
    """The same for counts."""
    there = [float(value) for value in values if value is not None]
    if not there:
        return NOT_REACHED
    around = deviation(there)
    text = f"{mean(there):.0f}" + ("" if around is None else f" ± {around:.0f}")
    return text if len(there) == len(values) else f"{text} ({len(there)} of {len(values)} seeds)"


def _with_error(fit: dict[str, Any] | None) -> Cell:
    if fit is None:
        return None
    return f"{fit['slope']:.3f}" + ("" if fit["error"] is None else f" ± {fit['error']:.3f}")


def rate_table(results: dict[str, Any]) -> Table:
    rows: list[list[Cell]] = []
    for row in results["rate"]:
        exact = row["exact"]
        rows.append([
            PROBLEMS[row["problem"]], DATA[row["data"]], row["influence"],
            row["constants"]["zeta"],
            f"{row['fit']['from']} to {row['fit']['to']}",
            _with_error(row["fit"]),
            f"{exact['slope']:.3f}" if exact else None,
            f"{exact['late']['slope']:.4f}" if exact else None,
            short([curve[-1] for curve in row["averaged"]]),
            exact["averaged"][-1] if exact else None,
            f"{row['bound']['log10_printed'][-1]:.1f}",
            f"{row['bound']['log10_smallest_T']:.1f}",
        ])  # fmt: skip
    return Table(
        "convergence-rate",
        "Averaged squared gradient norm against T: slope in log-log (the theorem: -1/2)",
        ["problem", "data", "p", "ζ", "T fitted", "slope ± s.e.", "exact slope, same T",
         "exact slope, 2^30 to 2^40", "average at last T", "exact", "log10 of bound",
         "log10 of smallest T allowed"],
        rows,
        note=f"L = 1, σ = 1, n = {results['rate'][0]['n']} in a ring. The bound is Theorem 1's right-hand "
        "side at the last T with B = n; it is claimed from the smallest T on only.",
    )  # fmt: skip


def reach_table(results: dict[str, Any]) -> Table:
    row = results["reach"]
    return Table(
        "convergence-reach",
        "Where the theorem's T can be reached: two clients that start next to the optimum",
        ["n", "T", "Δ_f", "averaged squared gradient norm", "exact", "bound"],
        [[row["n"], row["T"], row["constants"]["gap"], short(row["averaged"]), row["exact"],
          10.0 ** row["bound"]["log10_printed"][0]]],
    )  # fmt: skip


def delay_table(results: dict[str, Any]) -> Table:
    rows: list[list[Cell]] = []
    for row in results["delay"]:
        delay = whole(row["largest_delay"]) if row["method"] == "adpsgd" else None
        rows.append([
            PROBLEMS[row["problem"]], DATA[row["data"]], METHODS[row["method"]], f"{row['factor']}x",
            whole(row["first_below_by_rate"]), short(row["averaged_by_rate"]),
            short(row["averaged_of_weighted_model"]), short(row["averaged_uniform"]), delay,
        ])  # fmt: skip
    first = results["delay"][0]
    return Table(
        "convergence-delay",
        "One slow client: does the number of iterations depend on its delay?",
        ["problem", "data", "method", "slower", "iterations to level", "average, f by rates",
         "the same of the rate-weighted model", "average, f uniform", "largest delay"],
        rows,
        note=f"n = {first['n']} in a ring, T = {2 ** first['log2_T']}, level {first['level']:g} of the "
        "squared gradient norm of f weighted by the true rates. The averages are over all t < T.",
    )  # fmt: skip


def lemma_table(results: dict[str, Any]) -> Table:
    rows: list[list[Cell]] = [
        [
            DATA[row["data"]], row["influence"], row["contraction"],
            row["printed"]["largest_ratio"], row["needed"]["largest_ratio"],
            f"{row['printed']['log10_largest_ratio_to_bound']:.1f}",
            f"{row['needed']['log10_largest_ratio_to_bound']:.1f}",
            short(row["missed_share"]),
        ]
        for row in results["lemma"]
    ]  # fmt: skip
    first = results["lemma"][0]
    return Table(
        "convergence-lemma",
        "Lemma 1: the client-communication error, largest over t and clients, against its bound",
        ["data", "p", "contraction", "printed / (σ² + Σ‖∇f‖²)", "needed / (σ² + Σ‖∇f‖²)",
         "log10 printed / bound", "log10 needed / bound", "missed by the proof"],
        rows,
        note=f"n = {first['n']} in a ring, {first['runs']} runs. Printed: with the product of "
        "differences, as the lemma has it. Needed: with the difference of products. Missed: root mean square "
        "of what the proof leaves out of x̄ - x_i, as a share of x̄ - x_i.",
    )  # fmt: skip


def clients_table(results: dict[str, Any]) -> Table:
    numbers = results["clients"][0]["numbers"]
    rows: list[list[Cell]] = []
    for row in results["clients"]:
        for kind, label in (("gradient", "averaged ‖∇f‖²"), ("loss", "f - f*, last tenth")):
            for level in row[kind]:
                counts = [whole(level["iterations"][str(n)]) for n in numbers]
                exponents = [_with_error(level[name]) for name in ("exponent", "last_exponent")]
                rows.append([row["graph"], label, f"{level['level']:g}", *counts, *exponents])
    return Table(
        "convergence-clients",
        "Iterations to a level against the number of clients n",
        ["graph", "of", "level", *(f"n = {n}" for n in numbers), "exponent of n ± s.e.", "of the last two n"],
        rows,
        note="Client steps in all, with the theorem's step size for each T, convex, non-IID, uniform p. "
        "Divided by n they are steps per client. The exponent is fitted over the n for which every "
        "seed reached the level.",
    )


# --- findings -------------------------------------------------------------------------------------------


def findings(results: dict[str, Any]) -> list[str]:
    """Sentences, the most important first."""
    return [
        *_rate(results["rate"]),
        _reach(results["reach"]),
        *_delay(results["delay"]),
        _lemma(results["lemma"]),
        *_clients(results["clients"]),
    ]


def _rate(rows: Rows) -> list[str]:
    slopes = [row["fit"]["slope"] for row in rows]
    late = [row["exact"]["late"]["slope"] for row in rows if row["exact"]]
    first, bound = rows[0], rows[0]["bound"]
    measured = mean([curve[-1] for curve in first["averaged"]])
    return [
        f"Fitted slopes are between {min(slopes):.3f} and {max(slopes):.3f} in {len(rows)} settings; the "
        f"theorem's rate is -0.5. On quadratics the exact slope between T = 2^30 and 2^40 is "
        f"{_between(late)}.",
        f"The theorem is claimed from T = 10^{bound['log10_smallest_T']:.0f} on with n = {first['n']}; its "
        f"bound at T = {first['T'][-1]} would be 10^{bound['log10_printed'][-1]:.0f}; "
        f"{measured:.2g} is measured.",
    ]


def _between(values: Sequence[float]) -> str:
    """
    >>> _between([-0.50001, -0.50002]), _between([-0.5, -0.5007])
    ('-0.5000', 'between -0.5007 and -0.5000')
    """
    low, high = f"{min(values):.4f}", f"{max(values):.4f}"
    return low if low == high else f"between {low} and {high}"


def _reach(row: dict[str, Any]) -> str:
    bound, gap = 10.0 ** row["bound"]["log10_printed"][0], row["constants"]["gap"]
    return (
        f"Where its T can be reached ({row['n']} clients, Δ_f = {gap:.2g}, T = {row['T']}): "
        f"{mean(row['averaged']):.2g} measured, {bound:.2g} allowed."
    )


def _delay(rows: Rows) -> list[str]:
    """Of the convex IID problem: there the objective is the same whatever p is."""
    iid = [row for row in rows if (row["problem"], row["data"]) == ("convex", "iid")]
    factor = max(row["factor"] for row in iid)

    def of(method: str, slower: int) -> dict[str, Any]:
        return next(row for row in iid if (row["method"], row["factor"]) == (method, slower))

    def ratio(method: str, key: str) -> str:
        return _times(of(method, factor), of(method, 1), key)

    delays = [max(of("adpsgd", slower)["largest_delay"]) for slower in (1, factor)]
    return [
        f"One client {factor} times slower, convex and IID, against equal clients. Iterations to the level: "
        f"SWIFT with p set to the rates {ratio('swift_rates', FIRST)}, with p left uniform "
        f"{ratio('swift_uniform', FIRST)}, AD-PSGD {ratio('adpsgd', FIRST)} (its largest delay: "
        f"{delays[0]} and {delays[1]} iterations).",
        f"The averaged norm in the same order: {ratio('swift_rates', AVERAGED)}, "
        f"{ratio('swift_uniform', AVERAGED)}, {ratio('adpsgd', AVERAGED)}.",
        "The theorem's average x̄ counts the slow client's own model in full, however old it is. Of the "
        "average with the rates as weights, SWIFT with p set to the rates needs "
        f"{ratio('swift_rates', 'first_below_of_weighted_model')} the iterations, and the averaged norm is "
        f"{ratio('swift_rates', 'averaged_of_weighted_model')}.",
    ]


def _times(row: dict[str, Any], reference: dict[str, Any], key: str) -> str:
    if None in row[key] or None in reference[key]:
        return "not reached"
    return f"{mean(row[key]) / mean(reference[key]):.2f} times"


def _lemma(rows: Rows) -> str:
    printed = max(row["printed"]["largest_ratio"] for row in rows)
    needed = max(row["needed"]["largest_ratio"] for row in rows)
    missed = [share for row in rows for share in row["missed_share"]]
    return (
        f"Lemma 1's error is at most {printed:.2g} of σ² + Σ‖∇f‖² as printed, and {needed:.2g} in the form "
        "that the theorem's proof needs. The mixed terms that the proof leaves out are "
        f"{100 * min(missed):.0f} % to {100 * max(missed):.0f} % of x̄ - x_i."
    )


def _clients(rows: Rows) -> list[str]:
    said = []
    for row in rows:
        levels = [level for level in row["gradient"] if level["exponent"]]
        words = ", ".join(f"n^{level['exponent']['slope']:.2f} at {level['level']:g}" for level in levels)
        said.append(f"Iterations to a level of the averaged norm grow with n ({_graph(row)}) as {words}.")
    return said


def _graph(row: dict[str, Any]) -> str:
    """What sentences call it."""
    return "complete graph" if row["graph"] == "complete" else str(row["graph"])
