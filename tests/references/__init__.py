"""The formula of every method in plain loops, written from its paper: what the library must equal."""
