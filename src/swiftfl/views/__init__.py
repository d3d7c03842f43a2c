"""What a run folder looks like, as plain values that are shown by a terminal, a browser or a report."""

from swiftfl.views.comparing import compare, differences
from swiftfl.views.library import Library, is_run
from swiftfl.views.run import MissingError, RunView

__all__ = ["Library", "MissingError", "RunView", "compare", "differences", "is_run"]
