"""The engine of pair and triplet losses: anchors compared with a reference, block by block."""
