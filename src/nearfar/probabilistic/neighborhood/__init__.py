"""Metrics under which random neighbors share the class of their row."""
