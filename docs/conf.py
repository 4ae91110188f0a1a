"""Settings of the documentation: `make docs`."""

import inspect
import re
import sys
import tomllib
from pathlib import Path

from sphinx.domains.python import PyObject
from sphinx.util.inspect import stringify_signature

from nearfar import __version__

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tools"))
sys.path.insert(0, str(HERE))

from gallery_figures import FigureFile  # noqa: E402
from reference import SHARED_TITLES  # noqa: E402

project = "nearfar"
author = "The nearfar developers"
html_show_copyright = False
release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "linked_names",
    "folded_rows",
]
shared_titles = SHARED_TITLES
viewcode_line_numbers = True
html_math_renderer = "mathml"
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "nearfar"
html_favicon = "style/icon.svg"
html_static_path = ["style"]
html_css_files = ["tables.css"]
html_js_files = ["copy.js"]
html_search_scorer = str(HERE / "style" / "scorer.js")
highlight_language = "default"
smartquotes_action = "De"  # quotes stay as they are: primes of formulas
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_use_rtype = False
napoleon_use_ivar = True
nitpicky = False
suppress_warnings = ["docutils", "ref.python", "config.cache"]
DRAWING = (
    "active_pairs",
    "image_sets",
    "imbalance",
    "spd_network",
    "stream_of_pairs",
    "two_views",
    "uncertain_distances",
    "wrong_labels",
)
"""Examples that take seconds and draw their result. The others are not run here, and name a picture."""


URLS = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {})
if "Repository" in URLS:  # furo then shows how to edit a page
    html_theme_options = {"source_repository": URLS["Repository"], "source_branch": "main", "source_directory": "docs/"}

figure_file = FigureFile()
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": rf"({'|'.join(DRAWING)})\.py$",
    "image_scrapers": (figure_file,),
    "reset_argv": figure_file.argv,
    "default_thumb_file": str(HERE / "pictures" / "example.png"),
    "remove_config_comments": True,
    "show_signature": False,
    "download_all_examples": False,
    "write_computation_times": False,
}


def keep_names(app, what, name, obj, options, lines):
    """Keep docstrings as they are: `components_` is a name, not a link; |x| a norm; `ks, seed` are two names."""
    for k, line in enumerate(lines):
        field = re.match(r":(?:ivar|vartype) [^:]*:", line)
        if field:
            line = field[0].replace(", ", ",") + line[field.end() :]
        plain_and_code = re.split(r"(`+[^`]*`+)", line)
        plain_and_code[::2] = [re.sub(r"(\||(?<=\w)_(?!\w))", r"\\\1", plain) for plain in plain_and_code[::2]]
        lines[k] = "".join(plain_and_code)


def show_settings(app, what, name, obj, options, signature, returns):
    """Show the arguments of a class's `__init__`; Sphinx reads those of the `__new__` that checks them."""
    if what == "class" and signature and re.fullmatch(r"\(\*args, \*\*\w+\)", signature):
        own = inspect.signature(obj)
        known = [item for item in own.parameters.values() if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)]
        return stringify_signature(own, show_annotation=False) if known else "()", returns
    return None


def unreleased():
    """Return what `changes/` announces, as the next release will list it."""
    lines = ["## Since the last release", ""]
    for kind in ("added", "changed", "fixed"):
        texts = [path.read_text(encoding="utf-8").strip() for path in (HERE.parent / "changes").glob(f"*.{kind}.md")]
        lines += [f"### {kind.capitalize()}", "", *sorted(texts), ""]
    return "\n".join(lines).replace("](docs/", "](")


def setup(app):
    import figures
    import method_figures
    import reference
    import theory_figures

    figures.write(HERE / "pictures")
    theory_figures.write(HERE / "pictures")
    method_figures.write(HERE / "pictures" / "methods")
    reference.write(HERE / "reference", method_figures.captions())
    (HERE / "_build").mkdir(exist_ok=True)
    (HERE / "_build" / "unreleased.md").write_text(unreleased(), encoding="utf-8")  # which changelog.md includes
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"  # as numpydoc calls them; Sphinx writes "Variables"
    app.connect("autodoc-process-docstring", keep_names, priority=900)
    app.connect("autodoc-process-signature", show_settings)
