"""Metrics from scatter matrices, most of them in closed form."""
