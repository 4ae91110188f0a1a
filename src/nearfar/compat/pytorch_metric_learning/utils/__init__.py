"""Scores, search and several processes, under the names of the other library."""
