"""Engines with real clients and a wall clock."""
