"""How Sphinx makes the documentation site of the repository's own pages: `make docs`.

The source of the site is the repository itself, so a link between pages is the same in a checkout and on the site. A
link to any other file of the repository becomes a download.
"""

import logging
import re
import sys
import typing
from collections.abc import Callable
from pathlib import Path

from jupyter_client.manager import KernelManager
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

project = "wardround"
author = "the wardround contributors"
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/adr/*.md",
    "docs/notebooks/*.ipynb",
    "wardround/privacy/PROOFS.md",
    "wardround/privacy/noise/PROOFS.md",
]
# Not looked through for pages, because they hold many files and none.
exclude_patterns = [".*", "build", "tests", "tools"]

extensions = ["sphinx.ext.autodoc", "myst_nb"]
nitpicky = True
highlight_language = "none"

# --- Pages ------------------------------------------------------------------------------------------------

myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings: list[str] = []

# --- Notebooks --------------------------------------------------------------------------------------------

# Who else is on the machine cannot speak to a kernel; without it, each kernel warns.
KernelManager.transport_encryption.default_value = "auto"
logging.getLogger("traitlets").setLevel(logging.WARNING)
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_merge_streams = True
nb_output_stderr = "show"

# --- API reference ----------------------------------------------------------------------------------------

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_type_aliases = {"Json": "Json"}
# The inside and other libraries have no page here; a public name that is missing is still a warning.
nitpick_ignore_regex = [("py:.*", r"(?!wardround\.(simulation\.)?\w+$).*")]


def raises(_app: Sphinx, _what: str, _name: str, _of: object, _options: object, lines: list[str]) -> None:
    """A docstring's `Raises:` becomes a field of the page."""
    if "Raises:" in lines:
        start = lines.index("Raises:") + 1
        lines[start - 1 :] = [re.sub(r"^ +(\w+): ", r":raises \1: ", line) for line in lines[start:]]


def plain_types(_app: Sphinx, of: Callable[..., object], _bound: object) -> None:
    """The limits that a word keeps on its way over the wire are left out of how it is made."""
    if of.__name__ == "__init__":
        of.__annotations__ = typing.get_type_hints(of)


def short_json(
    _app: Sphinx, _what: str, _name: str, _of: object, _options: object, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """A value of a JSON document is called Json, not by all that it may be."""
    theirs = "TypeAliasForwardRef('Json')"
    return signature and signature.replace(theirs, "Json"), returns and returns.replace(theirs, "Json")


def setup(app: Sphinx) -> None:
    """Connect what is ours to Sphinx."""
    app.connect("autodoc-process-docstring", raises)
    app.connect("autodoc-before-process-signature", plain_types)
    app.connect("autodoc-process-signature", short_json)


# --- Look -------------------------------------------------------------------------------------------------

html_theme = "furo"
html_title = "wardround"
templates_path = ["templates"]
# The address of the site opens its first page, which lies beside the others in docs/.
html_additional_pages = {"index": "first_page.html"}
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
