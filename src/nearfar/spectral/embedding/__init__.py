"""Metrics that come near target distances, or keep the shape of the data's manifold."""
