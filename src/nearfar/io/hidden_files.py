"""Files and folders that do not belong to the data."""


def hidden(name: str) -> bool:
    """Return whether a file or folder is ignored because it is hidden, or added to archives by macOS."""
    return name.startswith(".") or name == "__MACOSX"
