"""The list of readers: every kind of source of data, what recognizes it, and what opens it.

What commands read as embeddings, the messages on sources, the help of commands, the table in docs/data.md and the files
that tests/fuzz damages all follow from this list. It comes before the readers, as the catalog comes before the methods,
and imports none of them: `opens` and `recognizes` name functions, which are imported when a source is opened.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from .hidden_files import hidden
from .untrusted import CORRUPT

TEXT_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json")
PLAIN_TABLES = (*TEXT_TABLES, ".xlsx", ".feather", ".parquet")
TABLES = (
    *PLAIN_TABLES,
    *(f"{ending}.gz" for ending in TEXT_TABLES),
    *(f"{ending}.zip" for ending in TEXT_TABLES),
)
"""Endings of all tables, including those that are not text."""
TARS = (".tar", ".tar.gz", ".tgz")
READ_IMAGES = ("image_size", "skip_bad")
"""Settings of readers of images."""


@dataclass(frozen=True)
class Reader:
    """A kind of source, and the function that reads it.

    Attributes
    ----------
    name : str
        Name of the kind; of a built-in data set or an official archive also the word by which it is given.
    words : str
        How messages and help call it.
    shown, about : str
        Its row in the table of docs/data.md, in Markdown.
    opens : str
        Module and name of the function in `nearfar` that reads it as data with classes, a `Source`. It gets the path,
        unless the source is given by its name, and those of `settings` that are given.
    items : str
        The function that reads it also without classes: of the path, label, name and skip_bad, a `Dataset`, or None
        where `opens` reads it. By default, `opens` does.
    endings : tuple of str
        How the names of its files end.
    folders : bool
        Whether it may be a folder.
    recognizes : str
        The function that decides, for a path with such a name, whether it is of this kind. By default, the name does.
    prefix : bool
        Whether it is given as NAME:PATH. Without endings and folders, it is otherwise given as NAME.
    downloaded : bool
        Whether it is in the cache once it was downloaded. A file or a folder of its name is then read instead of it.
    settings : tuple of str
        Settings of `opens`: some of label, name, image_size and skip_bad; expected, the counts of an archive.
    columns : bool
        Whether it has columns, of which the arguments `label` and `name` choose one.
    embeddings : bool
        Whether a command that is given such a file takes it for embeddings, and not for items.
    """

    name: str
    words: str
    shown: str
    about: str
    opens: str
    items: str = ""
    endings: tuple[str, ...] = ()
    folders: bool = False
    recognizes: str = ""
    prefix: bool = False
    downloaded: bool = False
    settings: tuple[str, ...] = READ_IMAGES
    columns: bool = False
    embeddings: bool = False

    @property
    def is_named(self) -> bool:
        """Whether it is given by its name, and is no file or folder."""
        return not self.endings and not self.folders

    def fits(self, path: Path) -> bool:
        """Return whether a path is of this kind, by its name or by what is there."""
        if not path.name.lower().endswith(self.endings) and not (self.folders and path.is_dir()):
            return False
        return not self.recognizes or bool(function_at(self.recognizes)(path))

    def read(self, path: str, **settings: Any) -> Any:
        """Read a source of this kind as `opens` does, with those of the settings that it takes."""
        places = [path] if path else []
        return function_at(self.opens)(*places, **{name: settings[name] for name in self.settings if name in settings})


READERS = (
    Reader(
        name="folder",
        words="a folder, .zip or .tar with one folder of images or sounds per class",
        shown="`photos/`, a `.zip`, a `.tar` or a `.tar.gz`, `shards/` of these",
        about="one folder of images or [sounds](sounds.md) per class; or `train/` with `test/`, `val/` or both, which "
        "contain such folders. If one set searches the other, use `query/` and `gallery/` instead of `test/`",
        opens="data.readers.folder.read_folder",
        items="data.items.items_in_folder",
        endings=(".zip", *TARS),
        folders=True,
    ),
    Reader(
        name="Omniglot",
        words="an Omniglot .zip",
        shown="Omniglot zips",
        about="`images_background*.zip`; strokes become bright, and images 28x28",
        opens="data.readers.omniglot.read_omniglot",
        items="data.items.items_in_folder",
        endings=(".zip", *TARS),
        folders=True,
        recognizes="data.readers.omniglot.is_omniglot",
    ),
    Reader(
        name="table",
        words="a .csv, .tsv, .jsonl or .parquet table",
        shown="`table.csv`, `.tsv`, `.jsonl` or `.json` (also as `.gz` or `.zip`), `table.parquet`, `.feather` or "
        "`.xlsx`",
        about="paths of images or sounds, or rows of numbers, with labels: see [the columns of a "
        "table](#the-columns-of-a-table)",
        opens="data.readers.manifest.read_manifest",
        items="data.items.items_in_table",
        endings=(*TABLES, ".zip"),
        recognizes="io.formats.is_table",
        settings=("label", "name", *READ_IMAGES),
        columns=True,
        embeddings=True,
    ),
    Reader(
        name="saved data set",
        words="a folder of save_to_disk",
        shown="a folder written by `save_to_disk` of Hugging Face `datasets`",
        about="such a table, with images or rows; parts named train, validation and test become the split",
        opens="data.readers.manifest.read_manifest",
        items="data.items.items_in_table",
        folders=True,
        recognizes="data.readers.saved_datasets.is_saved",
        settings=("label", "name", *READ_IMAGES),
        columns=True,
    ),
    Reader(
        name="FiftyOne",
        words="a folder of FiftyOne",
        shown="a folder that FiftyOne exported as `FiftyOneDataset`",
        about="its images; `ground_truth`, or the field that `label=` names, has the classes, and the tags train, "
        "validation and test are the split",
        opens="data.readers.fiftyone.read_fiftyone",
        items="data.readers.fiftyone.items_in_fiftyone",
        folders=True,
        recognizes="data.readers.fiftyone.is_of_fiftyone",
        settings=("label", *READ_IMAGES),
        columns=True,
    ),
    Reader(
        name="folder of embeddings",
        words="a folder of embeddings",
        shown="`embedded/`",
        about="a folder that [`nearfar embed`](searching.md#embed-any-number-of-items) wrote: parts in Parquet, with "
        "names, labels and embeddings. Needs `nearfar[tables]`",
        opens="data.readers.embedding_folder.read_folder_of_embeddings",
        folders=True,
        recognizes="io.part_files.holds_parts",
        settings=("skip_bad",),
        embeddings=True,
    ),
    Reader(
        name="arrays",
        words="an .npz",
        shown="`rows.npz`",
        about="`X` or `embeddings`: rows (n, d), or images (n, H, W) or (n, H, W, C) as uint8; `y` or `labels` (n,). "
        "Optional, as `nearfar embed` writes them: `names` (n,); `classes`, the class names if labels are numbers from "
        "0; `split` and `groups` (n,); `class_labels` (number of `classes`, k), the labels of each class, with "
        '`levels` (k,) those of a hierarchy, such as "species" and "genus"',
        opens="data.readers.arrays.read_npz",
        items="data.items.items_in_arrays",
        endings=(".npz",),
        embeddings=True,
    ),
    Reader(
        name="array",
        words="",
        shown="`rows.npy`",
        about="rows (n, d) without labels, to embed, to index or to look up",
        opens="data.readers.arrays.refuse_npy",
        items="data.items.items_in_array",
        endings=(".npy",),
        settings=(),
        embeddings=True,
    ),
    Reader(
        name="faiss",
        words="a .faiss",
        shown="`rows.faiss`",
        about="a flat index of faiss, with a table next to it, `rows.names.csv`: a row per vector with `name` and "
        "optionally `label`. faiss itself is not needed",
        opens="data.readers.faiss_files.read_faiss",
        endings=(".faiss",),
        settings=("skip_bad",),
        embeddings=True,
    ),
    Reader(
        name="digits",
        words="digits",
        shown="`digits`",
        about="scikit-learn's digits (0 to 4 seen, 5 to 9 unseen)",
        opens="data.readers.digits.read_digits",
        settings=("image_size",),
    ),
    Reader(
        name="glyphs",
        words="glyphs",
        shown="`glyphs`",
        about="characters drawn in Matplotlib's fonts",
        opens="data.synthetic.glyphs.read_glyphs",
        settings=("image_size",),
    ),
    *(
        Reader(
            name=name,
            words=f"{name}:PATH",
            shown=f"`{name}:PATH`",
            about=f"the official archive of {title} with its {protocol}; nearfar checks the numbers of images and "
            "classes",
            opens=f"data.readers.{name}.read_{name}",
            prefix=True,
            settings=(*READ_IMAGES, "expected"),
        )
        for name, title, protocol in (
            ("cub", "CUB-200-2011", "zero-shot protocol"),
            ("cars", "Cars196", "zero-shot protocol"),
            ("sop", "Stanford Online Products", "zero-shot protocol"),
            ("inshop", "In-Shop Clothes", "queries and gallery"),
        )
    ),
    Reader(
        name="grocery",
        words="grocery",
        shown="`grocery`",
        about="photos of 81 grocery products, [which you download once](#public-photos-to-try)",
        opens="data.public.read_grocery",
        downloaded=True,
    ),
)
"""All readers, the general ones first: a path is read by the last one that it fits."""

EMBEDDINGS = tuple(ending for reader in READERS if reader.embeddings for ending in reader.endings if ending != ".zip")
"""Endings of files that commands take for embeddings."""
ARCHIVES = tuple(reader.name for reader in READERS if reader.prefix)
"""Official archives, which are given as NAME:PATH."""


def accepted() -> str:
    """Return what a source may be, for messages and help.

    >>> accepted()[:24], accepted()[-10:]
    ('a folder, .zip or .tar w', 'or grocery')
    """
    *words, last = [reader.words for reader in READERS if reader.words]
    return f"{', '.join(words)} or {last}"


def reader_of(path: str | Path) -> Reader | None:
    """Return the reader of a file or a folder, or of a file with such a name; None if there is none."""
    return next((reader for reader in reversed(READERS) if reader.fits(Path(path))), None)


def reader_called(source: str) -> tuple[Reader, str] | None:
    """Return the reader of a built-in data set or an official archive, and the path of the archive; None of others.

    >>> reader_called("cub:birds")[1], reader_called("birds")
    ('birds', None)
    """
    name, _, path = source.partition(":")
    reader = next((reader for reader in READERS if reader.is_named and reader.name == name), None)
    if reader is None or bool(path) is not reader.prefix or (reader.downloaded and Path(source).exists()):
        return None
    return reader, path


def has_columns(source: str | Path) -> bool:
    """Return whether a source has columns, of which one can be named: a table, or a saved data set."""
    return any(reader.fits(Path(source)) for reader in READERS if reader.columns)


def is_table(path: str | Path) -> bool:
    """Return whether a source is a table by its name, or an archive `.zip` that contains nothing but one text table."""
    path = Path(path)
    return path.name.lower().endswith(TABLES) or bool(table_in(path))


def table_in(path: Path) -> str:
    """Return the name of the only file of an archive `.zip`, if it is a text table; otherwise ""."""
    if path.suffix.lower() != ".zip" or not path.is_file():
        return ""
    try:
        with zipfile.ZipFile(path) as archive:
            names = files_in_archive(archive)
    except (OSError, *CORRUPT):  # reading the items will raise the error
        return ""
    return names[0] if len(names) == 1 and names[0].lower().endswith(TEXT_TABLES) else ""


def files_in_archive(archive: zipfile.ZipFile) -> list[str]:
    """Return the names of the files in an archive, without those that are hidden."""
    return [name for name in archive.namelist() if not name.endswith("/") and not any(map(hidden, name.split("/")))]


def function_at(dotted: str) -> Any:
    """Import a function of the library by its module and its name."""
    module, _, name = dotted.rpartition(".")
    return getattr(import_module(f"nearfar.{module}"), name)
