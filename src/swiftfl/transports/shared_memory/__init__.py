"""Clients on one machine: models in shared memory, one copy to publish, none to read."""

from swiftfl.transports.shared_memory.transport import Observer, SharedMemory, SharedMemoryTransport

__all__ = ["Observer", "SharedMemory", "SharedMemoryTransport"]
