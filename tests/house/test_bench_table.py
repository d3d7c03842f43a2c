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
    "before": "logistic  n=16     before  3.44   now  3.61   now / before  1.05\n"
    "mlp       n=16     before  3.62   now  3.44   now / before  0.95\n",
    "transport": "  0.4 MB  well                   publish   0.0749 /   0.1822   fetch   0.0104 /   0.0378   "
    "copy   0.0432 /   0.1121   publish/copy 1.73 (copy + 0.15 ms: kept)   fetch (0.1 ms: kept)\n"
    " 45.0 MB  well                    publish   3.6690 /   8.3849   fetch   0.0388 /   0.0948   "
    "copy   3.9111 /   8.3029   publish/copy 0.94 (1.5 copies: kept)   fetch (0.1 ms: kept)\n",
    "large": "  11.2    4.080     1.32     2.50     2.11     2.39     8.32        5.40    10.20     8.59\n"
    "\n16 clients, ring, thin_resnet18 (176,554 numbers), 12 steps of 16\n"
    "floor        ms per step     110.1  communication    0.00  CPU      13.7\n"
    "SWIFT C_0    ms per step     113.0  communication    0.71  CPU      14.0\n"
    "floor again  ms per step     111.3  communication    0.00  CPU      13.8\n"
    "SWIFT C_0 against the floors: time 1.021, CPU 1.018\n"
    "\n4 clients, ring, resnet18 (11,183,562 numbers), 12 steps of 16\n"
    "floor        ms per step     910.1  communication    0.00  CPU     455.0\n"
    "SWIFT C_0    ms per step     992.0  communication   31.10  CPU     480.0\n"
    "floor again  ms per step     915.9  communication    0.00  CPU     457.1\n"
    "SWIFT C_0 against the floors: time 1.086, CPU 1.053\n",
    "watching": "virtual, 1,000 clients: 42.3 us per step without facts, 43.6 with; median ratio 1.045\n"
    "live, mlp: a step takes 900 us, its facts 2.10 us, 0.23%; 17 MB per client-hour\n",
    "startup": "the smallest run takes 2.31 of import torch (2.20 of the processor; at most 2.5: kept)\n"
    "ranks of MPI: skipped (MPI is not installed: pip install 'swiftfl[mpi]')\n",
    "rivals": "gossipy: skipped (No module named 'gossipy'; pip install gossipy-dfl, or --gossipy PATH)\n"
    "D-SGD      over its floor: authors  1.165   here  1.158   here / authors  0.994\n",
    "slow_links": "ratio: 1.012\n",
    "million": "copies of all models, 10,000 clients of the MLP: 3.97 (at most 4: kept)\n"
    "ring, GB of 1,000,000 clients: 12.50 (at most 16: kept)\n"
    "ring, cost of a step over that at 10,000: 1.84 (at most 1.5: missed)\n"
    "ring, the same without the system's part: 1.13 (at most 1.5: kept)\n",
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
    assert rows["simulator, logistic, n = 16, one process"][-5:] == ["1.05", "the", "code", "before", "kept"]
    assert rows["simulator, mlp, n = 16, one process"][-1] == "MISSED"
    assert rows["memory, 10,000 clients of an MLP: copies of all models"][-2:] == ["3.97", "kept"]
    assert rows["memory, a million clients in a ring, GB"][-2:] == ["12.5", "kept"]
    assert rows["a million clients in a ring: a step"][-4:] == ["1.84", "10,000", "clients", "MISSED"]
    assert rows["the same ring, without the operating system"][-4:] == ["1.13", "10,000", "clients", "kept"]
    assert rows["a node's step beside a slow link, 45 MB"][-3:] == ["1.012", "alone", "kept"]
    assert rows["publish, 45 MB"][-4:] == ["0.94", "a", "copy", "kept"]
    assert rows["fetch, 0.4 MB, ms"][-2:] == ["0.0104", "kept"]
    assert rows["11.2 million parameters: the host's part, copies"][-4:] == ["8.32", "a", "copy", "MISSED"]
    assert rows["11.2 million parameters: publish, copies"][-4:] == ["1.32", "a", "copy", "MISSED"]
    thin = rows["a live ring of 16 clients with thin ResNet-18: a step"]
    assert thin[-4:] == ["1.021", "no", "communication", "kept"]
    real = rows["a live ring of 4 clients with ResNet-18: a step"]
    assert real[-4:] == ["1.086", "no", "communication", "MISSED"]
    assert rows["facts of a live run, % of a step (MLP)"][-2:] == ["0.23", "kept"]
    assert rows["smallest run, wall clock"][-4:] == ["2.31", "import", "torch", "kept"]
    assert rows["D-SGD under MPI, over its floor"][-5:] == ["0.994", "the", "authors'", "code", "kept"]


def test_what_was_not_measured_has_its_reason(bench: ModuleType) -> None:
    lines = bench.table({**PRINTED, "mpi": ""}, {"memory": "", "mpi": "ended with code 1"})[1:]
    rows = {line.split("  ")[0]: line for line in lines}
    assert "not measured: left out" in rows["dashboard: first picture, ms"]
    ranks = rows["start of 16 MPI ranks, wall clock"]
    assert "not measured: ranks of MPI: skipped (MPI is not installed" in ranks
    assert "not measured: gossipy: skipped" in rows["gossipy's simulator, MLP: our updates"]
    assert "not measured: ended with code 1" in rows["MPI, D-SGD: an epoch"]
    assert "not measured: it was not printed" in rows["simulator, CNN 28x28, n = 100, two processes"]


def test_a_ring_that_was_not_finished_has_no_value_of_another(bench: ModuleType) -> None:
    first, second = PRINTED["large"].split("\n\n")[1:]
    printed = first[: first.index("floor again")] + "\n" + second
    rows = {line.split("  ")[0]: line for line in bench.table({"large": printed})[1:]}
    assert "it was not printed" in rows["a live ring of 16 clients with thin ResNet-18: a step"]
    assert "1.086" in rows["a live ring of 4 clients with ResNet-18: a step"]


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("print('done')", ""),
        ("print('done', flush=True); import time; time.sleep(600)", "was ended after 5 s"),
        ("print('done', flush=True); import os; os.kill(os.getpid(), 9)", "was killed (signal 9)"),
        ("print('done', flush=True); import os; os.kill(os.getpid(), 11)", "was killed (signal 11)"),
        ("print('done'); raise SystemExit(3)", "ended with code 3"),
    ],
)
def test_how_a_benchmark_ended_is_told(
    code: str, wrong: str, bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "short.py").write_text(code)
    monkeypatch.setattr(bench, "BENCHMARKS", tmp_path)
    monkeypatch.setattr(bench, "LIMITS", {"short": 5.0 if "sleep" in code else 600.0})
    assert bench.run("short", (), "a test") == ("done\n", wrong)


def test_every_claim_is_of_a_benchmark(bench: ModuleType) -> None:
    there = {file.stem for file in (ROOT / "benchmarks").glob("*.py")}
    assert {claim.program for claim in bench.CLAIMS} <= set(bench.QUICK)
    assert {*bench.QUICK, *bench.LEARNING} == there
    assert len({claim.text for claim in bench.CLAIMS}) == len(bench.CLAIMS)
