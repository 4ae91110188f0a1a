"""What the networks that reconstruct their input share: their layers, and the learner around them."""
