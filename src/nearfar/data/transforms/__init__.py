"""Random changes of images, and classes made by symmetries."""
