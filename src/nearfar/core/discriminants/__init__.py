"""What the methods by scatter matrices share: components that separate what should lie apart."""
