"""Every benchmark, one after the other, and at the end one table of what the documentation claims.

    python tools/bench.py [--only NAME ...] [--keep FILE]

`make bench` runs it. A claim is read from what a benchmark prints: its target, its value in this run, what it
is compared with in the same run, and whether it is kept. What a benchmark did not print (because something is
not installed here) is not measured, and said to be. `--keep` also writes all output into a file.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
NUMBER = r"(-?[\d,]+(?:\.\d+)?)"


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
    Claim("MPI, SWIFT C_0: an epoch", "mpi", _row("SWIFT C_0", 1), 1.05, against="no communication"),
    Claim("MPI, SWIFT C_0: CPU, ms a step", "mpi", _row("SWIFT C_0", 5), 1.5),
    Claim("MPI, D-SGD: an epoch", "mpi", _row("D-SGD", 1), 1.17, against="no communication"),
    Claim("MPI, PA-SGD: an epoch", "mpi", _row("PA-SGD", 1), 1.11, against="no communication"),
    Claim("one client 4x slower: SWIFT's time to a loss", "slow_client", rf"SWIFT needs {NUMBER} of", 0.5,
          against="D-SGD"),
    Claim("memory of live clients: growth, %", "memory", rf"first minute {NUMBER}%", 2.0),
    Claim("evaluations during an MPI run: a step", "evaluation", rf"a step takes {NUMBER} of", 1.01,
          against="without"),
    *(
        Claim(f"simulator, {model}, n = {n}, one process", "simulator",
              rf"^{model}\s+n={n}\s.*?1 process\s.*?ratio\s+{NUMBER}", target, True, "a bare loop")
        for model, n, target in (("logistic", 16, 4.5), ("logistic", 100, 5.5), ("logistic", 10000, 4.5),
                                 ("mlp", 16, 4.5), ("mlp", 100, 4.0), ("mlp", 10000, 3.4))
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
    Claim("gossipy's simulator, logistic: our updates", "other_libraries",
          rf"^logistic.*engine / gossipy\s+{NUMBER}", 1.0, True, "gossipy"),
    Claim("gossipy's simulator, MLP: our updates", "other_libraries",
          rf"^mlp.*engine / gossipy\s+{NUMBER}", 1.0, True, "gossipy"),
    Claim("dashboard: first picture, ms", "dashboard", rf"first picture\s+{NUMBER}", 1000.0),
    Claim("dashboard: zoom to 10 %, ms", "dashboard", rf"zoom to 10 %\s+{NUMBER}", 200.0),
)  # fmt: skip


def run(program: Path) -> tuple[str, int]:
    """Let a benchmark print, and keep what it printed."""
    print(f"== {program.relative_to(BENCHMARKS.parent)}", flush=True)
    lines = []
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return "".join(lines), process.returncode


def table(printed: dict[str, str]) -> list[str]:
    """One line per claim."""
    width = max(len(claim.text) for claim in CLAIMS)
    rows = [f"{'claim':<{width}}  {'target':>10}  {'here':>8}  {'compared with':<18}"]
    for claim in CLAIMS:
        target = f"{'>=' if claim.least else '<='} {claim.target:g}"
        value = claim.value(printed.get(claim.program, ""))
        here, said = (
            ("-", "not measured")
            if value is None
            else (f"{value:g}", "kept" if claim.kept(value) else "MISSED")
        )
        rows.append(f"{claim.text:<{width}}  {target:>10}  {here:>8}  {claim.against:<18}  {said}")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", help="names of benchmarks, such as simulator")
    parser.add_argument("--keep", type=Path, help="a file for all that is printed")
    given = parser.parse_args()
    programs = sorted(BENCHMARKS.glob("[a-z]*.py"))
    if given.only:
        unknown = set(given.only) - {program.stem for program in programs}
        if unknown:
            parser.error(f"there is no benchmark {sorted(unknown)[0]}")
        programs = [program for program in programs if program.stem in given.only]
    printed, failed = {}, []
    for program in programs:
        printed[program.stem], code = run(program)
        if code:
            failed.append(program.stem)
    rows = table(printed)
    print("\n== what the documentation claims\n" + "\n".join(rows), flush=True)
    if failed:
        print(f"ended with an error: {', '.join(failed)}")
    if given.keep is not None:
        told = "".join(f"== {name}\n{text}\n" for name, text in printed.items())
        given.keep.write_text(told + "\n".join(rows) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
