"""Generated data, which need no files."""
