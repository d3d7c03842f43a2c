"""Experiments beyond the paper's: SWIFT against its rivals, a better SWIFT, influence, data that shift."""
