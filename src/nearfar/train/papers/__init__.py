"""What papers report: their tables, their theory, and their training on episodes."""
