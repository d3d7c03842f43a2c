"""swiftfl: wait-free decentralized federated learning."""

from swiftfl._version import __version__

__all__ = ["__version__"]
