"""Metrics under which random neighbours share the class of their row."""
