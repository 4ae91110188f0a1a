"""Losses, one file per method."""
