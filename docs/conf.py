"""Settings of the documentation: Sphinx reads Markdown and the chapters' notebooks, and writes pages."""

from importlib.metadata import version as version_of
from pathlib import Path

project = "nmt"
author = "the maintainers of nmt"
copyright = "the maintainers of nmt"
version = release = version_of("attention-nmt")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # MathJax is copied into the site: no network when reading
]
exclude_patterns = [
    "_build",
    "**/.ipynb_checkpoints",
    "learn/0*.md",
]  # the chapters' notebooks hold their results
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

nb_execution_mode = "off"  # docs/execute.py runs the chapters

default_role = "code"  # docstrings write `x`, as Markdown does
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True

html_theme = "furo"
html_title = "nmt"
html_static_path = ["static"]
html_css_files = ["scrolling.css"]
html_extra_path = (
    ["site"] if Path(__file__).with_name("site").exists() else []
)  # of `make web`: the folder page
html_theme_options = {"navigation_with_keys": True}
html_copy_source = False
html_show_sourcelink = False


def keep_equations(app, what, name, obj, options, lines):
    """Docstrings set equations apart by indenting them, as Markdown does: show such blocks as they are written."""
    written = []
    for number, line in enumerate(lines):
        begins = line.startswith("    ") and number > 0 and not lines[number - 1].strip()
        if begins and not any(each.startswith("    ") for each in written[-2:]):
            written += ["::", ""]
        written.append(line)
    lines[:] = written


def setup(app):
    app.connect("autodoc-process-docstring", keep_equations)
