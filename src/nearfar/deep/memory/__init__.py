"""Memories of earlier batches, and teachers, with which losses compare."""
