"""Confusion-based metric learning in plain loops: triplets, energy confusion and diversity confusion."""

from . import diversity_confusion, energy_confusion, triplet


def reference(x, y, *, energy=0.02, diversity=0.04, **_):
    confusion = energy * energy_confusion.reference(x, y) + diversity * diversity_confusion.reference(x, y)
    return triplet.reference(x, y, margin=0.1) + confusion
