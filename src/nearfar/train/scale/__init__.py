"""Training with more: more items in a batch than fit into memory, very many classes, several processes."""
