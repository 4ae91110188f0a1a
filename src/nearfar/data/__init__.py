"""Data: folders, tables, arrays, official archives and embedded sets, each opened as a `Task` or a `Dataset`.

Importing this package imports neither torch nor Pillow; `nearfar.data.loader` and `nearfar.data.augment` are
the torch side.
"""

from ..io.untrusted import images_from
from .checks.inspection import Inspection, inspect_data
from .dataset import DataError, DataNotFoundError, Dataset, Task, carve_validation
from .items import as_items, open_items
from .open import open_dataset, open_task

__all__ = [
    "DataError",
    "DataNotFoundError",
    "Dataset",
    "Inspection",
    "Task",
    "as_items",
    "carve_validation",
    "images_from",
    "inspect_data",
    "open_dataset",
    "open_items",
    "open_task",
]
