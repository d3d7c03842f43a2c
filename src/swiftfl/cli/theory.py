"""`swiftfl graph --theory`: what the paper's Theorem 1 says of the graph, weights and influence at hand."""

from __future__ import annotations

import math
from typing import Any

from swiftfl.errors import UserError
from swiftfl.graph import Coefficients
from swiftfl.graph.theory import Problem, Theory, theory

CONSTANTS = ("L", "M", "sigma", "zeta", "delta")
EXAMPLE = "1,32,1,0.5,2"
MAY_BE_ZERO = ("sigma", "zeta")
LARGEST = 1e100
"""Constants beyond it (or positive ones below its inverse) would leave floating point when multiplied."""


def read_constants(text: str) -> dict[str, float]:
    """L, M, sigma, zeta and delta of `--theory`; anything but five possible numbers is refused."""
    parts = text.split(",")
    if len(parts) != len(CONSTANTS):
        raise UserError(
            f"--theory {text}: give five numbers {','.join(CONSTANTS)}, such as --theory {EXAMPLE}"
        )
    return {name: _constant(name, part.strip()) for name, part in zip(CONSTANTS, parts, strict=True)}


def _constant(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise UserError(f"--theory: {name} = {text!r} is not a number") from None
    if name == "M" and not (value >= 1 and value.is_integer()):
        raise UserError(f"--theory: M = {text} must be a whole number of samples, at least 1")
    if value == 0 and name in MAY_BE_ZERO:
        return value
    if not 1 / LARGEST <= value <= LARGEST:  # also false for nan
        kind = "zero or positive" if name in MAY_BE_ZERO else "positive"
        raise UserError(
            f"--theory: {name} = {text} must be {kind}, and between {1 / LARGEST:.0e} and {LARGEST:.0e}"
        )
    return value


def theory_of(coefficients: Coefficients, constants: dict[str, float]) -> Theory:
    """The theory's numbers, at the smallest T that Theorem 1 allows and with B = n."""
    violation = coefficients.report().violation
    if violation is not None:
        raise UserError(f"--theory: Theorem 1 needs conditions (a)-(d), but {violation}; try other --weights")
    problem = Problem(
        L=constants["L"],
        M=constants["M"],
        Delta_f=constants["delta"],
        sigma2=constants["sigma"] ** 2,
        zeta2=constants["zeta"] ** 2,
    )
    return theory(coefficients, problem)


def theory_summary(found: Theory, constants: dict[str, float]) -> dict[str, Any]:
    """For `--json`; what may leave floating point is given as log10."""
    return {
        **constants,
        "B": found.B,
        "rho": found.rho,
        "nu": found.nu,
        "log10_one_minus_nu2": found.log10_gap_nu,
        "log10_rho_nu": found.log10_rho_nu,
        "log10_step_size": found.log10_step_size,
        "log10_iterations": found.log10_iterations,
        "log10_bound_printed": found.bound.log10_printed,
        "log10_bound_corrected": found.bound.log10_corrected,
    }


def theory_rows(found: Theory, constants: dict[str, float]) -> list[tuple[str, str]]:
    """Names and values for the table."""
    given = ", ".join(f"{name} = {value:g}" for name, value in constants.items())
    return [
        ("theory for", given),
        ("connected within B", f"{found.B} iterations (assumed: every client acts once in them)"),
        ("nu", f"{found.nu:.10g} (1 - nu^2 = {_power(found.log10_gap_nu)})"),
        ("rho_nu", _power(found.log10_rho_nu)),
        ("iterations T", f"at least {_power(found.log10_iterations)}"),
        ("step size gamma", _power(found.log10_step_size)),
        ("bound after T", f"{_power(found.bound.log10_printed)} (as printed, 6 zeta^2 sqrt(M))"),
        ("", f"{_power(found.bound.log10_corrected)} (as its proof has it, 6 zeta^2 M)"),
    ]


def _power(log10: float) -> str:
    """A number by its logarithm: as usual if it is of everyday size, else as a power of ten."""
    return f"{math.pow(10.0, log10):.6g}" if abs(log10) < 15 else f"10^{log10:.2f}"
