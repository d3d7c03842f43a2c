"""Views of runs in a browser. Starlette and uvicorn are imported below this package and nowhere else.

guard.py        who may ask: host names, methods, the token; headers of every reply
page.py         the files of the page
live.py         one look at the files for all who watch
application.py  requests to views
server.py       address and process
beside.py       a dashboard beside a run
"""

from __future__ import annotations

import importlib.util

from swiftfl.errors import UserError

_LIBRARIES = ("starlette", "uvicorn")


def require_server() -> None:
    """That the libraries are installed, without importing them.

    Raises:
        UserError: They are not; the message says what to install.
    """
    if not all(map(importlib.util.find_spec, _LIBRARIES)):
        raise UserError("the dashboard needs Starlette and uvicorn: pip install 'swiftfl[dashboard]'")
