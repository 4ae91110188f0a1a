"""What the methods of information theory share: divergences between Gaussians and between metrics."""
