"""Metrics of a small empirical risk over pairs."""
