"""The theorem, measured: `swiftfl reproduce convergence`, described in docs/convergence.md."""

from swiftfl.reproduce.convergence.reproduce import reproduce

__all__ = ["reproduce"]
