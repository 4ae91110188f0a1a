"""What the methods with margins share: hinges over pairs and triplets, impostors, and the searches that use them."""
