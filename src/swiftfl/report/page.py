"""The page around tables and figures: self-contained, without scripts, readable on a telephone."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from swiftfl.report.table import marked

_CSS = """
:root { color-scheme: light dark; --text: #1b1f24; --soft: #57606a; --ground: #ffffff; --card: #f6f8fa;
  --line: #d0d7de; --link: #0b5cad; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --soft: #9aa4af; --ground: #0f1317;
  --card: #181d23; --line: #343b43; --link: #79b8ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem 1rem 4rem; max-width: 74rem; color: var(--text);
  background: var(--ground); font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 1rem 0 .5rem; }
h2 { font-size: 1.35rem; margin: 3rem 0 .5rem; padding-top: .75rem; border-top: 2px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.8rem 0 .5rem; }
p, ul { max-width: 52rem; }
sub { line-height: 0; }
li { margin: .25rem 0; }
a { color: var(--link); }
nav ul { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; }
code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .875em; }
pre { overflow-x: auto; background: var(--card); padding: .6rem .8rem; border-radius: 6px; }
.scroll { overflow-x: auto; margin: 1rem 0 .3rem; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; font-size: .875rem; min-width: 100%; }
caption { text-align: left; font-weight: 600; padding: .6rem .7rem; caption-side: top; }
th, td { padding: .3rem .7rem; text-align: left; white-space: nowrap; border-top: 1px solid var(--line); }
thead th { white-space: normal; vertical-align: bottom; min-width: 5rem; background: var(--card); }
tbody th { font-weight: 400; position: sticky; left: 0; background: var(--ground); }
tr.group th { font-weight: 600; background: var(--card); }
thead th:first-child { position: sticky; left: 0; }
tr.group span, caption span { position: sticky; left: .7rem; display: inline-block; max-width: 80vw;
  white-space: normal; }
.n { text-align: right; font-variant-numeric: tabular-nums; }
.note, figcaption { color: var(--soft); font-size: .85rem; }
.missing { border-left: 4px solid #d98e04; padding: .3rem .8rem; background: var(--card); }
.figures { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); }
figure { margin: 0; max-width: 38rem; }
figure.wide { max-width: none; grid-column: 1 / -1; }
figure img { display: block; width: 100%; height: auto; background: #ffffff; padding: 4px;
  border: 1px solid var(--line); border-radius: 6px; }
figcaption { padding: .3rem .2rem; }
details { margin: .8rem 0; }
summary { cursor: pointer; color: var(--link); }
@media (max-width: 600px) { th, td { padding: .3rem .5rem; }
  tbody th[scope="row"] { white-space: normal; min-width: 7.5rem; max-width: 8.5rem; } }
@media print { details { display: block; } .scroll { overflow: visible; } }
"""


@dataclass(frozen=True)
class PageSection:
    """A chapter of the page: its anchor, its heading, and its HTML."""

    anchor: str
    heading: str
    body: str


def page(title: str, opening: str, sections: Iterable[PageSection]) -> str:
    """The whole document. Policy and policy alone: nothing from elsewhere may be loaded."""
    chapters = list(sections)
    contents = "".join(f'<li><a href="#{c.anchor}">{html.escape(c.heading)}</a></li>' for c in chapters)
    body = "\n".join(
        f'<section id="{c.anchor}">\n<h2>{html.escape(c.heading)}</h2>\n{c.body}\n</section>'
        for c in chapters
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">\n"
        '<link rel="icon" href="data:,">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{html.escape(title)}</h1>\n{opening}\n"
        f'<nav aria-label="contents"><ul>{contents}</ul></nav>\n</header>\n<main>\n{body}\n</main>\n'
        "</body>\n</html>\n"
    )


def paragraph(text: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f"<p{named}>{marked(text)}</p>"


def bullets(sentences: Iterable[str]) -> str:
    items = "".join(f"<li>{marked(sentence)}</li>\n" for sentence in sentences)
    return f"<ul>\n{items}</ul>" if items else ""


def part(heading: str, *blocks: str) -> str:
    """A part of a section; nothing if it has no content."""
    content = "\n".join(block for block in blocks if block)
    return f"<h3>{html.escape(heading)}</h3>\n{content}" if content else ""


def gallery(figures: Iterable[str]) -> str:
    inside = "\n".join(figures)
    return f'<div class="figures">\n{inside}\n</div>' if inside else ""


def folded(heading: str, *blocks: str) -> str:
    content = "\n".join(block for block in blocks if block)
    return f"<details><summary>{html.escape(heading)}</summary>\n{content}\n</details>" if content else ""


def definitions(values: Mapping[str, object]) -> str:
    items = "".join(
        f"<li><code>{html.escape(k)}</code> {html.escape(str(v))}</li>" for k, v in values.items()
    )
    return f"<ul>{items}</ul>" if items else ""


def command(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>" if text else ""
