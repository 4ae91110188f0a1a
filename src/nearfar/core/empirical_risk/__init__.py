"""What the methods by empirical risk share: losses of pairs, target distances, and the searches that use them."""
