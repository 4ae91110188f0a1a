"""The shared mathematics: pure functions on numpy and scipy arrays, no estimator, no network.

What every family uses is here; what only the methods of one family share is in that family's own folder.
"""
