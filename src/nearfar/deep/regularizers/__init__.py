"""Terms that are added to a loss, one file per method."""
