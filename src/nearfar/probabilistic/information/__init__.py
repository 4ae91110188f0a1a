"""Metrics by divergences between Gaussians, and between metrics."""
