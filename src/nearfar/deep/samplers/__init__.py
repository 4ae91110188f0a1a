"""Batch samplers: which samples form a batch."""
