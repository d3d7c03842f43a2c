"""Real clients on one machine: one process each."""
