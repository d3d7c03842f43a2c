"""One public battery that any transport must pass: `swiftfl check-transport NAME`."""

from swiftfl.transports.conformance.battery import CHECKS, CheckReport, battery

__all__ = ["CHECKS", "CheckReport", "battery"]
