"""Names of the literature for a sum of other methods, or for another method with other settings."""
