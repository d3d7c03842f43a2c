"""The last table of `make bench` reads its claims from what benchmarks print."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]

PRINTED = {
    "live": "SWIFT C_0       1.307    1.007   40.559    0.284    0.000    0.619\n",
    "mpi": "SWIFT C_0       1.349    1.040   41.417    0.738    0.000    1.909\n",
    "slow_client": "With the slow client SWIFT needs 0.26 of D-SGD's time.",
    "simulator": "cnn       n=16     bare loop       94/s   1 process       89/s ratio  0.95   "
    "2 processes      170/s ratio  1.81   digest 0\n",
    "million": "copies of all models, 10,000 clients of the MLP: 3.97 (at most 4: kept)\n"
    "ring, GB of 1,000,000 clients: 12.50 (at most 16: kept)\n",
}


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_of_claims", ROOT / "tools" / "bench.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_values_verdicts_and_what_was_not_measured(bench: ModuleType) -> None:
    rows = {line.split("  ")[0]: line.split() for line in bench.table(PRINTED)[1:]}
    assert rows["live, SWIFT C_0: an epoch"][-4:] == ["1.007", "no", "communication", "kept"]
    assert rows["MPI, SWIFT C_0: CPU, ms a step"][-2:] == ["1.909", "MISSED"]
    assert rows["one client 4x slower: SWIFT's time to a loss"][-1] == "kept"
    assert rows["simulator, CNN 28x28, n = 16, two processes"][-5:] == ["1.81", "a", "bare", "loop", "kept"]
    assert rows["simulator, CNN 28x28, n = 100, two processes"][-2:] == ["not", "measured"]
    assert rows["memory, 10,000 clients of an MLP: copies of all models"][-2:] == ["3.97", "kept"]
    assert rows["memory, a million clients in a ring, GB"][-2:] == ["12.5", "kept"]


def test_every_claim_is_of_a_benchmark(bench: ModuleType) -> None:
    there = {file.stem for file in (ROOT / "benchmarks").glob("*.py")}
    assert {claim.program for claim in bench.CLAIMS} <= there
    assert len({claim.text for claim in bench.CLAIMS}) == len(bench.CLAIMS)
