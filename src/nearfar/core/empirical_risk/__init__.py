"""What the methods based on empirical risk share: losses of pairs, target distances, and searches that use them."""
