"""How long a training takes, and how to make it end in time."""
