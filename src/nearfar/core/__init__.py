"""The shared mathematics: pure functions on numpy and scipy arrays, no estimator, no network."""
