"""Probabilistic metric learning, one file per method: neighbors, posteriors, divergences, risks of pairs."""
