"""Data drawn on the spot, which need no files."""
