"""The report of the reproduction: tables, figures and one page."""
