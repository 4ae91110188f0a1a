"""The parts of an objective: batches and labels, terms and their sums, and objectives as text."""
