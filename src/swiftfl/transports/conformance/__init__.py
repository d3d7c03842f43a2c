"""One public battery that any transport must pass: `swiftfl check-transport NAME`."""

from swiftfl.transports.conformance.battery import CHECKS, KINDS, CheckReport, Kind, battery, kind

__all__ = ["CHECKS", "KINDS", "CheckReport", "Kind", "battery", "kind"]
