"""Files that are not what was expected: what they are, and what to do with them."""

from __future__ import annotations

import zipfile
from pathlib import Path

from .untrusted import CORRUPT, check_regular

AS_CSV = "save it as .csv"
AS_XLSX = "save it as .xlsx or .csv in a spreadsheet program"
AS_NPZ = "save its rows and labels with np.savez('rows.npz', X=X, y=y)"
UNPACK = "unpack it, or pack it as .gz"
BY_PANDAS = "read it with pandas, and write it with to_csv or to_parquet"

BEGINNINGS = (
    (b"PAR1\x15", "Parquet", ".parquet", "rename it to .parquet"),
    (b"ARROW1", "Arrow", ".feather", "rename it to .feather"),
    (b"FEA1\0", "Feather of version 1", "", "write it again with pyarrow.feather.write_feather"),
    (b"\xff\xff\xff\xff", "a stream of Arrow", "", "write it with pyarrow.feather.write_feather"),
    (b"\x93NUMPY", "an array of NumPy", ".npy", "rename it to .npy"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Excel file (.xls)", "", AS_XLSX),
    (b"\x89HDF\r\n\x1a\n", "HDF5", "", AS_NPZ),
    (b"MATLAB 5.0", "MATLAB", "", f"read it with scipy.io.loadmat, and {AS_NPZ}"),
    (b"SQLite format 3\0", "a database of SQLite", "", "export its table as .csv"),
    (b"\x1f\x8b", "compressed by gzip", ".gz", "add .gz to its name"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "", UNPACK),
    (b"\xfd7zXZ\0", "compressed by xz", "", UNPACK),
    (b"BZh91AY&SY", "compressed by bzip2", "", UNPACK),
    (b"%PDF", "PDF", "", AS_CSV),
)
"""How files begin, what they are, the ending under which they are read ("" if they are not), and what to do."""

TEXTS = (
    (b"<", "HTML or XML", AS_CSV),
    (b"{", "JSON", "rename it to .jsonl if each line is an object, else to .json"),
    (b"[{", "JSON", "rename it to .json"),
)
"""How texts begin that are no table of separated columns."""

OTHER_ENDINGS = {
    (".xls", ".xlsm", ".xlsb", ".ods", ".numbers"): AS_XLSX,
    (".arrow", ".ipc"): "rename it to .feather if pyarrow.ipc.new_file or pandas wrote it; else write it as .feather",
    (".pq",): "rename it to .parquet",
    (".txt", ".tab", ".dat", ".data"): "if it is a table, rename it to .tsv (tabs between columns) or .csv",
    (".bz2", ".xz", ".zst", ".7z", ".rar"): UNPACK,
    (".mat",): f"read it with scipy.io.loadmat, and {AS_NPZ}",
    (".h5", ".hdf5", ".hdf"): f"read it with pandas or h5py, and {AS_NPZ}",
    (".arff",): "read it with scipy.io.arff, and write it with pandas.DataFrame(data).to_csv",
    (".libsvm", ".svm", ".svmlight"): f"read it with sklearn.datasets.load_svmlight_file, and {AS_NPZ}",
    (".sqlite", ".sqlite3", ".db"): "export its table as .csv",
    (".dta", ".sav", ".sas7bdat", ".xpt", ".orc", ".xml", ".html", ".pkl", ".pickle"): BY_PANDAS,
    (".rds", ".rdata"): "write its table in R with write.csv",
    (".avro", ".yaml", ".yml"): "write its rows as .jsonl, one object in each line",
    (".pt", ".pth"): f"load it with torch, and {AS_NPZ}",
}
"""What to do with files of other kinds, by their ending."""


def mistaken(path: Path, *, text: bool = False) -> str:
    """Return what a file is although its ending says something else, and what to do; "" if that is not known.

    Parameters
    ----------
    path : Path
        A file.
    text : bool
        Whether its ending is that of a text with columns, so that JSON and HTML are also mistaken.
    """
    try:
        check_regular(path)
        with path.open("rb") as file:
            beginning = file.read(64)
        if not beginning:
            return "is empty (0 bytes)"
        if beginning.startswith(b"PK\x03\x04"):
            return _archive(path)
    except (OSError, *CORRUPT):  # reading it will raise the error
        return ""
    for begins, what, ending, advice in BEGINNINGS:
        if beginning.startswith(begins) and not (ending and path.name.lower().endswith(ending)):
            return f"is {what}; {advice}"
    for begins, what, advice in TEXTS:
        if text and beginning.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(begins):
            return f"is {what}; {advice}"
    return ""


def _archive(path: Path) -> str:
    """Return what an archive is, and what to do, if its ending says something else."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    name = path.name.lower()
    if any(name.startswith("xl/") for name in names):
        return "" if name.endswith(".xlsx") else "is an Excel file; rename it to .xlsx"
    if names and all(name.endswith(".npy") for name in names):
        return "" if name.endswith(".npz") else "is an .npz of NumPy; rename it to .npz"
    return "" if name.endswith(".zip") else "is a zip archive; rename it to .zip, or unpack it"


def advice_on_ending(path: Path) -> str:
    """Return what to do with a file of a kind that is not read, by its ending; "" if its ending is not known.

    >>> advice_on_ending(Path("rows.PQ")), advice_on_ending(Path("rows.new"))
    ('rename it to .parquet', '')
    """
    ending = path.suffix.lower()
    return next((advice for endings, advice in OTHER_ENDINGS.items() if ending in endings), "")
