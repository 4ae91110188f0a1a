"""What the methods by margins share: hinges over pairs and triplets, impostors, and the searches that use them."""
