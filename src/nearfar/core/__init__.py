"""The shared mathematics: pure functions on numpy and scipy arrays, no estimator, no network.

What every family uses is here; what the methods of one family share has a folder of its own.
"""
