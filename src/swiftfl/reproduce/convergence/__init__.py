"""The theorem, measured: `swiftfl reproduce convergence`, described in docs/convergence.md."""
