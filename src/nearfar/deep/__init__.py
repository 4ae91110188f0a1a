"""Deep metric learning in PyTorch: the parts of an objective, the networks, and the batches that they learn from."""
