"""Shared parts of the networks that reconstruct their input: their layers, and the learner that trains them."""
