"""Mathematics that several families share: pure functions on NumPy and SciPy arrays, no estimator, no network."""
