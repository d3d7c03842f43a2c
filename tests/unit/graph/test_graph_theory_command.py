"""`swiftfl graph --theory`: its numbers against decimals of 1000 digits, and what it refuses."""

from __future__ import annotations

import json
import re
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from swiftfl.cli.graph import graph
from swiftfl.errors import UserError

app = typer.Typer()
app.command()(graph)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def log10_of_everything(n: int, rho: float, p_max: float, constants: list[str]) -> dict[str, Decimal]:
    """The paper's formulas as they are printed, with enough digits that nothing rounds away."""
    with localcontext() as context:
        context.prec = 1000
        L, M, sigma, zeta, delta = map(Decimal, constants)
        r, N = Decimal(rho), Decimal(n)
        nu = (1 - N ** (-n * n)) ** (1 / N)
        rho_nu = (
            (N - 1) / N * (7 / (2 * (1 - r)) + r.sqrt() / (1 - r.sqrt()) ** 2 + Decimal(384) / (1 - nu**2))
        )
        T = 193**2 * L * M * delta * rho_nu**2 * N**4 * Decimal(p_max) ** 2
        gamma = (M * N**2 * delta).sqrt() / ((T * L).sqrt() + M.sqrt())

        def bound(factor: Decimal) -> Decimal:
            inner = 1 + Decimal(1921) / 20 * rho_nu * (sigma**2 + 6 * zeta**2 * factor)
            return 2 * delta.sqrt() / T + 2 * (L * delta).sqrt() * inner / (T * M).sqrt()

        found = {
            "one_minus_nu2": 1 - nu**2, "rho_nu": rho_nu, "iterations": T, "step_size": gamma,
            "bound_printed": bound(M.sqrt()), "bound_corrected": bound(M),
        }  # fmt: skip
        return {f"log10_{name}": value.log10() for name, value in found.items()}


@pytest.mark.parametrize("constants", ["1,32,1,0.5,2", "0.25,64,0,0,3", "7,1,2.5,1e-3,1e-9"])
@pytest.mark.parametrize(
    ("request_", "n"),
    [
        (["ring", "--clients", "16"], 16),
        (["ring_of_cliques", "--clients", "10", "--clusters", "3"], 10),
        (["path", "--clients", "3", "--influence", "0.2,0.5,0.3", "--weights", "metropolis"], 3),
        (["complete", "--clients", "2"], 2),
    ],
)
def test_numbers_are_those_of_the_printed_formulas(request_: list[str], n: int, constants: str) -> None:
    found: dict[str, Any] = json.loads(run(*request_, "--theory", constants, "--json"))
    theory = found["theory"]
    assert [theory[name] for name in ("L", "M", "sigma", "zeta", "delta")] == list(
        map(float, constants.split(","))
    )
    assert theory["B"] == n
    assert theory["rho"] == found["rho"]
    expected = log10_of_everything(n, found["rho"], max(found["influence"]), constants.split(","))
    for name, value in expected.items():
        assert theory[name] == pytest.approx(float(value), abs=1e-9), name


def test_people_see_the_same_numbers() -> None:
    text = run("ring", "--clients", "2", "--theory", "1,32,1,0.5,2")
    rows = dict(re.findall(r"^(\S.*?)  +(\S.*?) *$", text, re.M))
    assert rows["theory for"] == "L = 1, M = 32, sigma = 1, zeta = 0.5, delta = 2"
    theory = json.loads(run("ring", "--clients", "2", "--theory", "1,32,1,0.5,2", "--json"))["theory"]
    assert float(rows["rho_nu"]) == pytest.approx(10 ** theory["log10_rho_nu"], rel=1e-5)
    assert float(rows["step size gamma"]) == pytest.approx(10 ** theory["log10_step_size"], rel=1e-5)
    assert float(rows["iterations T"].split()[-1]) == pytest.approx(
        10 ** theory["log10_iterations"], rel=1e-5
    )
    printed, corrected = re.findall(r"(\S+) \(as (?:printed|its proof has it),", text)
    assert float(printed) == pytest.approx(10 ** theory["log10_bound_printed"], rel=1e-5)
    assert float(corrected) == pytest.approx(10 ** theory["log10_bound_corrected"], rel=1e-5)


def test_numbers_that_leave_floating_point_are_powers_of_ten() -> None:
    text = run("ring", "--clients", "40", "--theory", "1,1,1,1,1")
    assert re.search(r"^iterations T +at least 10\^\d{4}\.\d\d", text, re.M)
    assert re.search(r"^step size gamma +10\^-\d{4}\.\d\d", text, re.M)


def test_without_the_option_nothing_of_the_theory_is_shown() -> None:
    assert "theory" not in json.loads(run("ring", "--clients", "3", "--json"))
    assert "gamma" not in run("ring", "--clients", "3")


@pytest.mark.parametrize(
    ("constants", "told"),
    [
        ("1,32,1", "--theory 1,32,1: give five numbers L,M,sigma,zeta,delta"),
        ("1,32,1,1,1,1", "give five numbers"),
        ("1,32,x,1,1", "sigma = 'x' is not a number"),
        ("1,32,,1,1", "sigma = '' is not a number"),
        ("0,32,1,1,1", "L = 0 must be positive"),
        ("1,32,1,1,-2", "delta = -2 must be positive"),
        ("1,32,-1,1,1", "sigma = -1 must be zero or positive"),
        ("1,32,1,nan,1", "zeta = nan must be zero or positive"),
        ("inf,32,1,1,1", "L = inf must be positive"),
        ("1,1.5,1,1,1", "M = 1.5 must be a whole number of samples"),
        ("1,0,1,1,1", "M = 0 must be a whole number of samples"),
        ("1,inf,1,1,1", "M = inf must be"),
        ("1,1,1e200,1,1", "sigma = 1e200 must be zero or positive, and between 1e-100 and 1e+100"),
    ],
)
def test_wrong_constants_are_refused_on_one_line_and_nothing_is_written(
    constants: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as error:
        run("ring", "--clients", "4", "--theory", constants, "--save", str(tmp_path / "a.json"))
    assert told in str(error.value)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_the_largest_constants_allowed_still_have_numbers() -> None:
    for constants in ("1e100,1e100,1e100,1e100,1e100", "1e-100,1,1e-100,1e-100,1e-100"):
        theory = json.loads(run("ring", "--clients", "50", "--theory", constants, "--json"))["theory"]
        assert all(abs(value) < 1e300 for name, value in theory.items() if name.startswith("log10"))


def test_weights_to_which_the_theorem_does_not_apply() -> None:
    with pytest.raises(UserError, match=r"Theorem 1 needs conditions \(a\)-\(d\), but \(d\) fails: edge"):
        run("path", "--clients", "3", "--weights", "uniform", "--theory", "1,32,1,0.5,2")
    with pytest.raises(UserError, match="at least two clients"):
        run("ring", "--clients", "1", "--theory", "1,32,1,0.5,2")


def test_the_page_on_graphs_shows_what_the_command_prints() -> None:
    page = (Path(__file__).parents[3] / "docs" / "graphs.md").read_text(encoding="utf-8")
    command = "swiftfl graph ring --clients 16 --theory 1,32,1,0.5,2"
    shown = page.split(command)[1].split("```text\n")[1].split("```")[0].splitlines()
    printed = [line.rstrip() for line in run(*command.split()[2:]).splitlines()]
    start = next(k for k, line in enumerate(printed) if line.startswith("theory for"))
    assert len(shown) == 8
    assert shown == printed[start : start + 8]
