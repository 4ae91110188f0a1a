"""Spectral metric learning, one file per method: scatters, margins, embeddings, kernels, geometry, adversaries."""
