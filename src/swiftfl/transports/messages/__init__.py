"""Transports that pass messages: lanes that keep the newest, rounds, cells and reductions, over any wire."""
