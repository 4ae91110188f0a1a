"""Exact nearest neighbors, pairs within a distance and neighborhood graphs, in blocks."""
