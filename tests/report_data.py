"""What a page of `swiftfl report` has inside."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any


def data_in(page: Path) -> Any:
    """Everything that was embedded."""
    found = re.search(r'id="data">([^<]+)</script>', page.read_text())
    assert found is not None
    return json.loads(zlib.decompress(base64.b64decode(found[1])))


def embedded_in(page: Path) -> Any:
    """What was embedded of its only run."""
    (run,) = data_in(page)["of"].values()
    return run
