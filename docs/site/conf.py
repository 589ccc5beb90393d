"""Sphinx configuration of the documentation site: guides of `docs/` and the API reference.

Sources are read from the root of the repository, so that links between the guides, the README and
the examples work on the site as they do in a checkout. ``nox -s docs`` builds it.
"""

import datetime as dt
import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

project = "tuner"
author = "The tuner authors"
project_copyright = f"{dt.datetime.now(dt.UTC).year}, {author}"
release = importlib.import_module("tuner").__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinxcontrib.mermaid",
]
root_doc = "docs/site/index"
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.md", "docs/site/**"]
nitpicky = False  # types of private modules are named in signatures, and have no page

html_theme = "furo"
html_title = f"tuner {release}"
html_show_sourcelink = False
templates_path: list[str] = []

myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
myst_enable_extensions = ["colon_fence"]

autodoc_default_options = {"members": True, "show-inheritance": False, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autodoc_mock_imports = [
    "keras",
    "lightgbm",
    "lightning",
    "optuna",
    "pytorch_lightning",
    "sklearn",
    "torch",
    "transformers",
    "xgboost",
]
default_role = "py:obj"  # single backticks in docstrings name Python objects
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Departures", "notes_style"), ("Reference", "notes_style")]
# A property that is also listed under Attributes is described once.
napoleon_use_ivar = True
napoleon_use_rtype = False
