"""Seconds per epoch on the paper's hardware: predicted by costs that only know D-SGD, beside the print.

16-client ring, 98 steps an epoch, messages of 0.70 MB (docs/network.md). An epoch is computation and
communication, as in the paper; waiting stands apart.
"""

from __future__ import annotations

from swiftfl.reproduce.plan import METHODS, ReproductionOptions
from swiftfl.reproduce.prediction import predict
from swiftfl.reproduce.printed import printed
from swiftfl.reproduce.recipes import EXPERIMENTS


def main() -> None:
    print(f"{'':24}{'epoch':>20}{'communication':>24}{'waiting':>12}")
    print(f"{'':24}{'predicted  printed':>20}{'predicted  printed':>24}{'predicted':>12}")
    table = printed()["baseline_ring16_resnet18"]
    for case in EXPERIMENTS["baseline"]("paper", ReproductionOptions()).cases:
        times, row = predict(case.config).times, table[case.method]
        mine = times["communication"]
        numbers = (times["compute"] + mine, row.get("epoch"), mine, row.get("comm"))
        shown = ["-" if number is None else f"{number:.3f}" for number in numbers]
        name = METHODS[case.method] + (" (calibrated)" if case.method == "dsgd_c0" else "")
        print("{:24}{:>11}{:>9}{:>15}{:>9}".format(name, *shown) + f"{times['waiting']:>12.3f}")


if __name__ == "__main__":
    main()
