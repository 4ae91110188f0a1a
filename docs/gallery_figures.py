"""The figures of the gallery: each example draws into a file that it is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx_gallery.scrapers import figure_rst


class FigureFile:
    """The file that an example is told to draw into, moved into the gallery."""

    def __repr__(self) -> str:
        return "FigureFile"

    def argv(self, gallery_conf: dict[str, Any], script_vars: dict[str, Any]) -> list[str]:
        """The word that an example gets: where to draw."""
        return [str(Path(gallery_conf["src_dir"]) / "figure.png")]

    def __call__(self, block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
        drawn = Path(gallery_conf["src_dir"]) / "figure.png"
        if not drawn.exists():
            return ""
        target = next(block_vars["image_path_iterator"])
        drawn.replace(target)
        return str(figure_rst([target], gallery_conf["src_dir"]))
