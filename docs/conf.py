"""Settings of the documentation: `make docs`."""

from nearfar import __version__

project = "nearfar"
author = "The nearfar developers"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_gallery.gen_gallery"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
html_theme = "furo"
html_title = "nearfar"
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_use_rtype = False
napoleon_use_ivar = True
nitpicky = False
suppress_warnings = ["docutils", "ref.python", "config.cache"]
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "plot_gallery": False,
    "download_all_examples": False,
}
