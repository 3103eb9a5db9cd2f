"""How `make docs` builds the site: Sphinx, with nothing from the network.

The pages are the Markdown files that a reader of the repository sees too. Links that leave `docs/`
lead to the pages under `project/`, which include those files, and links to source code, which the
site does not have, become the path itself.
"""

import re
from pathlib import Path

import holdfast
from holdfast.errors import HoldfastError

project = "Holdfast"
author = "the Holdfast authors"
version = release = holdfast.__version__
html_title = f"Holdfast {release}"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}
root_doc = "index"
myst_heading_anchors = 4
myst_enable_extensions = ["fieldlist"]
suppress_warnings = ["myst.strikethrough"]

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_permalinks_icon = "#"
pygments_style = "friendly"
pygments_dark_style = "monokai"

# Docstrings are plain English with `code`, and the signature has the types.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_inherit_docstrings = False
autodoc_default_options = {"members": True, "imported-members": True, "show-inheritance": False}
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

DOCS = Path(__file__).parent
PAGES = {
    "CHANGELOG.md": "/project/changelog.md",
    "CONTRIBUTING.md": "/project/contributing.md",
    "README.md": "/index.md",
    "SECURITY.md": "/project/security.md",
    "examples/support/README.md": "/project/support-agent.md",
}
CODE = r"(?:src|examples|deploy|tests|bench)/[^)#\s]*"
OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+(" + CODE + r")\)")
BESIDE = re.compile(r"\[([^\]]*)\]\((\w+\.py)\)")
ELSEWHERE = re.compile(r"\]\((?:\.\./)+(" + "|".join(map(re.escape, PAGES)) + r")(#[^)]*)?\)")
FROM_ROOT = re.compile(r"\]\((" + "|".join(map(re.escape, PAGES)) + r")(#[^)]*)?\)")
HOW_TO = "<!-- how-to: conf.py puts the groups of how-to/README.md here -->"


def lead_inside(text):
    """Lead the links of a page that leave docs/ to the pages that stand for what is there."""
    text = ELSEWHERE.sub(lambda m: f"]({PAGES[m[1]]}{m[2] or ''})", text)
    text = OUTSIDE.sub(lambda m: f"{m[1]} (`{m[2]}`)", text)
    return BESIDE.sub(lambda m: f"`{m[2]}`", text)


def how_to():
    """The groups of the how-to pages, as their own page lists them: one list for both."""
    for group in (DOCS / "how-to/README.md").read_text().split("\n## ")[1:]:
        pages = re.findall(r"^\| \[[^\]]+\]\(([^)]+)\.md\)", group, re.MULTILINE)
        names = "\n".join(f"how-to/{page}" for page in pages)
        yield f"```{{toctree}}\n:hidden:\n:caption: {group.splitlines()[0]}\n\n{names}\n```\n"


def read(app, docname, source):
    source[0] = lead_inside(source[0])
    if docname == "index":
        first = "```{toctree}\n:hidden:\n:caption: How-to\n\nhow-to/README\n```\n"
        source[0] = source[0].replace(HOW_TO, "\n".join([first, *how_to()]))


def include(app, path, parent, source):
    """Files from the root of the repository name the pages from there."""
    text = re.sub(r"\]\(docs/", "](/", source[0])
    text = FROM_ROOT.sub(lambda m: f"]({PAGES[m[1]]}{m[2] or ''})", text)
    source[0] = BESIDE.sub(lambda m: f"`{m[2]}`", lead_inside(text))


def first_paragraph(app, what, name, obj, options, lines):
    """Of a module's docstring keep what it is for; the rest is for readers of its code."""
    if what == "module":
        end = lines.index("") if "" in lines else len(lines)
        del lines[end:]


def leave_out(app, what, name, obj, skip, options):
    """Errors have a page of their own, where they stand as a tree."""
    return True if isinstance(obj, type) and issubclass(obj, HoldfastError) and here(app) else skip


def here(app):
    return app.env.docname == "reference/python/holdfast"


def setup(app):
    app.connect("autodoc-skip-member", leave_out)
    app.connect("source-read", read)
    app.connect("include-read", include)
    app.connect("autodoc-process-docstring", first_paragraph)
