"""What the geometric methods share: geodesics, manifolds of frames and subspaces, curves, smooth fields."""
