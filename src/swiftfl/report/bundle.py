"""`views/static` as one file: scripts, styles and data inside, and a policy that allows nothing else.

A page that is opened from a file may not load modules. Each module becomes a function that returns what it
exports, in the order in which they need each other; only the forms of import and export that our modules use
are known, and a test in a browser opens the result.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from functools import cache
from html import escape
from importlib.resources import files

_IMPORT = re.compile(r'^import \{ (.+) \} from "\./(.+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_STYLE = re.compile(r'<link rel="stylesheet" href="static/(.+)">')
_LIBRARY = re.compile(r'<script src="static/(.+)" defer></script>')
_MODULE = re.compile(r'<script type="module" src="static/(.+)"></script>\n?')


def bundled_page(title: str, data: object) -> str:
    """The page with its data; it needs no server and loads nothing."""
    page = _text("index.html")
    module = _MODULE.search(page)
    assert module is not None
    script = bundled_script(module[1])
    styles = [_text(name) for name in _STYLE.findall(page)]
    libraries = [_text(name) for name in _LIBRARY.findall(page)]
    policy = (
        f"default-src 'none'; script-src {_hashes([*libraries, script])}; "
        f"style-src {_hashes(styles)}; img-src data:"
    )
    page = page.replace(module[0], "")
    page = _STYLE.sub(lambda found: f"<style>{_text(found[1])}</style>", page)
    page = _LIBRARY.sub(lambda found: f"<script>{_text(found[1])}</script>", page)
    head = f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">'
    page = page.replace('<meta charset="utf-8">', head)
    page = page.replace("<title>swiftfl</title>", f"<title>{escape(title)}</title>")
    tail = (
        f'<script type="application/octet-stream" id="data">{_packed(data)}</script>\n'
        f'<script type="module">{script}</script>\n</body>'
    )
    return page.replace("</body>", tail)


@cache
def bundled_script(start: str) -> str:
    """The module and all that it needs, as one script."""
    parts: dict[str, str] = {}

    def add(name: str) -> None:
        text = _text(name)
        for _, other in _IMPORT.findall(text):
            if other not in parts:
                add(other)
        exported = ", ".join(found for _, found in _EXPORT.findall(text))
        text = _IMPORT.sub(r'const { \1 } = modules["\2"];', text)
        text = _EXPORT.sub(r"\1", text)
        parts[name] = f'modules["{name}"] = (() => {{\n{text}return {{ {exported} }};\n}})();\n'

    add(start)
    script = "const modules = {};\n" + "".join(parts.values())
    assert "</script" not in script
    return script


def _packed(data: object) -> str:
    """Compressed, and in characters that no HTML can mistake."""
    plain = json.dumps(data, allow_nan=False, separators=(",", ":")).encode()
    return base64.b64encode(zlib.compress(plain, 9)).decode("ascii")


def _hashes(texts: list[str]) -> str:
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
    return " ".join(f"'sha256-{digest}'" for digest in digests)


@cache
def _text(name: str) -> str:
    return (files("swiftfl.views") / "static" / name).read_text(encoding="utf-8")
