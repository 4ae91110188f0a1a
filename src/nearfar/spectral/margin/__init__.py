"""Metrics by margins between pairs or between neighbors."""
