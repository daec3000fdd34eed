"""Settings of the documentation site; everything that its pages load lies beside them, so it is read offline."""

import os
import re
import sys
from importlib import metadata
from pathlib import Path

# The site reads docstrings and shapes; nothing is computed, so no accelerator is touched.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from docutils.nodes import SkipNode  # noqa: E402
from latex2mathml.converter import convert  # noqa: E402
from tables import settings_tables, variables_table  # noqa: E402

project = "d2djax"
author = "The d2djax authors"
project_copyright = author
version = release = metadata.version("d2djax")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme = "sphinx_book_theme"
html_title = "d2djax"
html_math_renderer = "mathml"
html_theme_options = {
    "show_toc_level": 2,
    "use_download_button": False,
    "navbar_persistent": [],
    # Wide tables need the place.
    "secondary_sidebar_items": {"**": ["page-toc"], "config": [], "variables": []},
}
html_static_path = ["static"]
html_css_files = ["site.css"]

# The outputs that the notebooks are kept with are shown; tests/test_notebooks.py runs them.
nb_execution_mode = "off"
myst_enable_extensions = ["dollarmath", "substitution", "attrs_inline"]
myst_heading_anchors = 4
myst_substitutions = {"settings": settings_tables(), "variables": variables_table()}

autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
# Records are made with their fields, which are described already.
autodoc_default_options = {"exclude-members": "__init__"}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_use_ivar = True
python_maximum_signature_line_length = 80

# What the README and its like link to in the repository, and the page of the site that shows it.
PAGES = {
    "experiments/README.md": "claims.md",
    "benchmarks/README.md": "benchmarks.md",
    "experiments/figure.py": "own_figure.md",
    "experiments/site/changes.md": "changes.md",
    "experiments/pictures/": "pictures/",
}
LINK = re.compile(r"\]\((?:\.\./)?(" + "|".join(map(re.escape, PAGES)) + ")")


def lead_to_pages(app, path, parent, content):
    """Links in text that a page includes lead to pages of the site."""
    content[0] = LINK.sub(lambda found: f"]({PAGES[found[1]]}", content[0])


def as_literals(app, what, name, thing, options, lines):
    """Docstrings mark code by single backticks, as Markdown does; reStructuredText wants two."""
    lines[:] = [re.sub(r"(?<![`:])`([^`]+)`(?!`)", r"``\1``", line) for line in lines]


def write_mathml(translator, node):
    """An equation as MathML, which browsers draw themselves: no script and no font is loaded."""
    is_block = node.tagname == "math_block"
    drawn = convert(node.astext(), display="block" if is_block else "inline")
    translator.body.append(f'<div class="equation">{drawn}</div>' if is_block else drawn)
    raise SkipNode


def setup(app):
    """Registers what is above."""
    app.add_html_math_renderer("mathml", (write_mathml, None), (write_mathml, None))
    app.connect("include-read", lead_to_pages)
    # Before napoleon, which takes the sections of a docstring apart.
    app.connect("autodoc-process-docstring", as_literals, priority=400)
    return {"parallel_read_safe": True}
