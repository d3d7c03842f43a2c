"""The headlines of the convergence experiment, computed from its results; also what goes against SWIFT."""

from __future__ import annotations

from typing import Any

from swiftfl.report.numbers import mean

Rows = list[dict[str, Any]]
FIRST, AVERAGED = "first_below_by_rate", "averaged_by_rate"


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
        f"theorem's rate is -0.5. On quadratics the exact slope between T = 2^30 and 2^40 is between "
        f"{min(late):.4f} and {max(late):.4f}.",
        f"The theorem is claimed from T = 10^{bound['log10_smallest_T']:.0f} on with n = {first['n']}; its "
        f"bound at T = {first['T'][-1]} would be 10^{bound['log10_printed'][-1]:.0f}; "
        f"{measured:.2g} is measured.",
    ]


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
        f"{min(missed):.0%} to {max(missed):.0%} of x̄ - x_i."
    )


def _clients(rows: Rows) -> list[str]:
    said = []
    for row in rows:
        levels = [level for level in row["gradient"] if level["exponent"]]
        words = ", ".join(f"n^{level['exponent']['slope']:.2f} at {level['level']:g}" for level in levels)
        said.append(f"Iterations to a level of the averaged norm grow with n ({row['graph']}) as {words}.")
    return said
