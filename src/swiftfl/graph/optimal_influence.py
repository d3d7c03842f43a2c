"""Which influence p to choose for a network, speeds and data: the p of the lowest predicted level.

The paper leaves optimal client-sampling probabilities to future work. Its theorem cannot choose: it knows
no speeds, and the constant that dominates its bound does not depend on p (`graph/theory.py`). What is
minimised here is a prediction of the squared gradient norm of the wanted objective f_q = sum_i q_i f_i (q:
shares of the data) after t seconds, averaged over the run, for SWIFT with clients that take r_i steps per
second and CCS weights of p:

    level(p) = min over gamma <= 1/L of
               2 Delta D / (gamma t) + gamma L S V / D      descent and noise
             + 2 zeta^2 sum_i (p_i - q_i)^2 / q_i           bias
             + 2 L^2 gamma^2 C                              disagreement
    S = sigma^2 / M,                   V = sum_i p_i^2 / r_i,
    D = sum_i p_i (1 + w_ii) / (2 r_i),    C = S sum_i p_i r_i / (2 a) + zeta^2 sum_i p_i r_i^2 / a^2

*Descent and noise.* The mean model moves with gamma sum_i p_i g_i / D per second (docs/step-size.md; D is
the mean age of what is averaged, in seconds, with short links and out of lockstep). A step of client i
shifts it by p_i / (r_i D) of its own move, so that the noise that it collects per second is gamma^2 S V /
D^2. If nothing else counted, p in proportion to r would be best: every gradient weighs the same, and V = 1
/ sum_i r_i.
*Bias.* Who minimises f_p instead of f_q misses by at most this (Cauchy-Schwarz; zeta as in the paper, at
f_q).
*Disagreement.* Clients take gradients at their own models. Noise and gradients that differ push models
apart, averaging pulls them together at rate a, the smallest nonzero eigenvalue of sum_i r_i (e_i - w_i)
e_i^T.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from swiftfl.errors import UserError
from swiftfl.graph.coefficients import Coefficients
from swiftfl.graph.influence import Influence, is_uniform, proportional_to, uniform
from swiftfl.graph.methods import communication_coefficients
from swiftfl.graph.theory import Problem
from swiftfl.graph.topology import Topology

MOST_CLIENTS = 256
"""A prediction needs the eigenvalues of a dense matrix."""
_REFINED_UP_TO = 64
_POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Prediction:
    """The predicted level of one p, its three parts, the step size, and the rate of agreement per second."""

    influence: Influence
    descent: float
    bias: float
    disagreement: float
    step_size: float
    agreement: float

    @property
    def level(self) -> float:
        return self.descent + self.bias + self.disagreement


class InfluenceProblem:
    """A network, how fast its clients are, how much data they hold, and how long the run is."""

    def __init__(
        self,
        topology: Topology,
        rates: Sequence[float] | npt.NDArray[np.number] | None = None,
        sizes: Sequence[float] | npt.NDArray[np.number] | None = None,
        problem: Problem = Problem(sigma2=1.0, zeta2=1.0),
        seconds: float = 1000.0,
    ) -> None:
        n = topology.n
        if not 2 <= n <= MOST_CLIENTS:
            raise UserError(f"an optimal influence is computed for 2 to {MOST_CLIENTS} clients, not {n}")
        if not (np.isfinite(seconds) and seconds > 0):
            raise UserError(f"the run must have a length in seconds, not {seconds}")
        for what, values in (("rates", rates), ("data sizes", sizes)):
            if values is not None and len(values) != n:
                raise UserError(f"{len(values)} {what} were given for {n} clients")
        self.topology, self.problem, self.seconds = topology, problem, seconds
        given = np.ones(n) if rates is None else np.asarray(rates, dtype=np.float64)
        self.by_rates = proportional_to(given)  # which checks them
        self.rates = given
        self.by_data = uniform(n) if sizes is None else proportional_to(sizes)

    def predict(self, p: Influence) -> Prediction:
        """The level that this p is predicted to reach."""
        c, r, q, P = communication_coefficients(self.topology, p), self.rates, self.by_data, self.problem
        S = P.sigma2 / P.M
        V = float(np.sum(p**2 / r))
        D = float(np.sum(p * (1.0 + c.own) / (2.0 * r)))
        a = self._agreement(c)
        C = S * float(p @ r) / (2.0 * a) + P.zeta2 * float(p @ r**2) / a**2
        falling, growing, squared = 2.0 * P.Delta_f * D / self.seconds, P.L * S * V / D, 2.0 * P.L**2 * C
        gamma = min(1.0 / P.L, _best_step(falling, growing, squared))
        return Prediction(
            p,
            descent=falling / gamma + growing * gamma,
            bias=2.0 * P.zeta2 * float(np.sum((p - q) ** 2 / q)),
            disagreement=squared * gamma**2,
            step_size=gamma,
            agreement=a,
        )

    def _agreement(self, c: Coefficients) -> float:
        """How fast differences between models vanish, per second: they decay like exp(-a t) or faster."""
        n = self.topology.n
        G = np.zeros((n, n))
        for i in range(n):
            for k, w in c.column(i).items():
                G[k, i] = -w * self.rates[i]
            G[i, i] += self.rates[i]
        # p_i w_ki = p_k w_ik makes the eigenvalues real.
        return float(np.sort(np.linalg.eigvals(G).real)[1])

    def candidates(self) -> dict[str, Prediction]:
        """What is chosen without a calculator: uniform, by data, by rates."""
        n = self.topology.n
        named = {"uniform": uniform(n), "data": self.by_data, "rates": self.by_rates}
        return {name: self.predict(p) for name, p in named.items()}

    def optimise(self) -> Prediction:
        """The best p that was found, never worse than uniform, data or rates.

        First the family p ~ rates^x data^y; up to 64 clients then one score after the other is multiplied
        and divided by a factor, while that helps, by smaller and smaller factors. That begins at the best
        of the family, and at the best that is not uniform: CCS weights jump where scores are equal.
        """
        found = [*self.candidates().values()]
        for x, y in product(_POWERS, _POWERS):
            found.append(self.predict(proportional_to(self.by_rates**x * self.by_data**y)))
        if self.topology.n <= _REFINED_UP_TO:
            uneven = [one for one in found if not is_uniform(one.influence)]
            found += [self._refined(_best(starts)) for starts in (found[:], uneven) if starts]
        return _best(found)

    def _refined(self, best: Prediction) -> Prediction:
        factor = 1.5
        while factor > 1.0005:
            better = self._sweep(best, factor)
            if better.level > best.level * (1.0 - 1e-9):
                factor = factor**0.5
            best = better
        return best

    def _sweep(self, best: Prediction, factor: float) -> Prediction:
        for i, change in product(range(self.topology.n), (factor, 1.0 / factor)):
            scores = best.influence.copy()
            scores[i] *= change
            best = _best([best, self.predict(proportional_to(scores))])
        return best


def _best(found: Sequence[Prediction]) -> Prediction:
    """The first of those with the lowest level."""
    return min(found, key=lambda one: one.level)


def _best_step(falling: float, growing: float, squared: float) -> float:
    """Where falling / x + growing x + squared x^2 is smallest: its derivative has one positive root."""
    roots = np.roots([2.0 * squared, growing, 0.0, -falling])
    return float(max(root.real for root in roots if abs(root.imag) <= 1e-9 * abs(root)))
