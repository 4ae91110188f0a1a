"""Metrics by margins between pairs or between neighbours."""
