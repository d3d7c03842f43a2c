"""A user's own training loop as a client: `join`, `Optimizer`, and `swiftfl launch` (docs/own-loop.md)."""
