"""What a run leaves behind."""

from swiftfl.record.folder import RunFolder, versions

__all__ = ["RunFolder", "versions"]
