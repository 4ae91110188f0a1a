"""The ladder: what is cheaper than a full training, from raw inputs on, and which of all that a run keeps."""
