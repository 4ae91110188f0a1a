"""Checks of data before anything is trained on them."""
