"""Random transforms of images, and further classes from symmetries."""
