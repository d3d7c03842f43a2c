"""What a run leaves behind."""

from swiftfl.record.checkpoints import Checkpoints, SavedCheckpoint
from swiftfl.record.folder import RunFolder, versions

__all__ = ["Checkpoints", "RunFolder", "SavedCheckpoint", "versions"]
