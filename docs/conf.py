"""Settings of the documentation: Sphinx reads Markdown and the chapters' notebooks, and writes pages."""

import dataclasses
import html
import importlib
import inspect
import json
import re
import sys
import typing
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
autodoc_typehints = "description"  # in the list of parameters
autodoc_typehints_description_target = "all"
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


FORMS = {name: rf"\{name}" for name in ("alpha", "beta", "sigma", "Phi", "sum", "exp", "tanh")}


def latex(line):
    """An equation as docstrings write it, in LaTeX: `e_tj = v^T tanh(W q_t)`; three spaces or more lie between two."""
    words = r"(?<![A-Za-z_^{])([A-Za-z]{2,})"
    line = re.sub(words, lambda found: FORMS.get(found[1], rf"\mathrm{{{found[1]}}}"), line.strip())
    line = re.sub(r"([_^])(\w+)", r"\1{\2}", line.replace(" * ", r" \odot "))
    line = re.sub(r" {3,}", r" \\qquad ", line)
    return re.sub(r"(?<=[\w|}]) (?=\\mathrm)|(?<=[a-zA-Z]}) (?=[\w|])", r"\\ ", line)  # words in an equation


def show_equations(app, what, name, obj, options, lines):
    """Docstrings set equations apart by indenting them: show these as equations, other such blocks as they are."""
    first, *blocks = "\n".join(lines).split("\n\n")
    for number, block in enumerate(blocks):
        rows = block.strip("\n").split("\n")
        if all(row.startswith("    ") and " = " in row for row in rows):
            blocks[number] = ".. math::\n\n" + " \\\\\n".join(f"    {latex(row)}" for row in rows)
        elif rows[0].startswith("    "):
            blocks[number] = f"::\n\n{block}"
    lines[:] = "\n\n".join([first, *blocks]).split("\n")


def list_parameters(app, what, name, obj, options, lines):
    """Docstrings describe parameters in paragraphs of `name: text. name: text.`: show these as a list with types."""
    try:
        names = "|".join(map(re.escape, inspect.signature(obj).parameters))
    except (TypeError, ValueError):  # a module, or an attribute
        return
    paragraphs = "\n".join(lines).split("\n\n")
    for number, text in enumerate(paragraphs):
        if names and re.match(rf"({names}): ", text):
            parts = re.split(rf"(?:^|(?<=[.;]) |(?<=[.;])\n|\n)({names}): ", text)[1:]
            fields = zip(parts[::2], parts[1::2], strict=True)
            paragraphs[number] = "\n".join(f":param {key}: {' '.join(each.split())}" for key, each in fields)
    lines[:] = "\n\n".join(paragraphs).split("\n")


def leave_ranges_out(app):
    """Show types without the ranges that `Annotated` adds: the pages of the settings have them."""
    importlib.import_module("nmt.analysis")  # and all that the page of the Python interface shows

    modules = [module for name, module in sys.modules.items() if name.startswith("nmt.")]
    for each in {kind for module in modules for kind in vars(module).values() if inspect.isclass(kind)}:
        if not each.__module__.startswith("nmt."):
            continue
        if dataclasses.is_dataclass(each):
            each.__annotations__ = typing.get_type_hints(each)
        elif inspect.isfunction(each.__init__):
            each.__init__.__annotations__ = typing.get_type_hints(each.__init__)


SEARCH_TEXT = """\
// Of pages on a disk, a browser lets no script read another: search finds its excerpts here
const texts = %s
window.fetch = (url) => Promise.resolve({ text: () => `<div role="main">${texts[url.replace(/^[.][/]/, "")]}</div>` })
"""


def load_search_text(app, page, template, context, doctree):
    if page == "search":
        script = "_static/search_text.js"
        app.add_js_file(
            None,
            body=f"if (location.protocol === 'file:') document.write('<script src={script}></' + 'script>')",
        )


def write_search_text(app, error):
    if error is None and app.builder.format == "html":
        texts = {page: app.env.get_doctree(page).astext() for page in app.env.found_docs}
        anchors = re.compile(r'<a id="[^"]*"></a>')
        texts = {f"{page}.html": html.escape(anchors.sub("", text)) for page, text in texts.items()}
        Path(app.outdir, "_static", "search_text.js").write_text(SEARCH_TEXT % json.dumps(texts), "utf-8")


def setup(app):
    app.connect("html-page-context", load_search_text)
    app.connect("build-finished", write_search_text)
    app.connect("builder-inited", leave_ranges_out)
    app.connect("autodoc-process-docstring", list_parameters)
    app.connect("autodoc-process-docstring", show_equations)
