"""Readers, one per format or official set: each returns a `Dataset`, a `Task` or a table."""
