"""Miners, one file per method: which of the comparisons of a row count."""
