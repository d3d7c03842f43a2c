"""Pictures and tables of recorded runs."""
