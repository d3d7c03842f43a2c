"""Federations of organisations: who belongs to one, how a node proves it, and what it is told."""
