"""How the documentation site is built: ``make docs``."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

import subtractive  # noqa: E402  # the checkout, not an installed copy

project = "subtractive"
author = "The subtractive authors"
project_copyright = "The subtractive authors"
release = version = subtractive.__version__

extensions = [
    "mathml",
    "public_names",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = [
    "_build",
    "examples",
    "**.ipynb",
    "gallery/**.py",
    "gallery/sg_execution_times.rst",
]
templates_path = ["_templates"]
nitpicky = True
# Other packages, which there is no network to look up, and types that are not public.
nitpick_ignore_regex = [
    (r"py:.*", r"(?!subtractive).*"),
    (r"py:.*", r"subtractive\.\w+\.\w+\..*"),
    (r"py:mod", r"subtractive\..*"),
]
suppress_warnings = ["config.cache"]

# Markdown
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_block", "attrs_inline"]
myst_heading_anchors = 3
html_math_renderer = "mathml"

# The reference, from the docstrings
autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False

# The gallery: scripts that are run, with what they print and draw
sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"__init__\.py$",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "ignore_repr_types": r"matplotlib|list",  # what drawing returns is not for readers
    "show_memory": False,
    "min_reported_time": 10**6,
    "show_signature": False,
    "abort_on_example_error": True,
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
    "thumbnail_size": (480, 320),
    "write_computation_times": False,
}

# Appearance
html_theme = "furo"
html_title = "subtractive"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_theme_options = {
    "source_repository": "https://github.com/subtractive-models/subtractive/",
    "source_branch": "main",
    "source_directory": "docs/",
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
