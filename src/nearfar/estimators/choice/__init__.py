"""Learners that are chosen by held-out rows or classes."""
