"""One self-contained HTML page with pictures from scores, embeddings or a run folder.

Importing this package loads neither Matplotlib, Pillow nor Jinja.
"""

from .card import model_card, write_card
from .comparison import Comparison, compare, write_comparison
from .content import Curve, Items, Other, ReportContent
from .page import build_report
from .pushing import push_run
from .run import ReportError, read_run, report_run

__all__ = [
    "Comparison",
    "Curve",
    "Items",
    "Other",
    "ReportContent",
    "ReportError",
    "build_report",
    "compare",
    "model_card",
    "push_run",
    "read_run",
    "report_run",
    "write_card",
    "write_comparison",
]
