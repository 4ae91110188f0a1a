"""What the Bayesian methods share: posteriors over weights, and what to ask about next."""
