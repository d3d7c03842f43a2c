"""Transports that pass messages: newest-value channels, rounds, cells and reductions, over any wire."""
