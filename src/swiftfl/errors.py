"""The one exception that a user may see as a message: something in the request is wrong."""

from __future__ import annotations


class UserError(ValueError):
    """A request that cannot be met; its text is one line that names the offender and the remedy."""
