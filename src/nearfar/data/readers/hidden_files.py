"""Files and folders that are no part of the data."""


def hidden(name: str) -> bool:
    """Whether a file or a folder of this name is left out: a hidden one, or what macOS puts into archives."""
    return name.startswith(".") or name == "__MACOSX"
