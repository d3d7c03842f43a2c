"""Clients on one machine: models in shared memory, one copy to publish, none to read."""

from swiftfl.transports.shared_memory.transport import SharedMemory, SharedMemoryTransport, SharedObserver

__all__ = ["SharedMemory", "SharedMemoryTransport", "SharedObserver"]
