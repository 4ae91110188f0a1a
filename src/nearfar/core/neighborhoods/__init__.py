"""What the neighbourhood methods share: softmax sums over neighbours, and the searches that use them."""
