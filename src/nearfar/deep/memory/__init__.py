"""What a loss remembers of earlier batches."""
