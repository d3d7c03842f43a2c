"""Every benchmark, one after the other, and at the end one table of what the documentation claims.

    python tools/bench.py [--only NAME ...] [--all] [--keep FILE] [--gossipy PATH] [--authors PATH]

`make bench` runs it, in the quick form of each benchmark: three quarters of an hour on two cores. A claim is
read from what a benchmark prints: its target, its value in this run, what it is compared with in the same
run, and whether it is kept. What a benchmark did not print (because something is not installed here) is not
measured, and why is said. `--all` adds the benchmarks of learning, of which the docs have tables only.
`--keep` also writes all output into a file. `make bench BENCH="--authors PATH"` passes options on.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
NUMBER = r"(-?[\d,]+(?:\.\d+)?)"
QUICK: dict[str, tuple[str, ...]] = {
    "startup": (),
    "live": ("--no-cnn", "--no-mpi"),
    "mpi": (),
    "evaluation": ("--rounds", "3", "--epochs", "5"),
    "transport": ("--seconds", "2"),
    "slow_client": (),
    "memory": ("--minutes", "2"),
    "slow_links": ("--steps", "20"),
    "large": ("--steps", "9", "--millions", "11.2", "--rings"),
    "optimizer": (),
    "watching": (),
    "dashboard": (),
    "rivals": (),
    "simulator": ("--budget", "1"),
    "before": (),
    "million": (),
}
"""Benchmarks of what the documentation claims, with the options of their quick form, in this order."""
LEARNING: dict[str, tuple[str, ...]] = {
    "coefficients": ("--most", "100000"),
    "compression": ("--seeds", "1", "--epochs", "10"),
    "gradients": ("--seconds", "0.5"),
    "influence": (),
    "mixing": (),
    "moments": ("--seeds", "1"),
    "own_ccs": (),
    "paper_times": (),
    "poison": ("--seeds", "1"),
    "rare_labels": ("--seeds", "1"),
    "soak": ("--minutes", "2"),
    "step_size_law": ("--seeds", "1"),
    "table1": (),
    "tracked": ("--quick",),
}
"""The others: tables of what is learnt, counted or predicted."""
LIMIT = 900.0
"""Seconds after which a benchmark is ended,"""
LIMITS = {"million": 2400.0, "large": 1500.0}
"""but for those that may take longer."""


@dataclass(frozen=True)
class Claim:
    """What the documentation says of a benchmark; the first group of `pattern` is its value in the output."""

    text: str
    program: str
    pattern: str
    target: float
    least: bool = False
    against: str = ""
    """What the value is a ratio to, or bounded by: measured in the same run."""

    def value(self, printed: str) -> float | None:
        found = re.search(self.pattern, printed, re.MULTILINE)
        return None if found is None else float(found[1].replace(",", ""))

    def kept(self, value: float) -> bool:
        return value >= self.target if self.least else value <= self.target


def _row(name: str, column: int) -> str:
    """A number in a row of a table: the column-th after the name."""
    return rf"^{re.escape(name)}\s+" + r"(?:[\d.]+\s+)" * column + NUMBER


CLAIMS = (
    Claim("live, SWIFT C_0: an epoch", "live", _row("SWIFT C_0", 1), 1.02, against="no communication"),
    Claim("live, SWIFT C_0: communication, ms a step", "live", _row("SWIFT C_0", 3), 0.30),
    Claim("smallest run, wall clock", "startup", rf"smallest run takes {NUMBER} of", 2.5,
          against="import torch"),
    Claim("start of 16 MPI ranks, wall clock", "startup", rf"16 ranks takes {NUMBER} of importing", 2.0,
          against="import torch there"),
    Claim("start of 16 MPI ranks on few processors", "startup",
          rf"16 ranks takes {NUMBER} of that", 0.5, against="imports apart"),
    Claim("MPI, SWIFT C_0: an epoch", "mpi", _row("SWIFT C_0", 1), 1.05, against="no communication"),
    Claim("MPI, SWIFT C_0: CPU, ms a step", "mpi", _row("SWIFT C_0", 5), 1.5),
    Claim("MPI, D-SGD: an epoch", "mpi", _row("D-SGD", 1), 1.17, against="no communication"),
    Claim("MPI, PA-SGD: an epoch", "mpi", _row("PA-SGD", 1), 1.11, against="no communication"),
    Claim("one client 4x slower: SWIFT's time to a loss", "slow_client", rf"SWIFT needs {NUMBER} of", 0.5,
          against="D-SGD"),
    Claim("a node's step beside a slow link, 45 MB", "slow_links", rf"^ratio: {NUMBER}", 1.05,
          against="alone"),
    Claim("memory of live clients: growth, %", "memory", rf"first minute {NUMBER}%", 2.0),
    Claim("evaluations during an MPI run: a step", "evaluation", rf"a step takes {NUMBER} of", 1.01,
          against="without"),
    *(
        Claim(f"simulator, {model}, n = {n}, one process", "before",
              rf"^{model}\s+n={n}\s.*now / before\s+{NUMBER}", 1.0, True, "the code before")
        for model in ("logistic", "mlp") for n in (16, 100, 10000)
    ),
    *(
        Claim(f"simulator, {model}, n = {n}, two processes", "simulator",
              rf"^{model}\s+n={n}\s.*gain {NUMBER}", 1.0, True, "one process")
        for model in ("logistic", "mlp") for n in (16, 100, 1000, 10000)
    ),
    *(
        Claim(f"simulator, CNN 28x28, n = {n}, two processes", "simulator",
              rf"^cnn\s+n={n}\s.*?2 processes\s.*?ratio\s+{NUMBER}", 1.7, True, "a bare loop")
        for n in (16, 100)
    ),
    Claim("simulator: largest n over smallest, a step's cost", "simulator",
          rf"650 parameters:.*smallest n: {NUMBER}", 1.5),
    Claim("memory, 10,000 clients of an MLP: copies of all models", "million",
          rf"clients of the MLP: {NUMBER}", 4.0),
    Claim("memory, a million clients in a ring, GB", "million", rf"^ring, GB of .*: {NUMBER} \(", 16.0),
    Claim("memory, a million clients, Barabasi-Albert(4), GB", "million",
          rf"^barabasi_albert\(4\), GB of .*: {NUMBER} \(", 16.0),
    Claim("a million clients in a ring: a step", "million", rf"^ring, cost .*: {NUMBER} \(", 1.5,
          against="10,000 clients"),
    Claim("a million clients, Barabasi-Albert(4): a step", "million",
          rf"^barabasi_albert\(4\), cost .*: {NUMBER} \(", 1.5, against="10,000 clients"),
    Claim("the same ring, without the operating system", "million",
          rf"^ring, the same .*: {NUMBER} \(", 1.5, against="10,000 clients"),
    Claim("the same Barabasi-Albert(4), without it", "million",
          rf"^barabasi_albert\(4\), the same .*: {NUMBER} \(", 1.5, against="10,000 clients"),
    Claim("publish, 45 MB", "transport", rf"^\s*45\.0 MB\s+well.*publish/copy {NUMBER}", 1.5,
          against="a copy"),
    Claim("publish beside a stopped client, 45 MB", "transport",
          rf"^\s*45\.0 MB\s+beside.*publish/copy {NUMBER}", 1.5, against="a copy"),
    Claim("fetch, 0.4 MB, ms", "transport", rf"^\s*0\.4 MB\s+well.*fetch\s+{NUMBER}", 0.1),
    Claim("11.2 million parameters: the host's part, copies", "large",
          r"^\s*11\.2\s+" + r"[\d.]+\s+" * 5 + NUMBER, 8.0, against="a copy"),
    Claim("11.2 million parameters: publish, copies", "large", rf"^\s*11\.2\s+[\d.]+\s+{NUMBER}", 1.1,
          against="a copy"),
    *(
        Claim(f"a live ring of {clients} clients with {title}: a step", "large",
              rf"^{clients} clients, ring, {model} (?:.*\n){{4}}SWIFT C_0 against the floors: time {NUMBER}",
              1.05, against="no communication")
        for clients, model, title in ((16, "thin_resnet18", "thin ResNet-18"), (4, "resnet18", "ResNet-18"))
    ),
    Claim("facts of a simulated run: a step", "watching", rf"median ratio {NUMBER}", 1.05, against="without"),
    Claim("facts of a live run, % of a step (MLP)", "watching", rf"^live, mlp:.*us, {NUMBER}%", 1.0),
    Claim("gossipy's simulator, logistic: our updates", "rivals",
          rf"^logistic.*engine / gossipy\s+{NUMBER}", 1.0, True, "gossipy"),
    Claim("gossipy's simulator, MLP: our updates", "rivals",
          rf"^mlp.*engine / gossipy\s+{NUMBER}", 1.0, True, "gossipy"),
    *(
        Claim(f"{name} under MPI, over its floor", "rivals",
              rf"^{re.escape(name)}\s+over.*here / authors\s+{NUMBER}", 1.0, against="the authors' code")
        for name in ("SWIFT C_0", "D-SGD", "PA-SGD")
    ),
    Claim("dashboard: first picture, ms", "dashboard", rf"first picture\s+{NUMBER}", 1000.0),
    Claim("dashboard: zoom to 10 %, ms", "dashboard", rf"zoom to 10 %\s+{NUMBER}", 200.0),
)  # fmt: skip


def run(program: str, options: Sequence[str], title: str) -> tuple[str, str]:
    """Let a benchmark print, and keep what it printed; and what went wrong with it."""
    print(f"\n== {title}: benchmarks/{program}.py {' '.join(options)}", flush=True)
    command = [sys.executable, str(BENCHMARKS / f"{program}.py"), *options]
    lines: list[str] = []
    late = threading.Event()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        limit = LIMITS.get(program, LIMIT)

        def end() -> None:
            late.set()
            os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(limit, end)
        timer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                lines.append(line)
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            timer.cancel()
    return "".join(lines), _wrong(process.returncode, limit if late.is_set() else None)


def _wrong(code: int, limit: float | None) -> str:
    """What went wrong with a program; `limit` if it was ended after so many seconds."""
    if code == -signal.SIGKILL and limit is not None:
        return f"was ended after {limit:g} s"
    if code < 0:  # such as by a machine that has no memory left
        return f"was killed (signal {-code})"
    return "" if code == 0 else f"ended with code {code}"


def table(
    printed: Mapping[str, str], wrong: Mapping[str, str] = {}, claims: Sequence[Claim] = CLAIMS
) -> list[str]:
    """One line per claim."""
    width = max((len(claim.text) for claim in claims), default=0)
    rows = [f"{'claim':<{width}}  {'target':>10}  {'here':>8}  {'compared with':<18}"]
    for claim in claims:
        target = f"{'>=' if claim.least else '<='} {claim.target:g}"
        value = claim.value(printed.get(claim.program, ""))
        here, said = (
            ("-", f"not measured: {why(claim, printed, wrong)}")
            if value is None
            else (f"{value:g}", "kept" if claim.kept(value) else "MISSED")
        )
        rows.append(f"{claim.text:<{width}}  {target:>10}  {here:>8}  {claim.against:<18}  {said}")
    return rows


def why(claim: Claim, printed: Mapping[str, str], wrong: Mapping[str, str]) -> str:
    """Why a claim has no value: what failed, was left out, or was skipped by the benchmark itself."""
    if claim.program not in printed:
        return "left out"
    if wrong.get(claim.program):
        return wrong[claim.program]
    skipped: list[str] = re.findall(r"^(?:.*: skipped|without MPI).*", printed[claim.program], re.MULTILINE)
    mine = [line for line in skipped if not claim.against or claim.against.split()[-1] in line]
    return (mine or skipped or ["it was not printed"])[0].strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", help="names of benchmarks, such as simulator")
    parser.add_argument("--all", action="store_true", help="the tables of learning, too")
    parser.add_argument("--keep", type=Path, help="a file for all that is printed")
    parser.add_argument("--gossipy", help="passed on to rivals")
    parser.add_argument("--authors", help="passed on to rivals")
    given = parser.parse_args()
    programs = {**QUICK, **(LEARNING if given.all or given.only else {})}
    if given.only:
        if unknown := sorted(set(given.only) - set(programs)):
            parser.error(f"there is no benchmark {unknown[0]}")
        programs = {name: programs[name] for name in programs if name in given.only}
    if "rivals" in programs:
        passed = [("--gossipy", given.gossipy), ("--authors", given.authors)]
        programs["rivals"] += tuple(part for option, path in passed if path for part in (option, path))
    printed: dict[str, str] = {}
    wrong: dict[str, str] = {}
    began = time.monotonic()
    for number, (name, options) in enumerate(programs.items(), 1):
        title = f"{number} of {len(programs)}, after {(time.monotonic() - began) / 60:.1f} minutes"
        printed[name], wrong[name] = run(name, options, title)
    rows = table(printed, wrong, [claim for claim in CLAIMS if not given.only or claim.program in programs])
    minutes = f"{(time.monotonic() - began) / 60:.1f} minutes"
    print(f"\n== what the documentation claims, measured in {minutes}", *rows, sep="\n", flush=True)
    for name, what in wrong.items():
        if what:
            print(f"benchmarks/{name}.py {what}")
    if given.keep is not None:
        told = "".join(f"== {name}\n{text}\n" for name, text in printed.items())
        given.keep.write_text(told + "\n".join(rows) + "\n")
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
