"""Distances, one file per method: functions of two sides that a loss takes as its `distance`."""
