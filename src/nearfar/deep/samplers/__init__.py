"""Batch samplers: which samples meet in a batch."""
