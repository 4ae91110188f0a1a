"""Metrics from geodesics, subspaces and curves."""
