"""Metrics in the feature space of a kernel: the linear method on rows of an empirical kernel map."""
