"""What an objective is made of: batches and labels, terms and their sums, and objectives as text."""
