"""Terms of the whole batch: kernel embeddings of classes, scatters, Fisher criteria."""
