"""The command line."""

from swiftfl.cli.main import main

__all__ = ["main"]
