"""The documentation as a site (`make docs`): the Markdown files of the repository, at their own paths."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from swiftfl import __version__  # noqa: E402

project, author, copyright = "swiftfl", "the authors of swiftfl", "the authors of swiftfl"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]

# The source folder is the repository: links between pages, programs and sources are the same everywhere.
include_patterns = ["*.md", "docs/*.md", "docs/api/*.md"]
exclude_patterns = [".*", "build", "src", "tests", "tools", "benchmarks", "**/node_modules"]
root_doc = "docs/index"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

default_role = "code"
maximum_signature_line_length = 88
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
python_use_unqualified_type_names = True
# Types in signatures, and other libraries, have no page here; what else a text refers to must have one.
nitpicky = True
nitpick_ignore_regex = [("py:(class|obj|data|exc)", r".*"), ("py:.*", r"(?!swiftfl\.).*")]

html_theme = "furo"
html_title = f"swiftfl {version}"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_extra_path = ["site/root"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {"color-brand-primary": "#0b6e8a", "color-brand-content": "#0b6e8a"},
    "dark_css_variables": {"color-brand-primary": "#5cc4df", "color-brand-content": "#5cc4df"},
}
