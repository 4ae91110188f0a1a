"""Damaged, hostile and absurd input for every kind of file that the commands read."""
