"""The parts of the shared-memory transport: one file without a name, mapped by every client."""
