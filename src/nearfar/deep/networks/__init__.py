"""Trunks and embedders, autoencoders, layers of positive definite matrices, and networks of pairs and episodes."""
