"""Metrics with a posterior, and which pairs to ask about next."""
