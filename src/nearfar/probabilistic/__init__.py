"""Probabilistic metric learning, one file per method: neighbours, posteriors, divergences, risks of pairs."""
