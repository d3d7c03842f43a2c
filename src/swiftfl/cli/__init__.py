"""The command line."""

from __future__ import annotations

import sys


def main() -> None:
    """The program `swiftfl`. Imports take a moment, in which signals are answered like at any other time."""
    try:
        from swiftfl.signals import interrupt_at_signals

        interrupt_at_signals()
        from swiftfl.cli.shared_start import share_start

        share_start()
        from swiftfl.cli.main import main as run

        run()
    except KeyboardInterrupt:
        print("swiftfl: stopped", file=sys.stderr)
        sys.exit(130)
