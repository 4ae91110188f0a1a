"""Metrics that draw every class together to a point."""
