"""Metrics against an adversary of pairs."""
