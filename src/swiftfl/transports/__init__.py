"""How models travel between real clients."""
